"""The feed of announced writes: an order in which a reader never misses one, and cursors to read on from."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID

import pytest

from byline import (
    AfterAiRecordWrittenEvent,
    AgentRuntime,
    Decision,
    RecordReference,
    Run,
    RunStatus,
    StepKind,
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    WriteFact,
    WriteKind,
    tool,
)
from byline.models.scripted import Turn
from byline.runtime.sync import SyncRuntime
from byline.testing import call
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import Clock, start_and_approve, store_of, waiting
from tests.kernel.stopping import ADD, SET


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
def touch(context: ToolContext, table: str, uid: int | str, created: bool = False) -> ToolResult:
    """Touch a record."""
    kind = WriteKind.CREATED if created else WriteKind.UPDATED
    return ToolResult.text("Touched.").with_write_target(RecordReference(table, uid), kind)


TOOLS: list[Tool] = [touch]


def touching(*records: tuple[str, int | str]) -> list[Turn]:
    """A run that touches these records, one after the other."""
    return [[call("touch", table=table, uid=uid) for table, uid in records], "Done."]


def records(facts: Sequence[WriteFact]) -> list[str]:
    return [str(fact.record) for fact in facts]


async def read_on(runtime: AgentRuntime, after: str | None, limit: int) -> list[WriteFact]:
    """Read to the end of the feed, a page at a time."""
    read: list[WriteFact] = []
    while page := await runtime.writes(after=after, limit=limit):
        assert len(page) <= limit
        assert page[-1].cursor != after, "the page repeats, and would for ever"
        read += page
        after = page[-1].cursor
    return read


@pytest.mark.promise("P8", "P24")
@pytest.mark.parametrize("limit", [1, 2, 3, 1_000])
async def test_pages_are_the_whole(host: Host, limit: int) -> None:
    """It says run, record and kind of every write, in the order in which they were stored; no page repeats one."""
    heard: list[AfterAiRecordWrittenEvent] = []
    turns = touching(("pages", 1), ("pages", 2), ("files", "a/b"))
    async with host.runtime(turns, tools=TOOLS, listeners=[heard.append]) as runtime:
        runs = [(await start_and_approve(runtime)).run_id for _ in range(3)]
        feed = await runtime.writes()
        assert [(fact.correlation_id, fact.record, fact.kind) for fact in feed] == [
            (event.correlation_id, event.record, event.kind) for event in heard
        ]
        assert [fact.correlation_id for fact in feed] == [run_id for run_id in runs for _ in range(3)]
        assert len({fact.cursor for fact in feed}) == 9
        assert await read_on(runtime, None, limit) == feed
        for position, fact in enumerate(feed):
            assert await read_on(runtime, fact.cursor, limit) == feed[position + 1 :]


@pytest.mark.promise("P8")
async def test_a_cursor_stays_good(host: Host) -> None:
    """In another process, after the end of the feed, and after what is written later."""
    async with host.runtime(touching(("pages", 1)), tools=TOOLS) as runtime:
        await start_and_approve(runtime)
        (first,) = await runtime.writes()
        assert await runtime.writes(after=first.cursor) == []
    async with host.runtime(touching(("pages", 2)), tools=TOOLS) as runtime:
        assert await runtime.writes(after=first.cursor) == []
        await start_and_approve(runtime)
        (second,) = await runtime.writes(after=first.cursor)
        assert str(second.record) == "pages:2"
        assert await runtime.writes() == [first, second]


def _write(mirror: SyncRuntime, runs: int) -> list[Run]:
    ended: list[Run] = []
    for _ in range(runs):
        run = mirror.run("editor", "Please do.", actor=ALICE)
        ended.append(mirror.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB))
    return ended


@pytest.mark.promise("P8")
def test_nothing_is_missed_and_nothing_repeated_while_others_write(host: Host) -> None:
    """Three writers with a runtime each, and a reader who reads on from its cursor as fast as it can."""
    turns: list[Turn] = [[SET, ADD, ADD], "Done."]
    read: list[WriteFact] = []
    over = threading.Event()

    def write(_number: int) -> list[Run]:
        with host.runtime(turns, listeners=[]).sync as mirror:
            return _write(mirror, 15)

    def watch() -> None:
        with host.runtime(turns).sync as mirror:
            last_look = False
            while not last_look:
                last_look = over.is_set()
                while page := mirror.writes(after=read[-1].cursor if read else None, limit=7):
                    assert not read or page[-1] != read[-1], "the page repeats, and would for ever"
                    read.extend(page)

    with ThreadPoolExecutor(4) as pool:
        watching = pool.submit(watch)
        try:
            runs = [run for each in pool.map(write, range(3)) for run in each]
        finally:
            over.set()
        watching.result()
    with host.runtime(turns).sync as mirror:
        assert read == mirror.writes()
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    for run in runs:
        assert [fact.record.table for fact in read if fact.correlation_id == run.run_id] == [
            "pages", "elements", "elements",
        ]  # fmt: skip
    added = [fact.record.uid for fact in read if fact.record.table == "elements"]
    assert sorted(map(int, added)) == list(range(1, 91))


@pytest.mark.promise("P8")
async def test_by_table_and_by_time(host: Host) -> None:
    clock = Clock()
    store = store_of(host, clock)
    turns = touching(("pages", 1), ("files", "x"), ("pages", 2))
    async with host.runtime(turns, tools=TOOLS, store=store) as runtime:
        for _ in range(3):
            await start_and_approve(runtime)
            clock.now += 100
        feed = await runtime.writes()
        assert [fact.at.timestamp() - 1_800_000_000 for fact in feed] == [0.0] * 3 + [100.0] * 3 + [200.0] * 3
        assert {fact.at.utcoffset() for fact in feed} == {timedelta(0)}
        second = feed[3].at
        assert records(await runtime.writes(table="files")) == ["files:x"] * 3
        assert await runtime.writes(table="nothing") == []
        assert await runtime.writes(since=second) == feed[3:]
        assert await runtime.writes(since=second + timedelta(milliseconds=1)) == feed[6:]
        assert await runtime.writes(since=second + timedelta(days=1)) == []
        assert await runtime.writes(since=second, table="pages") == [feed[3], feed[5], feed[6], feed[8]]
        assert await runtime.writes(since=second, table="pages", after=feed[3].cursor, limit=2) == [feed[5], feed[6]]
        assert await runtime.writes(since=second, after=feed[0].cursor) == feed[3:]
        assert await runtime.writes(since=second, after=feed[7].cursor) == feed[8:]
        assert await runtime.writes(table="pages", after=feed[4].cursor) == [feed[5], feed[6], feed[8]]


@pytest.mark.promise("P8", "P24")
async def test_which_runs_wrote_a_record(host: Host) -> None:
    async with host.runtime(touching(("pages", 1), ("pages", 2)), tools=TOOLS) as runtime:
        one = (await start_and_approve(runtime)).run_id
    async with host.runtime(touching(("pages", 2), ("files", 2)), tools=TOOLS) as runtime:
        two = (await start_and_approve(runtime)).run_id
        assert await runs_of(runtime, "pages", 1) == [one]
        assert await runs_of(runtime, "pages", 2) == [one, two]
        assert await runs_of(runtime, "files", 2) == [two]
        assert await runs_of(runtime, "pages", 3) == []
        facts = await runtime.writes_of(RecordReference("pages", 2), limit=1)
        assert [fact.correlation_id for fact in facts] == [one]
        assert (await runtime.get_run(one)).actor == ALICE


async def runs_of(runtime: AgentRuntime, table: str, uid: int | str) -> list[UUID]:
    return [fact.correlation_id for fact in await runtime.writes_of(RecordReference(table, uid))]


@pytest.mark.promise("P8")
@pytest.mark.parametrize(
    "uid, others",
    [
        (42, ["042", "4", "x42"]),
        ("42", ["042"]),
        ("042", [42, "0042", "42 x"]),
        (-7, [7, "-07"]),
        (str(2**70), [str(2**70 + 1)]),
        ("a:b:c", ["a", "a:b", "A:b:c"]),
        ("Straße ß 🙂", ["strasse", "STRASSE"]),
        ('it\'s 100% \\ "quoted" _', ['it\'s 100% \\ "quoted" x']),
    ],
)
async def test_uids_come_back_as_they_were_named(host: Host, uid: int | str, others: list[int | str]) -> None:
    """Numbers as numbers, texts as texts, and none is taken for another."""
    turns = touching(("pages", uid), *(("pages", other) for other in others))
    async with host.runtime(turns, tools=TOOLS) as runtime:
        run = await start_and_approve(runtime)
        assert run.status is RunStatus.COMPLETED
        wanted = RecordReference("pages", uid)
        feed = await runtime.writes()
        assert [fact.record for fact in feed] == [RecordReference("pages", each) for each in (uid, *others)]
        (fact,) = await runtime.writes_of(wanted)
        assert fact == feed[0]
        assert type(fact.record.uid) is type(wanted.uid)
        assert RecordReference.parse(str(fact.record)) == wanted


@pytest.mark.promise("P8", "P23", "P24")
@pytest.mark.parametrize("ends", ["completed", "cancelled", "denied later"])
async def test_facts_stay_when_their_run_has_ended(host: Host, ends: str) -> None:
    turns: list[Turn] = [[SET], [ADD], "Done."]
    async with host.runtime(turns) as runtime:
        run = await start_and_approve(runtime)
        assert run.status is RunStatus.AWAITING_APPROVAL
        before = await runtime.writes()
        if ends == "cancelled":
            await runtime.cancel(run.run_id, actor=ALICE)
        else:
            decision = Decision.deny(waiting(run)) if ends == "denied later" else Decision.approve(waiting(run))
            await runtime.decide(run.run_id, decision, actor=BOB)
    async with host.runtime(turns) as runtime:
        run = await runtime.get_run(run.run_id)
        assert run.status is (RunStatus.CANCELLED if ends == "cancelled" else RunStatus.COMPLETED)
        feed = await runtime.writes()
        assert feed[0] == before[0]
        assert records(feed) == (["pages:42", "elements:1"] if ends == "completed" else ["pages:42"])
        steps = await runtime.list_steps(run.run_id)
        targets = [(step.target.record, step.target.kind) for step in steps if step.target is not None]
        assert targets == [(fact.record, fact.kind) for fact in feed]
        assert [step.kind for step in steps if step.target is not None] == [StepKind.WRITE] * len(feed)


@pytest.mark.promise("P8", "P10")
async def test_what_was_not_written_is_not_in_it(host: Host) -> None:
    turns: list[Turn] = [[call("set_description", page_id=99, description="…"), ADD], [SET], "Done."]
    async with host.runtime(turns) as runtime:
        run = await start_and_approve(runtime)
        run = await runtime.decide(run.run_id, Decision.deny(waiting(run)), actor=BOB)
        assert run.status is RunStatus.COMPLETED
        assert records(await runtime.writes()) == ["elements:1"]
        await asyncio.sleep(0)
        assert host.heard() == [("elements:1", "created")]
