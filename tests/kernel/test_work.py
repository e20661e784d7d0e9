"""A worker: it takes up what is due, many at once, woken or not."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from byline import (
    AgentRuntime,
    ConfigurationError,
    Decision,
    ModelError,
    ModelRequest,
    RunStatus,
    ToolContext,
    ToolEffect,
    ToolResult,
    tool,
)
from byline.models.scripted import Reply
from byline.privacy import PrivacyLevel
from byline.store.protocol import Claimed
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel, call
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import store_of, until_left, waiting
from tests.kernel.stopping import ADD, Hold

UNHEARD = "amqp://user:secret@broker"
NEVER = 1_000.0
"""Seconds between two looks: a run that is found was told of."""


@asynccontextmanager
async def working(runtime: AgentRuntime, *, concurrency: int = 50, poll: float = NEVER) -> AsyncGenerator[None]:
    task = asyncio.create_task(runtime.work(concurrency=concurrency, poll=poll))
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.promise("P17", "P21")
async def test_it_executes_what_is_queued_before_and_meanwhile(host: Host) -> None:
    """And what a decision, a word on an uncertain write or a retry queues, in the same process."""
    asked = 0

    async def later(_request: ModelRequest) -> Reply:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ModelError("no right")
        return "Done."

    async with host.runtime([[ADD], later], execution="queued") as runtime:
        before = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        async with working(runtime), asyncio.timeout(20):
            run = await until_left(runtime, before.run_id, RunStatus.QUEUED)
            run = await until_left(runtime, before.run_id, RunStatus.RUNNING)
            run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
            assert run.status is RunStatus.QUEUED
            await until_left(runtime, run.run_id, RunStatus.QUEUED)
            run = await until_left(runtime, run.run_id, RunStatus.RUNNING)
            assert run.status is RunStatus.DEAD_LETTER
            await runtime.retry(run.run_id)
            await until_left(runtime, run.run_id, RunStatus.QUEUED)
            run = await until_left(runtime, run.run_id, RunStatus.RUNNING)
            assert (run.output, host.executions()) == ("Done.", 1)


@pytest.mark.promise("P17")
async def test_nothing_is_lost_where_no_wake_up_comes(host: Host) -> None:
    """Its first look may find the first run; the second is queued while it sleeps, and nothing tells it of that one."""
    async with host.runtime(["Done.", "Done."], execution="queued") as runtime, host.runtime([]) as elsewhere:
        async with working(runtime, poll=0.02), asyncio.timeout(20):
            for _ in range(2):
                run = await elsewhere.enqueue("editor", "Please do.", actor=ALICE)
                await until_left(runtime, run.run_id, RunStatus.QUEUED)
                run = await until_left(runtime, run.run_id, RunStatus.RUNNING)
                assert run.output == "Done."


async def test_it_executes_as_many_at_once_as_it_may(host: Host) -> None:
    begun: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def answer(_request: ModelRequest) -> Reply:
        hold = asyncio.Event()
        begun.put_nowait(hold)
        await hold.wait()
        return "Done."

    async with host.runtime([answer], execution="queued") as runtime:
        runs = [await runtime.enqueue("editor", "Please do.", actor=ALICE) for _ in range(6)]
        async with working(runtime, concurrency=2), asyncio.timeout(20):
            executed = [await begun.get(), await begun.get()]
            for _ in range(4):
                await asyncio.sleep(0)
                assert begun.empty()
                assert len(await runtime.list_runs(status=RunStatus.RUNNING)) == 2
                executed.pop(0).set()
                executed.append(await begun.get())
            for hold in executed:
                hold.set()
            for run in runs:
                assert (await until_left(runtime, run.run_id, RunStatus.RUNNING)).output == "Done."


@pytest.mark.promise("P21")
async def test_one_that_closes_claims_nothing_more(host: Host) -> None:
    """It finishes the step in flight, and hands that run back; what waited behind it was never claimed."""
    hold = Hold()

    @tool(effect=ToolEffect.READ_ONLY)
    async def read(context: ToolContext) -> ToolResult:
        """Read something."""
        await hold.on_loop()
        return ToolResult.text("Read.")

    runtime = host.runtime([[call("read")], "Done."], tools=[read], execution="queued")
    await runtime.__aenter__()
    first, second = [await runtime.enqueue("editor", "Please do.", actor=ALICE) for _ in range(2)]
    at_work = asyncio.create_task(runtime.work(concurrency=1, poll=0.01))
    await hold.is_reached()
    closing = asyncio.create_task(runtime.__aexit__(None, None, None))
    await asyncio.sleep(0)
    hold.let_go()
    await closing
    await at_work
    async with host.runtime([]) as later:
        left = [await asyncio.to_thread(later.store.get, run.run_id) for run in (first, second)]
    assert [(run.claim, run.status) for run in left] == [(1, RunStatus.QUEUED), (0, RunStatus.QUEUED)]


class Broken(SqlStore):
    """A store in which one run cannot be claimed."""

    broken: UUID | None = None
    claims: int = 0

    def claim(
        self, run_id: UUID, *, lease: float, takeovers: int, privacy: PrivacyLevel = PrivacyLevel.METADATA
    ) -> Claimed | None:
        if run_id == self.broken:
            self.claims += 1
            raise RuntimeError("this one is broken")
        return super().claim(run_id, lease=lease, takeovers=takeovers, privacy=privacy)


@pytest.mark.promise("P21")
async def test_a_run_that_cannot_be_taken_up_holds_up_no_other(host: Host) -> None:
    """It is tried once, and then left to others for a while; anybody sees why."""
    store = Broken(str(store_of(host).engine.url))
    async with host.runtime(ScriptedModel(["Done."] * 3), store=store, execution="queued") as runtime:
        broken = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        store.broken = broken.run_id
        async with working(runtime, concurrency=1, poll=0.01), asyncio.timeout(20):
            for _ in range(3):
                run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
                await until_left(runtime, run.run_id, RunStatus.QUEUED)
                await until_left(runtime, run.run_id, RunStatus.RUNNING)
        run = await runtime.get_run(broken.run_id)
        assert (run.status, store.claims) == (RunStatus.QUEUED, 1)
        assert "RuntimeError" in str(run.problem)


class Told:
    """A wake-up that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[UUID] = []

    def wake(self, run_id: UUID, /) -> None:
        self.told.append(run_id)


