"""What the store keeps of what people said, lets grow old, and hands to whom, as the runtime shows it."""

import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from byline import (
    Agent,
    AgentRuntime,
    AlreadyDecided,
    ConfigurationError,
    Decision,
    Deny,
    InvalidIdentifier,
    Landed,
    Reconciliation,
    RecordReference,
    RunStatus,
    TerminationReason,
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    WriteKind,
    tool,
)
from byline.approval.decision import Approve, Change, Verdict
from byline.store.protocol import Amendment, Ruling, StoredRun
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel
from byline.tools import Verification
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import (
    Clock,
    die_after_claim,
    die_in_write,
    left_queued,
    store_of,
    unknown,
    waiting,
)
from tests.kernel.gate_entries import ADD, BETTER, READ, SET, pending
from tests.kernel.gate_people import CAROL

DAY = 86_400.0


class Overtaken(SqlStore):
    """A store in which somebody else decides a call between another's reading and writing."""

    def __init__(self, url: str, call_of: int, verdict: Approve | Deny) -> None:
        super().__init__(url)
        self._call_of, self._verdict = call_of, verdict

    def amend(self, amendment: Amendment) -> None:
        turn = self.get(amendment.run_id).turn
        assert turn is not None
        said = {turn.calls[self._call_of].id: self._verdict}
        self.decide(
            Ruling(
                decision_id=UUID(int=9),
                run_id=amendment.run_id,
                digest=amendment.digest,
                actor=CAROL,
                verdicts=said,
                waiting=turn.waiting,
            )
        )
        super().amend(amendment)


@pytest.mark.promise("P13")
@pytest.mark.parametrize("first", [Approve(), Deny("Carol's")])
@pytest.mark.parametrize("second", [Approve(), Deny("Bob's")])
async def test_a_verdict_beside_a_change_is_not_dropped_in_silence(
    host: Host, first: Approve | Deny, second: Approve | Deny
) -> None:
    store = Overtaken(f"sqlite:///{host.path.parent / 'byline.db'}", 1, first)
    async with host.runtime([[SET, ADD], "Done."], store=store) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        to_set, to_add = pending(run).calls
        verdicts: dict[UUID, Verdict] = {to_set.id: Change(BETTER), to_add.id: second}
        with pytest.raises(AlreadyDecided):
            await runtime.decide(run.run_id, Decision.per_call(waiting(run), verdicts), actor=BOB)
        after = await runtime.get_run(run.run_id)
        assert waiting(after) == waiting(run)
        assert {i: said.verdict for i, said in pending(after).decided.items()} == {to_add.id: first}


@pytest.mark.promise("P13")
async def test_a_denial_that_came_before_a_change_was_stored_stays(host: Host) -> None:
    store = Overtaken(f"sqlite:///{host.path.parent / 'byline.db'}", 1, Deny("Carol's"))
    async with host.runtime([[SET, ADD], "Done."], store=store) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        to_set, to_add = pending(run).calls
        run = await runtime.decide(run.run_id, Decision.change(waiting(run), to_set.id, BETTER), actor=BOB)
        (kept,) = pending(run).decided.values()
        assert (kept.call_id, kept.verdict, kept.actor_id) == (to_add.id, Deny("Carol's"), CAROL.id)


def looking(host: Host) -> list[Tool]:
    """The host's tools; whether an element was added can be looked up."""
    page, describe, add = host.tools()

    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def add_element(context: ToolContext, page_id: int, text: str) -> ToolResult:
        """Add an element to a page."""
        raise ConnectionError("the answer was lost")

    @add_element.verify
    def _(context: ToolContext, page_id: int, text: str) -> Verification:
        return Landed(RecordReference("elements", 1), WriteKind.CREATED)

    assert add.spec.name == add_element.spec.name
    return [page, describe, add_element]


