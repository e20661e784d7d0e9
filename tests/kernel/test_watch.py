"""Watching a run: its steps as they come, each once and in order, until it has ended."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import cast
from uuid import UUID, uuid4

import pytest

from byline import (
    AgentRuntime,
    ConfigurationError,
    Decision,
    Fence,
    InvalidIdentifier,
    RecordReference,
    RunStatus,
    RuntimeClosed,
    Step,
    StepKind,
    ToolContext,
    ToolEffect,
    ToolResult,
    UnknownRun,
    WriteKind,
    tool,
)
from byline.models.scripted import Turn
from byline.runtime import watching
from byline.store.protocol import Claim, LateReport, Trace
from byline.store.sql import SqlStore
from byline.testing import call
from byline.tools.result import WriteTarget
from tests.host import ALICE, BOB, AgentFacts, Host
from tests.kernel.entries import LEASE, Clock, store_of, waiting
from tests.kernel.stopping import ADD, READ, SET, Hold
from tests.kernel.test_work import NEVER, working

READS: list[Turn] = [[READ]] * 6
ENDS: list[Turn] = [*READS, "Done."]


async def all_of(runtime: AgentRuntime, run_id: UUID, *, after: int = 0, poll: float = NEVER) -> list[Step]:
    """What a watcher is told of a run, to its end. Where it is told of each step, it never has to look by itself."""
    async with asyncio.timeout(20):
        return [step async for step in runtime.watch(run_id, after=after, poll=poll)]


class Counting(SqlStore):
    """A store that counts how often it is asked for a page, and how much it gives."""

    pages: int = 0
    most: int = 0

    def trace(self, run_id: UUID, *, after: int, limit: int) -> Trace:
        trace = super().trace(run_id, after=after, limit=limit)
        self.pages += 1
        self.most = max(self.most, len(trace.steps))
        return trace


def counting(host: Host) -> Counting:
    return Counting(f"sqlite:///{host.path.parent / 'byline.db'}")


@pytest.mark.promise("P19", "P21")
async def test_steps_are_told_as_they_are_stored(host: Host) -> None:
    """From before the run is claimed to its end, through a decision; nobody has to look by themselves."""
    hold = Hold()
    async with host.runtime([[READ], [SET], hold.then("Done.")], execution="queued") as runtime, working(runtime):
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        steps: list[Step] = []
        async with asyncio.timeout(20):
            watched = runtime.watch(run.run_id, poll=NEVER)
            async for step in watched:
                steps.append(step)
                if step.kind is StepKind.SUSPENDED:
                    run = await runtime.get_run(run.run_id)
                    await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
                if step.kind is StepKind.WRITE:  # told, while the run goes on
                    assert (await runtime.get_run(run.run_id)).status is RunStatus.RUNNING
                    hold.let_go()
        assert steps == await runtime.list_steps(run.run_id)
        assert steps[-1].payload["status"] == "completed"
        assert [step async for step in watched] == []


@pytest.mark.promise("P19")
@pytest.mark.parametrize("page", [1, 2, 5, 100])
async def test_a_run_that_has_ended_is_told_to_its_last_step(
    host: Host, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "PAGE", page)
    async with host.runtime(ENDS) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        steps = list(await runtime.list_steps(run.run_id))
        assert steps[-1].kind is StepKind.SETTLED
        assert await all_of(runtime, run.run_id) == steps
        for number, step in enumerate(steps, 1):
            assert await all_of(runtime, run.run_id, after=step.position) == steps[number:]
        assert await all_of(runtime, run.run_id, after=2**62) == []


@pytest.mark.promise("P19")
@pytest.mark.parametrize("whence", ["here", "elsewhere"])
async def test_all_who_watch_are_told_the_same(host: Host, whence: str) -> None:
    async with (
        host.runtime([*READS, [SET], [ADD], "Done."], execution="queued") as runtime,
        host.runtime([], store=store_of(host)) as elsewhere,
    ):
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        other = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        where, poll = (runtime, NEVER) if whence == "here" else (elsewhere, 0.02)
        watchers = [asyncio.create_task(all_of(where, run.run_id, poll=poll)) for _ in range(20)]
        await asyncio.sleep(0)
        async with working(runtime):
            for _ in range(2):
                async for step in runtime.watch(run.run_id, poll=NEVER):
                    if step.kind is StepKind.SUSPENDED:
                        with suppress(AssertionError):  # the second time round, it has been decided
                            digest = waiting(await runtime.get_run(run.run_id))
                            await runtime.decide(run.run_id, Decision.approve(digest), actor=BOB)
            told = await asyncio.gather(*watchers)
        steps = await runtime.list_steps(run.run_id)
        assert [step.kind for step in steps].count(StepKind.WRITE) == 2
        assert all(steps == each for each in told)
        assert (await runtime.get_run(other.run_id)).status is RunStatus.AWAITING_APPROVAL


@pytest.mark.promise("P21")
async def test_what_is_decided_elsewhere_is_waited_for(host: Host) -> None:
    """A run that waits has not ended, nor has one in dead letter."""
    async with (
        host.runtime([[SET], RuntimeError("no line")]) as runtime,
        host.runtime([], store=store_of(host)) as watcher,
    ):
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        watched = watcher.watch(run.run_id, poll=0.02)
        async with asyncio.timeout(20):
            kinds = [(await anext(watched)).kind for _ in range(2)]
            assert kinds == [StepKind.MODEL, StepKind.SUSPENDED]
            run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
            assert run.status is RunStatus.DEAD_LETTER
            while (step := await anext(watched)).kind is not StepKind.SETTLED:
                kinds.append(step.kind)
            assert kinds[2:] == [StepKind.TOOL, StepKind.WRITE, StepKind.MODEL]
            coming = asyncio.ensure_future(anext(watched))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(coming), 0.1)
            await runtime.cancel(run.run_id, actor=ALICE)
            assert (await coming).payload["status"] == "cancelled"  # nobody told it
            assert [step async for step in watched] == []


async def cancelled(_host: Host, runtime: AgentRuntime, run_id: UUID, _clock: Clock) -> None:
    await runtime.cancel(run_id, actor=ALICE)


async def expired(_host: Host, runtime: AgentRuntime, run_id: UUID, clock: Clock) -> None:
    clock.now += 101
    assert (await runtime.recover()).expired == (run_id,)


async def given_up(host: Host, runtime: AgentRuntime, run_id: UUID, clock: Clock) -> None:
    digest = waiting(await runtime.get_run(run_id))
    async with host.runtime([], store=store_of(host, clock), execution="queued") as other:
        await other.decide(run_id, Decision.deny(digest), actor=BOB)
        other.store.claim(run_id, lease=LEASE, takeovers=3)
        assert (await other.cancel(run_id, actor=ALICE)).status is RunStatus.RUNNING
    clock.let_leases_expire()
    await runtime.recover()


@pytest.mark.promise("P21")
@pytest.mark.parametrize("end", [cancelled, expired, given_up], ids=lambda end: end.__name__)
async def test_an_end_without_a_segment_is_told_at_once(
    host: Host, end: Callable[[Host, AgentRuntime, UUID, Clock], Coroutine[object, object, None]]
) -> None:
    clock = Clock()
    agent: AgentFacts = {"approval_ttl": 100.0} if end is expired else {}
    store = store_of(host, clock)
    async with host.runtime([[SET], "Done."], store=store, agent=agent, max_takeovers=0) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        watcher = asyncio.create_task(all_of(runtime, run.run_id))
        await asyncio.sleep(0.05)
        assert not watcher.done()
        await end(host, runtime, run.run_id, clock)
        assert await watcher == await runtime.list_steps(run.run_id)


@pytest.mark.promise("P19")
async def test_a_slow_consumer_reads_pages_and_not_steps(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """However far the run is ahead, it holds one page; and a page is one question, whatever it holds."""
    monkeypatch.setattr(watching, "PAGE", 5)
    async with host.runtime([[READ]] * 15 + ["Done."], agent={"max_rounds": 30}) as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        store = counting(host)
        async with host.runtime([], store=store) as elsewhere:
            watched = elsewhere.watch(run.run_id, poll=0.01)
            first = asyncio.ensure_future(anext(watched))
            await runtime.execute(run.run_id)
            steps = [await first]
            store.pages = 0
            async for step in watched:
                await asyncio.sleep(0.002)
                steps.append(step)
            assert steps == await runtime.list_steps(run.run_id)
            assert len(steps) == 32
            assert store.most <= 5
            assert store.pages <= 7


async def test_who_waits_asks_only_now_and_then(host: Host) -> None:
    store = counting(host)
    async with host.runtime([[SET], "Done."], store=store) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(all_of(runtime, run.run_id, poll=0.1), 0.5)
        assert 2 <= store.pages <= 8


@pytest.mark.promise("P19")
async def test_who_gives_up_waiting_misses_nothing(host: Host) -> None:
    """Nor is anything told twice, wherever it was broken off: the same iterator goes on."""
    hold = Hold()
    async with host.runtime([*READS, hold.then("Done.")], execution="queued") as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        steps: list[Step] = []
        watched = runtime.watch(run.run_id, poll=0.004)
        async with working(runtime), asyncio.timeout(20):
            for number in range(400):
                with suppress(TimeoutError):
                    steps.append(await asyncio.wait_for(anext(watched), (number % 7) * 0.0005))
            hold.let_go()
            steps += [step async for step in watched]
        assert steps == await runtime.list_steps(run.run_id)


@pytest.mark.promise("P19")
async def test_several_consumers_of_one_iterator_share_its_steps(host: Host) -> None:
    async with host.runtime(ENDS, execution="queued") as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        watched = runtime.watch(run.run_id, poll=NEVER)
        told: list[Step] = []

        async def consume() -> None:
            async for step in watched:
                told.append(step)
                await asyncio.sleep(0)

        consumers = [asyncio.create_task(consume()) for _ in range(3)]
        await asyncio.sleep(0)
        async with working(runtime), asyncio.timeout(20):
            await asyncio.gather(*consumers)
        assert told == await runtime.list_steps(run.run_id)


async def test_a_consumer_that_is_cancelled_leaves_nothing(host: Host) -> None:
    async with host.runtime([[SET], "Done."]) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        before = asyncio.all_tasks()
        consumers = [asyncio.create_task(all_of(runtime, run.run_id)) for _ in range(5)]
        await asyncio.sleep(0.05)
        for consumer in consumers:
            consumer.cancel()
        ended = await asyncio.gather(*consumers, return_exceptions=True)
        assert [type(each) for each in ended] == [asyncio.CancelledError] * 5
        assert asyncio.all_tasks() == before
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert run.status is RunStatus.COMPLETED


@pytest.mark.promise("P22")
@pytest.mark.parametrize("turns", range(4))
async def test_a_consumer_that_is_cancelled_as_it_is_told_ends(host: Host, turns: int) -> None:
    """However many turns of the event loop lie between the two: what it is told of here is that the runtime closes."""
    hold = Hold()

    @tool(effect=ToolEffect.READ_ONLY)
    async def read(context: ToolContext) -> ToolResult:
        """Read something; until then the runtime does not close."""
        await hold.on_loop()
        return ToolResult.text("Read.")

    runtime = host.runtime([[call("read")], "Done."], tools=[read], execution="queued")
    await runtime.__aenter__()
    run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
    at_work = asyncio.create_task(runtime.work())
    await hold.is_reached()
    last = (await runtime.list_steps(run.run_id))[-1]
    consumer = asyncio.create_task(all_of(runtime, run.run_id, after=last.position))
    for _ in range(3):
        await runtime.get_run(run.run_id)  # behind whose answers the consumer has looked, and waits
    closing = asyncio.create_task(runtime.__aexit__(None, None, None))
    for _ in range(turns):
        await asyncio.sleep(0)
    consumer.cancel()
    [ended] = await asyncio.gather(consumer, return_exceptions=True)
    hold.let_go()
    await asyncio.gather(closing, at_work)
    assert type(ended) is asyncio.CancelledError


@pytest.mark.promise("P21")
async def test_closing_ends_it_with_an_error_that_says_where_to_go_on(host: Host) -> None:
    """An end that came without one would say that the run had ended."""
    runtime = host.runtime([[SET], "Done."])
    await runtime.__aenter__()
    run = await runtime.run("editor", "Please do.", actor=ALICE)
    steps = list(await runtime.list_steps(run.run_id))
    told: list[Step] = []

    async def consume() -> None:
        async for step in runtime.watch(run.run_id, poll=NEVER):
            told.append(step)  # noqa: PERF401 - what came before the error counts

    consumer = asyncio.create_task(consume())
    held = runtime.watch(run.run_id, poll=NEVER)
    assert await anext(held) == steps[0]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(5):
        await runtime.__aexit__(None, None, None)
        with pytest.raises(RuntimeClosed, match=rf"{run.run_id}.*after={steps[-1].position}"):
            await consumer
        assert told == steps
        assert await anext(held) == steps[1]  # it was read before
        with pytest.raises(RuntimeClosed, match=f"after={steps[-1].position}"):
            await anext(held)
        with pytest.raises(RuntimeClosed):
            runtime.watch(run.run_id)
    async with runtime:
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        rest = await all_of(runtime, run.run_id, after=told[-1].position)
        assert told + rest == await runtime.list_steps(run.run_id)


async def test_what_does_not_exist_or_cannot_work_is_refused(host: Host) -> None:
    async with host.runtime([]) as runtime:
        with pytest.raises(UnknownRun):
            await anext(runtime.watch(uuid4()))
        for position in (-1, 2**63, "1", True, 1.0):
            with pytest.raises(InvalidIdentifier):
                runtime.watch(uuid4(), after=cast("int", position))
        with pytest.raises(InvalidIdentifier):
            runtime.watch("42")
        for poll in (0, -1, float("nan"), "1"):
            with pytest.raises(ConfigurationError):
                runtime.watch(uuid4(), poll=cast("float", poll))


class Interrupted(SqlStore):
    """A store in which something happens just before a page is read, or just behind it."""

    before: Callable[[], object] | None = None
    behind: Callable[[], object] | None = None

    def trace(self, run_id: UUID, *, after: int, limit: int) -> Trace:
        before, self.before = self.before, None
        if before is not None:
            before()
        trace = super().trace(run_id, after=after, limit=limit)
        behind, self.behind = self.behind, None
        if behind is not None:
            behind()
        return trace


@pytest.mark.promise("P19", "P21")
@pytest.mark.parametrize("when", ["before", "behind"])
async def test_an_end_that_comes_while_a_page_is_read_is_told_whole(host: Host, when: str) -> None:
    """What is stored behind the look and before the wait is not left to the poll, and no last step is lost."""
    store = Interrupted(f"sqlite:///{host.path.parent / 'byline.db'}")
    runtime = host.runtime([[SET], "Done."])
    async with runtime, host.runtime([], store=store) as watcher:
        run = await runtime.run("editor", "Please do.", actor=ALICE)

        def go_on() -> None:
            with host.runtime([[SET], "Done."], store=store_of(host)).sync as other:
                ended = other.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
                assert ended.status is RunStatus.COMPLETED

        setattr(store, when, go_on)
        assert await all_of(watcher, run.run_id, poll=0.01) == await runtime.list_steps(run.run_id)


@pytest.mark.promise("P8", "P19")
async def test_a_late_report_behind_the_end_is_listed_and_not_waited_for(host: Host) -> None:
    clock = Clock()
    async with host.runtime(["Done."], store=store_of(host, clock)) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        steps = await all_of(runtime, run.run_id)
        fence = Fence(uuid4(), "set_description", ToolEffect.IDEMPOTENT_WRITE, 1)
        target = WriteTarget(RecordReference("pages", 42), WriteKind.UPDATED)
        late = LateReport(report_id=uuid4(), claim=Claim(run.run_id, 1), fence=fence, target=target)
        runtime.store.report_late(late)
        (report,) = await runtime.list_steps(run.run_id, after=steps[-1].position)
        assert report.target == target
        assert await all_of(runtime, run.run_id) == [*steps, report]
        assert await all_of(runtime, run.run_id, after=steps[-1].position) == [report]


# -- for synchronous code -------------------------------------------------------------------------------------------


@pytest.mark.promise("P19", "P21")
def test_the_mirror_is_a_plain_iterator(host: Host) -> None:
    hold = Hold()
    with host.runtime([[READ], [SET], hold.then("Done.")], execution="queued").sync as mirror:
        run = mirror.enqueue("editor", "Please do.", actor=ALICE)
        at_work = threading.Thread(target=mirror.execute, args=(run.run_id,))
        at_work.start()
        told: list[Step] = []
        for step in mirror.watch(run.run_id, poll=NEVER):
            told.append(step)
            if step.kind is StepKind.SUSPENDED:
                at_work.join(20)
                mirror.decide(run.run_id, Decision.approve(waiting(mirror.get_run(run.run_id))), actor=BOB)
                at_work = threading.Thread(target=mirror.execute, args=(run.run_id,))
                at_work.start()
            if step.kind is StepKind.WRITE:
                hold.let_go()
        at_work.join(20)
        assert told == mirror.list_steps(run.run_id)
        assert list(mirror.watch(run.run_id, after=told[2].position)) == told[3:]


def test_who_breaks_off_leaves_no_thread_and_no_task(host: Host) -> None:
    runtime = host.runtime([[SET], "Done."])
    with runtime.sync as mirror:
        run = mirror.run("editor", "Please do.", actor=ALICE)
        threads = set(threading.enumerate())
        for _ in range(5):
            for step in mirror.watch(run.run_id):
                assert step.kind is StepKind.MODEL
                break
        loop = runtime.event_loop
        assert loop is not None
        assert set(threading.enumerate()) == threads
        assert asyncio.run_coroutine_threadsafe(_tasks(), loop).result(5) == 1
        with pytest.raises(UnknownRun):
            next(mirror.watch(uuid4()))
        with pytest.raises(InvalidIdentifier):
            mirror.watch("42")


async def _tasks() -> int:
    return len(asyncio.all_tasks())


@pytest.mark.promise("P21")
def test_the_mirror_is_ended_by_closing(host: Host) -> None:
    runtime = host.runtime([[SET], "Done."])
    told: list[Step] = []
    ended: list[BaseException] = []
    waits = threading.Event()
    with runtime.sync as mirror:
        run = mirror.run("editor", "Please do.", actor=ALICE)

        def watch() -> None:
            try:
                for step in mirror.watch(run.run_id, poll=NEVER):
                    told.append(step)
                    if step.kind is StepKind.SUSPENDED:
                        waits.set()
            except RuntimeClosed as error:
                ended.append(error)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        assert waits.wait(20)
    watcher.join(20)
    assert [type(each) for each in ended] == [RuntimeClosed]
    assert len(told) == 2


async def test_the_mirror_does_not_block_the_event_loop(host: Host) -> None:
    async with host.runtime([]) as runtime:
        with pytest.raises(RuntimeClosed, match="await"):
            runtime.sync.watch(uuid4())