class Failing:
    async def wake(self, run_id: UUID, /) -> None:
        raise ConnectionError(f"no broker for {run_id}")


class Hanging:
    def __init__(self) -> None:
        self.freed = threading.Event()

    def wake(self, run_id: UUID, /) -> None:
        self.freed.wait(20)


@pytest.mark.promise("P17")
async def test_workers_elsewhere_are_told_of_each_run_that_is_queued(host: Host) -> None:
    told = Told()
    async with host.runtime([[ADD], "Done."], execution="queued", wakeup=told) as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        run = await runtime.execute(run.run_id)
        await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
    assert told.told == [run.run_id, run.run_id]


@pytest.mark.promise("P17")
async def test_who_executes_at_once_tells_nobody(host: Host) -> None:
    told = Told()
    async with host.runtime([[ADD], "Done."], wakeup=told) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
    assert told.told == []


@pytest.mark.promise("P17")
async def test_a_wake_up_that_fails_or_hangs_hurts_nobody(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    hanging = Hanging()
    for wakeup in (Failing(), hanging):
        async with host.runtime([], execution="queued", wakeup=wakeup, grace=0.1) as runtime:
            async with asyncio.timeout(5):
                run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
            assert run.status is RunStatus.QUEUED
    hanging.freed.set()
    assert "No wake-up for run" in caplog.text


class Deaf(Told):
    """One whose listening fails, or hangs until it is freed."""

    def __init__(self, *, hangs: bool) -> None:
        super().__init__()
        self.freed = threading.Event()
        self._hangs = hangs

    @contextlib.contextmanager
    def listen(self, _woken: Callable[[], None], /) -> Generator[None]:
        if not self._hangs:
            raise SystemExit(UNHEARD)
        self.freed.wait(20)
        yield


@pytest.mark.promise("P17", "P21")
@pytest.mark.parametrize("hangs", [False, True], ids=["it fails", "it hangs"])
async def test_a_worker_that_cannot_listen_looks_by_itself(
    host: Host, caplog: pytest.LogCaptureFixture, hangs: bool
) -> None:
    deaf = Deaf(hangs=hangs)
    async with host.runtime(["Done."], execution="queued", wakeup=deaf) as runtime:
        async with asyncio.timeout(10), working(runtime, poll=0.05):
            run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
            await until_left(runtime, run.run_id, RunStatus.QUEUED)
            assert (await until_left(runtime, run.run_id, RunStatus.RUNNING)).output == "Done."
    deaf.freed.set()
    if not hangs:
        assert "No wake-up is heard" in caplog.text
        assert UNHEARD not in caplog.text


class Captured:
    """A wake-up that a test gives at the moment it wants."""

    def __init__(self) -> None:
        self.woken: Callable[[], None] | None = None

    def wake(self, run_id: UUID, /) -> None:
        """Whoever is told of a run elsewhere is not of interest here."""

    @contextlib.contextmanager
    def listen(self, woken: Callable[[], None], /) -> Generator[None]:
        self.woken = woken
        yield


@pytest.mark.promise("P22")
@pytest.mark.parametrize("turns", range(6))
async def test_a_worker_that_is_cancelled_as_it_wakes_ends(host: Host, turns: int) -> None:
    """However many turns of the event loop lie between the two: on Python 3.11, `asyncio.wait_for` loses the second."""
    wakeup = Captured()
    async with host.runtime(["Done."], execution="queued", wakeup=wakeup) as runtime:
        task = asyncio.create_task(runtime.work(poll=NEVER))
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        await until_left(runtime, run.run_id, RunStatus.QUEUED)
        await until_left(runtime, run.run_id, RunStatus.RUNNING)  # begun by a look, behind which the worker sleeps
        assert wakeup.woken is not None
        wakeup.woken()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        ended, _ = await asyncio.wait({task}, timeout=5)
        assert ended == {task}
        assert task.cancelled()


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"concurrency": True}, {"poll": 0}, {"poll": float("nan")}])
async def test_what_cannot_work_is_refused(host: Host, wrong: dict[str, int]) -> None:
    async with host.runtime([]) as runtime:
        with pytest.raises(ConfigurationError):
            await runtime.work(**wrong)


async def test_without_agents_there_is_nothing_to_work_on(host: Host) -> None:
    async with AgentRuntime(store=store_of(host), agents=[]) as runtime:
        with pytest.raises(ConfigurationError, match="agents"):
            await runtime.work()


def test_a_wakeup_can_wake(host: Host) -> None:
    with pytest.raises(ConfigurationError, match="wake"):
        host.runtime([], wakeup=object())  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
