"""The mirror for synchronous code: the same runtime from threads, views, tasks and listeners."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

from byline import (
    AfterAiRecordWrittenEvent,
    AgentRuntime,
    AiActorContext,
    Decision,
    InvalidIdentifier,
    ProposedCall,
    RecordReference,
    Run,
    RunStatus,
    RuntimeClosed,
    StoreError,
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    tool,
)
from byline.runtime.sync import SyncRuntime
from byline.testing import ScriptedModel
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import waiting
from tests.kernel.stopping import READ, SET
from tests.kernel.writers import TURNS, writer, written


def public(kind: type) -> dict[str, Callable[..., object]]:
    """The public methods of a class."""
    methods = inspect.getmembers(kind, inspect.isfunction)
    return {name: method for name, method in methods if not name.startswith("_")}


def test_it_mirrors_every_coroutine_with_its_signature() -> None:
    coroutines = {name: each for name, each in public(AgentRuntime).items() if inspect.iscoroutinefunction(each)}
    mirrored = public(SyncRuntime)
    watch = mirrored.pop("watch")
    assert inspect.signature(watch).parameters == inspect.signature(AgentRuntime.watch).parameters
    assert set(mirrored) == set(coroutines)
    assert len(coroutines) > 10
    for name, coroutine in coroutines.items():
        assert not inspect.iscoroutinefunction(mirrored[name])
        assert inspect.signature(mirrored[name]) == inspect.signature(coroutine), name


@pytest.mark.promise("P1", "P5", "P11")
def test_the_way_of_a_write_without_an_event_loop(host: Host) -> None:
    with host.runtime([[SET], "Done."]).sync as mirror:
        run = mirror.run("editor", "Please do.", actor=ALICE)
        assert host.executions() == 0
        run = mirror.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
        assert host.heard() == [("pages:42", "updated")]
        assert mirror.writes() == mirror.writes_of(RecordReference("pages", 42))
        assert [fact.correlation_id for fact in mirror.writes()] == [run.run_id]
        assert mirror.list_runs() == [mirror.get_run(run.run_id)] == [run]
        with pytest.raises(InvalidIdentifier):
            mirror.get_run("42")


class Asking:
    """A sync listener that reads the run it is told of, on its own thread."""

    def __init__(self) -> None:
        self.mirror: SyncRuntime | None = None
        self.read: list[Run] = []
        self.threads: list[threading.Thread] = []

    def __call__(self, event: AfterAiRecordWrittenEvent) -> None:
        assert self.mirror is not None
        self.threads.append(threading.current_thread())
        self.read.append(self.mirror.get_run(event.correlation_id))
        assert self.mirror.writes() == []  # it is told before the step is stored


@pytest.mark.promise("P5", "P6")
async def test_a_sync_listener_asks_while_the_run_goes_on(host: Host) -> None:
    """The runtime is open on the application's own event loop, which must not be blocked for that."""
    asking = Asking()
    async with host.runtime([[SET], "Done."], listeners=[asking, host.listen]) as runtime:
        asking.mirror = runtime.sync
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert run.status is RunStatus.COMPLETED
        assert [(read.run_id, read.status) for read in asking.read] == [(run.run_id, RunStatus.RUNNING)]
        assert asking.threads != [threading.current_thread()]
        assert host.heard() == [("pages:42", "updated")]


@pytest.mark.promise("P5", "P6")
def test_a_sync_listener_asks_the_mirror_that_it_was_called_through(host: Host) -> None:
    asking = Asking()
    with host.runtime([[SET], "Done."], listeners=[asking]).sync as mirror:
        asking.mirror = mirror
        run = mirror.run("editor", "Please do.", actor=ALICE)
        run = mirror.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert run.status is RunStatus.COMPLETED
        assert [read.status for read in asking.read] == [RunStatus.RUNNING]


async def test_tools_previews_and_authorities_ask_as_well(host: Host) -> None:
    read: list[RunStatus] = []
    runtimes: list[AgentRuntime] = []

    def look(run_id: UUID | None) -> None:
        assert run_id is not None
        read.append(runtimes[0].sync.get_run(run_id).status)

    def end(context: ToolContext) -> ToolResult:
        look(context.run)
        return written(context)

    def forbidden(_actor: AiActorContext, call: ProposedCall) -> bool:
        look(call.run_id)
        return False

    write = writer(host, ToolEffect.IDEMPOTENT_WRITE, end)
    host.people.forbidden = forbidden
    async with host.runtime(TURNS, tools=[write]) as runtime:
        runtimes.append(runtime)
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert set(read) == {RunStatus.AWAITING_APPROVAL, RunStatus.RUNNING}