@pytest.mark.promise("P13", "P14")
@pytest.mark.parametrize("settled_by", ["a fact", "a word"])
@pytest.mark.parametrize("passed, waits", [(DAY - 120, False), (10 * DAY, True)])
async def test_what_settles_one_write_makes_no_release_of_another_younger(
    host: Host, settled_by: str, passed: float, waits: bool
) -> None:
    clock, tools = Clock(), looking(host)
    run_id = await left_queued(host, [[ADD, SET], "Done."], clock, tools=tools)
    die_in_write(host, run_id, clock)
    store = store_of(host, clock)
    async with host.runtime([[ADD, SET], "Done."], store=store, tools=host.tools()) as runtime:
        run = await runtime.execute(run_id)
        digest = unknown(run).digest
    clock.now += passed
    store = store_of(host, clock)
    async with host.runtime([[ADD, SET], "Done."], store=store, tools=tools) as runtime:
        if settled_by == "a fact":
            run = await runtime.verify(run_id)
        else:
            landed = Reconciliation.landed(digest, RecordReference("elements", 1), WriteKind.CREATED)
            run = await runtime.reconcile(run_id, landed, actor=BOB)
        assert host.heard() == [("elements:1", "created"), ("pages:42", "updated")][: 1 if waits else 2]
        assert host.executions("set_description") == (0 if waits else 1)
        assert run.status is (RunStatus.AWAITING_APPROVAL if waits else RunStatus.COMPLETED)


@pytest.mark.promise("P9", "P19")
@pytest.mark.parametrize("word", ["landed", "leave it", "run again"])
async def test_a_word_is_used_however_often_its_executors_die(host: Host, word: str) -> None:
    clock = Clock()
    run_id = await left_queued(host, [[ADD], "Done."], clock)
    die_in_write(host, run_id, clock)
    async with host.runtime([[ADD], "Done."], store=store_of(host, clock), execution="queued") as runtime:
        digest = unknown(await runtime.execute(run_id)).digest
        words = {
            "landed": Reconciliation.landed(digest, RecordReference("elements", 1), WriteKind.CREATED),
            "leave it": Reconciliation.leave_it(digest),
            "run again": Reconciliation.run_again(digest),
        }
        await runtime.reconcile(run_id, words[word], actor=BOB)
    die_after_claim(host, run_id, clock)
    async with host.runtime([[ADD], "Done."], store=store_of(host, clock), max_takeovers=0) as runtime:
        await runtime.recover()
        await runtime.recover()
        run = await runtime.get_run(run_id)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
    assert host.heard() == ([] if word == "leave it" else [("elements:1", "created")])
    assert host.executions("add_element") == (1 if word == "run again" else 0)


@pytest.mark.promise("P22")
@pytest.mark.parametrize("loaded", [True, False])
async def test_a_run_that_a_dead_process_left_is_cancelled_at_once(host: Host, loaded: bool) -> None:
    """Its agent may be gone for good: then nobody would ever take it over to cancel it."""
    clock = Clock()
    run_id = await left_queued(host, [[ADD], "Done."], clock)
    die_after_claim(host, run_id, clock)
    clerk = Agent(name="editor" if loaded else "clerk", model=ScriptedModel([]), tools=host.tools())
    async with AgentRuntime(store=store_of(host, clock), agents=[clerk], authority=host.people) as runtime:
        run = await runtime.cancel(run_id, actor=ALICE)
        assert (run.status, run.reason) == (RunStatus.CANCELLED, TerminationReason.CANCELLED)
        (settled,) = [step for step in await runtime.list_steps(run_id) if step.payload.get("outcome")]
        assert settled.payload == {"tool": "add_element", "outcome": "cancelled"}
    assert host.executions() == 0