@pytest.mark.promise("P6")
async def test_on_its_own_event_loop_it_is_refused(host: Host) -> None:
    """It would wait for itself: an error says so, and what to do instead."""
    refused: list[str] = []

    async def listen(event: AfterAiRecordWrittenEvent) -> None:
        with pytest.raises(RuntimeClosed, match="await") as raised:
            runtime.sync.get_run(event.correlation_id)
        refused.append(str(raised.value))

    @tool(effect=ToolEffect.READ_ONLY)
    async def read_page(context: ToolContext, page_id: int) -> ToolResult:
        """Read a page."""
        with pytest.raises(RuntimeClosed, match="await"):
            runtime.sync.list_runs()
        return ToolResult.text("Seen.")

    tools: list[Tool] = [read_page, *host.tools()[1:]]
    async with host.runtime([[SET, READ], "Done."], tools=tools, listeners=[listen]) as runtime:
        with pytest.raises(RuntimeClosed, match="await"):
            runtime.sync.list_runs()
        with pytest.raises(RuntimeClosed, match="async with"):
            runtime.sync.__enter__()
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert (run.output, len(refused)) == ("Done.", 1)


async def test_another_event_loop_is_told_which_one_it_is_open_on(host: Host) -> None:
    async with host.runtime([]) as runtime:

        def elsewhere() -> None:
            with pytest.raises(RuntimeClosed, match=r"runtime\.sync"):
                asyncio.run(runtime.list_runs())
            assert runtime.sync.list_runs() == []

        await asyncio.to_thread(elsewhere)


def test_several_threads_at_once(host: Host) -> None:
    """Each does a run of its own, through one mirror that each has entered."""
    runtime = host.runtime([[SET], "Done."])
    together = threading.Barrier(8)

    def one(_number: int) -> Run:
        with runtime.sync as mirror:
            together.wait(20)
            run = mirror.run("editor", "Please do.", actor=ALICE)
            return mirror.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)

    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(one, range(8)))
    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    assert len({run.run_id for run in runs}) == host.executions() == len(host.heard()) == 8
    assert runtime.event_loop is None


def test_the_last_one_to_leave_closes_it(host: Host) -> None:
    runtime = host.runtime([])
    mirror = runtime.sync
    for _ in range(2):  # it may be opened again
        with mirror:
            with mirror as inner:
                assert inner is mirror is runtime.sync
            assert mirror.list_runs() == []
        with pytest.raises(RuntimeClosed):
            mirror.list_runs()


def test_who_asks_while_another_one_closes_it_is_told_so(host: Host) -> None:
    """Never an answer that does not come."""
    runtime = host.runtime([])
    answers: list[str] = []
    with runtime.sync:
        pass

    def ask(opened: threading.Event) -> None:
        assert opened.wait(20)
        while True:
            try:
                runtime.sync.list_runs()
            except RuntimeClosed:
                answers.append("closed")
                return

    for _ in range(20):
        opened = threading.Event()
        threads = [threading.Thread(target=ask, args=(opened,), daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        with runtime.sync:
            opened.set()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
    assert len(answers) == 60


def test_what_cannot_be_opened_says_so_and_can_be_opened_later(host: Host, tmp_path: Path) -> None:
    folder = tmp_path / "not yet"
    runtime = host.runtime(ScriptedModel([]), store=f"sqlite:///{folder / 'byline.db'}")
    before = set(threading.enumerate())
    with pytest.raises(StoreError):
        runtime.sync.__enter__()
    assert set(threading.enumerate()) <= before
    with pytest.raises(RuntimeClosed):
        runtime.sync.list_runs()
    folder.mkdir()
    with runtime.sync as mirror:
        assert mirror.list_runs() == []


def test_nothing_is_left_running(host: Host) -> None:
    runtime = host.runtime([[SET], "Done."], listeners=[])
    before = set(threading.enumerate())
    with runtime.sync as mirror:
        mirror.run("editor", "Please do.", actor=ALICE)
    left = [each for each in set(threading.enumerate()) - before if not each.name.startswith("byline-tool")]
    assert left == []