@pytest.mark.promise("P22")
async def test_what_is_to_be_cancelled_does_not_end_in_dead_letter(host: Host) -> None:
    clock = Clock()
    run_id = await left_queued(host, [[ADD], "Done."], clock)
    store = store_of(host, clock)
    store.open()
    assert store.claim(run_id, lease=60, takeovers=0) is not None
    assert store.cancel(run_id, ALICE.id) is RunStatus.RUNNING
    store.close()
    clock.let_leases_expire()
    async with host.runtime([[ADD], "Done."], store=store_of(host, clock), max_takeovers=0) as runtime:
        await runtime.recover()
        run = await runtime.get_run(run_id)
    assert (run.status, run.reason, host.executions()) == (RunStatus.CANCELLED, TerminationReason.CANCELLED, 0)


class Counting(SqlStore):
    """A store that counts what recovery asks it."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"sqlite:///{path.parent / 'byline.db'}")
        self.read: list[UUID] = []

    def get(self, run_id: UUID) -> StoredRun:
        self.read.append(run_id)
        return super().get(run_id)


async def enqueued(store: SqlStore, agent: str, times: int) -> Sequence[UUID]:
    elsewhere = Agent(name=agent, model=ScriptedModel(["Done."]))
    async with AgentRuntime(store=store, agents=[elsewhere]) as runtime:
        return [(await runtime.enqueue(agent, "Read page 42.", actor=ALICE)).run_id for _ in range(times)]


@pytest.mark.promise("P21")
async def test_recovery_reads_no_run_of_an_agent_that_is_not_loaded(host: Host) -> None:
    store = Counting(host.path)
    await enqueued(store, "elsewhere", 3)
    (mine,) = await enqueued(store, "editor", 1)
    store.read.clear()
    async with host.runtime([[READ], "Done."], store=store) as runtime:
        recovery = await runtime.recover()
    assert (recovery.executed, dict(recovery.skipped)) == ((mine,), {})
    assert set(store.read) == {mine}


@pytest.mark.promise("P21", "P23")
async def test_a_run_that_cannot_be_read_is_one_line_in_the_log(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    store = Counting(host.path)
    (broken,) = await enqueued(store, "editor", 1)
    with closing(sqlite3.connect(host.path.parent / "byline.db")) as database, database:
        database.execute("update byline_message set body = x'00'")
    async with host.runtime([[READ], "Done."], store=store) as runtime:
        caplog.clear()
        recovery = await runtime.recover()
    assert list(recovery.skipped) == [broken]
    (record,) = [record for record in caplog.records if vars(record).get("action") == "not_taken_up"]
    assert (record.levelno, record.exc_info) == (logging.WARNING, None)
    assert str(broken) in record.getMessage()


@pytest.mark.parametrize("after", [2**63, 2**70, -1, True, 1.0])
async def test_a_position_that_none_can_have(host: Host, after: int) -> None:
    async with host.runtime(["Done."]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        with pytest.raises(InvalidIdentifier):
            await runtime.list_steps(run.run_id, after=after)
        assert await runtime.list_steps(run.run_id, after=2**63 - 1) == []


@pytest.mark.parametrize("name", ["\ud800", "a\udfffb", 7, b"editor"], ids=ascii)
async def test_a_name_that_cannot_be_looked_up(host: Host, name: str) -> None:
    async with host.runtime(["Done."]) as runtime:
        with pytest.raises(InvalidIdentifier):
            await runtime.list_runs(agent=name)
        with pytest.raises(InvalidIdentifier):
            await runtime.writes(table=name)
        assert await runtime.list_runs(agent="nobody \N{SNOWMAN}") == []
        assert await runtime.writes(table="nothing \N{SNOWMAN}") == []


@pytest.mark.parametrize("seconds", [1e13, 1e300, 10**400, 101 * 366 * 86_400])
def test_a_time_without_an_end_is_no_setting(host: Host, seconds: float) -> None:
    with pytest.raises(ConfigurationError):
        host.runtime(["Done."], lease=seconds)
    with pytest.raises(ConfigurationError):
        host.runtime(["Done."], release_ttl=seconds)
    with pytest.raises(ConfigurationError):
        Agent(name="editor", model=ScriptedModel([]), approval_ttl=seconds)
