"""Faults that were found by trying to break the runtime, each held here for good."""

import asyncio
import time

import pytest
from pydantic import JsonValue

from byline import (
    AiActorContext,
    ApprovalExpired,
    Conversation,
    Decision,
    Deny,
    Fence,
    Grant,
    LoopRun,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    NotAllowed,
    ProposedCall,
    Reconciliation,
    RecordReference,
    Run,
    RunStatus,
    RuntimeClosed,
    StepKind,
    StoreUnavailable,
    SyncRuntime,
    Tool,
    Toolbox,
    ToolContext,
    ToolEffect,
    ToolLoop,
    ToolResult,
    WriteKind,
    tool,
)
from byline.driving import Suspended
from byline.models.messages import UserMessage
from byline.store.protocol import LateReport
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel, call
from tests.host import ALICE, BOB, Host, People

CAROL = AiActorContext.user("9", grants=tuple(Grant))
SET = call("set_description", page_id=42, description="Who we are.")
ADD = call("add_element", page_id=42, text="New.")
READ = call("read_page", page_id=42)


def digest(run: Run) -> str:
    assert run.pending is not None
    return run.pending.digest


def uncertain(run: Run) -> str:
    assert run.uncertain is not None
    return run.uncertain.digest


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
def add_and_raise(context: ToolContext, text: str) -> ToolResult:
    """Add, and lose the answer."""
    raise ConnectionError(text)


ADD_AND_RAISE = call("add_and_raise", text="x")


@pytest.mark.promise("P12", "P13")
async def test_arguments_that_were_approved_run_whatever_their_letters_weigh(host: Host) -> None:
    text = "я" * 45_000
    asking = ModelCall("set_description", f'{{"page_id": 42, "description": "{text}"}}')
    async with host.runtime([[asking], "Done."]) as runtime:
        run = await runtime.run("editor", "Describe it.", actor=ALICE)
        await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert host.description() == text


@pytest.mark.promise("P14")
async def test_everyone_who_changed_the_arguments_is_a_proposer(host: Host) -> None:
    async with host.runtime([[SET], "Done."], agent={"second_approver": True}) as runtime:
        run = await runtime.run("editor", "Describe it.", actor=ALICE)
        for proposer in (BOB, CAROL):
            assert run.pending is not None
            arguments: dict[str, JsonValue] = {"page_id": 42, "description": "Ours."}
            change = Decision.change(digest(run), run.pending.calls[0].id, arguments)
            run = await runtime.decide(run.run_id, change, actor=proposer)
        for proposer in (BOB, CAROL, ALICE):
            with pytest.raises(NotAllowed):
                await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=proposer)
        assert host.executions() == 0
        fourth = AiActorContext.user("10", grants=tuple(Grant))
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=fourth)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


class Clock:
    """The store's clock, as a test sets it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.promise("P13", "P14")
async def test_the_word_to_run_it_again_grows_old_as_any_release(host: Host) -> None:
    clock = Clock()
    store = SqlStore(f"sqlite:///{host.path.parent / 'byline.db'}", clock=clock)
    async with host.runtime([[ADD_AND_RAISE], "Done."], store=store, tools=[add_and_raise], release_ttl=60) as runtime:
        run = await runtime.run("editor", "Add it.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
    later = host.runtime(
        [[ADD_AND_RAISE], "Done."], store=store, tools=[add_and_raise], release_ttl=60, execution="queued"
    )
    async with later as runtime:
        await runtime.reconcile(run.run_id, Reconciliation.run_again(uncertain(run)), actor=BOB)
        clock.now += 61
        run = await runtime.execute(run.run_id)
        assert run.status is RunStatus.UNCERTAIN
        steps = [step for step in await runtime.list_steps(run.run_id) if step.kind is StepKind.UNCERTAIN]
        assert [step.payload["reason"] for step in steps] == ["raised", "not_repeatable"]


@pytest.mark.promise("P14")
async def test_a_change_does_not_take_the_expiry_away(host: Host) -> None:
    clock = Clock()
    store = SqlStore(f"sqlite:///{host.path.parent / 'byline.db'}", clock=clock)
    async with host.runtime([[SET], "Done."], store=store, agent={"approval_ttl": 60}) as runtime:
        run = await runtime.run("editor", "Describe it.", actor=ALICE)
    async with host.runtime([[SET], "Done."], store=store) as runtime:
        assert run.pending is not None
        change = Decision.change(digest(run), run.pending.calls[0].id, {"page_id": 42, "description": "x"})
        run = await runtime.decide(run.run_id, change, actor=BOB)
        assert run.pending is not None
        assert run.pending.expires_at is not None
        clock.now += 61
        with pytest.raises(ApprovalExpired):
            await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (await runtime.recover()).expired == (run.run_id,)


@pytest.mark.promise("P14")
async def test_a_reconciliation_can_deny_a_call_that_needs_no_approval(host: Host) -> None:
    tools: list[Tool] = [add_and_raise, *host.tools()]
    async with host.runtime([[ADD_AND_RAISE, READ], "Done."], tools=tools) as runtime:
        run = await runtime.run("editor", "Add, then read.", actor=ALICE)
        assert run.pending is not None
        read = run.pending.calls[1].id
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        run = await runtime.reconcile(run.run_id, Reconciliation.leave_it(uncertain(run), deny={read}), actor=BOB)
        assert (run.status, host.executions("read_page")) == (RunStatus.COMPLETED, 0)


@pytest.mark.promise("P15")
async def test_a_service_that_bears_a_person_s_name_is_judged_as_a_service(host: Host) -> None:
    judged: list[tuple[str, str]] = []

    class Watching(People):
        def may_run(self, actor: AiActorContext, call: ProposedCall, /) -> bool:
            judged.append((actor.id, actor.scope.value))
            return True

    async with host.runtime([[SET], "Done."], authority=Watching()) as runtime:
        run = await runtime.run("editor", "Describe it.", actor=AiActorContext.service("7"))
        await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
    assert judged == [("8", "user"), ("7", "service"), ("8", "user")]


class Stubborn:
    """A model that does not obey its cancellation."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def answer(self, request: ModelRequest, /) -> ModelAnswer:
        self.asked.set()
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                continue
        return ModelAnswer("Late.")


@pytest.mark.promise("P22")
async def test_a_stubborn_model_does_not_keep_a_run_from_being_cancelled(host: Host) -> None:
    model = Stubborn()
    async with host.runtime(model) as runtime:
        running = asyncio.create_task(runtime.run("editor", "Go.", actor=ALICE))
        await model.asked.wait()
        [run] = await runtime.list_runs()
        run = await runtime.cancel(run.run_id, actor=ALICE)
        assert run.status is RunStatus.CANCELLED
        assert (await running).status is RunStatus.CANCELLED
        model.go.set()


@pytest.mark.promise("P21")
async def test_a_model_that_hangs_ends_in_dead_letter(host: Host) -> None:
    model = Stubborn()
    async with host.runtime(model, agent={"model_timeout": 0.05}, max_model_failures=0) as runtime:
        run = await runtime.run("editor", "Go.", actor=ALICE)
        assert run.status is RunStatus.DEAD_LETTER
        model.go.set()
        assert (await runtime.retry(run.run_id)).status is RunStatus.COMPLETED


@pytest.mark.promise("P14")
async def test_a_stubborn_authority_means_no(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byline.approval.gate.AUTHORITY_TIMEOUT", 0.05)
    go = asyncio.Event()

    class Hanging(People):
        async def may_run(self, actor: AiActorContext, call: ProposedCall, /) -> bool:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - async here, as a host's may be
            while not go.is_set():
                try:
                    await go.wait()
                except asyncio.CancelledError:
                    continue
            return True

    async with host.runtime([[SET], "Done."], authority=Hanging()) as runtime:
        run = await runtime.run("editor", "Describe it.", actor=ALICE)
        with pytest.raises(NotAllowed):
            await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        go.set()


class Hiccup(SqlStore):
    """A store that does not answer the first late report."""

    hiccups = 1

    def report_late(self, report: LateReport) -> LateReport:
        if self.hiccups:
            self.hiccups -= 1
            raise StoreUnavailable
        return super().report_late(report)


@pytest.mark.promise("P8", "P9")
async def test_a_late_report_is_tried_again(host: Host) -> None:
    go = asyncio.Event()

    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, timeout=0.05)
    async def slow(context: ToolContext) -> ToolResult:
        """Land late."""
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return ToolResult.text("Done.").with_write_target(RecordReference("elements", 1), WriteKind.CREATED)

    store = Hiccup(f"sqlite:///{host.path.parent / 'byline.db'}")
    async with host.runtime([[call("slow")], "Done."], tools=[slow], store=store) as runtime:
        run = await runtime.run("editor", "Go.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert run.status is RunStatus.UNCERTAIN
        go.set()
        async with asyncio.timeout(10):
            while not await runtime.late_reports():  # noqa: ASYNC110 - the store tells nobody
                await asyncio.sleep(0.01)
        assert store.hiccups == 0
        assert (await runtime.execute(run.run_id)).status is RunStatus.COMPLETED


@pytest.mark.promise("P9", "P19")
async def test_a_verdict_that_was_not_told_yet_outlives_a_close(host: Host) -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def listen(_event: object) -> None:
        entered.set()
        await go.wait()

    async with host.runtime([[ADD_AND_RAISE], "Done."], tools=[add_and_raise]) as runtime:
        run = await runtime.run("editor", "Add it.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
    landed = Reconciliation.landed(uncertain(run), RecordReference("elements", 5), WriteKind.CREATED)
    closing = host.runtime([[ADD_AND_RAISE], "Done."], tools=[add_and_raise], listeners=[listen], grace=0.05)
    async with closing as runtime:
        telling = asyncio.create_task(runtime.reconcile(run.run_id, landed, actor=BOB))
        await entered.wait()
    await asyncio.wait({telling})  # it was told how the run stands, or that the runtime closed
    telling.exception()
    async with host.runtime([[ADD_AND_RAISE], "Done."], tools=[add_and_raise]) as runtime:
        run = await runtime.execute(run.run_id)
        assert run.status is RunStatus.COMPLETED
        assert [str(fact.record) for fact in await runtime.writes()] == ["elements:5"]


class SlowFence(SqlStore):
    """A store that takes longer than the grace to set a fence."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def advance(self, *args: object, **kwargs: object) -> bool:
        if type(args[1]).__name__ == "SetFence":
            self.loop.call_soon_threadsafe(self.asked.set)
            time.sleep(0.4)  # longer than the grace: nothing here could be waited for
        return super().advance(*args, **kwargs)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - passed on


@pytest.mark.promise("P9", "P21")
async def test_no_write_begins_once_the_grace_is_over(host: Host) -> None:
    store = SlowFence(f"sqlite:///{host.path.parent / 'byline.db'}")
    async with host.runtime([[ADD], "Done."], store=store, grace=0.1) as runtime:
        run = await runtime.run("editor", "Add it.", actor=ALICE)
        deciding = asyncio.create_task(runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB))
        await store.asked.wait()
    await asyncio.wait({deciding})
    deciding.exception()
    assert host.executions() == 0
    async with host.runtime([[ADD], "Done."], store=store) as runtime:
        assert (await runtime.get_run(run.run_id)).status is RunStatus.UNCERTAIN


async def test_closing_that_is_cancelled_closes_all_the_same(host: Host) -> None:
    model = Stubborn()
    runtime = host.runtime(model, grace=30)
    await runtime.__aenter__()
    running = asyncio.create_task(runtime.run("editor", "Go.", actor=ALICE))
    await model.asked.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(runtime.__aexit__(None, None, None), 0.05)
    with pytest.raises(RuntimeClosed):
        await runtime.list_runs()
    model.go.set()
    with pytest.raises(RuntimeClosed):
        await running


def test_a_loop_that_no_longer_runs_is_no_reason_to_hang(host: Host) -> None:
    loop = asyncio.new_event_loop()
    runtime = host.runtime(["Done."])
    loop.run_until_complete(runtime.__aenter__())
    mirror: SyncRuntime = runtime.sync
    with pytest.raises(RuntimeClosed):
        mirror.list_runs()
    loop.run_until_complete(runtime.__aexit__(None, None, None))
    loop.close()


@pytest.mark.promise("P7")
async def test_a_bare_loop_repeats_no_write_that_nobody_is_known_to_have_approved(host: Host) -> None:
    loop = ToolLoop(ScriptedModel([[SET], "Done."]), Toolbox(host.tools()))
    run = LoopRun(actor=ALICE)
    begun = [step async for step in loop.drive(Conversation(messages=(UserMessage("Go."),)), run)]
    suspended = begun[0]
    assert isinstance(suspended, Suspended)
    message = suspended.message
    assert message is not None
    fence = Fence(message.call_ids[0], "set_description", ToolEffect.IDEMPOTENT_WRITE, 1)
    resumed = Conversation(messages=(UserMessage("Go."), message), fence=fence)
    ended = [type(step).__name__ async for step in loop.drive(resumed, run)]
    assert (ended, host.executions()) == (["Uncertain"], 0)


@pytest.mark.promise("P13")
async def test_a_denial_stays_when_the_same_decision_changes_another_call(host: Host) -> None:
    async with host.runtime([[SET, ADD], "Done."]) as runtime:
        run = await runtime.run("editor", "Go.", actor=ALICE)
        assert run.pending is not None
        first, second = run.pending.calls
        both = Decision.per_call(digest(run), {second.id: Deny("Not this.")})
        run = await runtime.decide(run.run_id, both, actor=BOB)
        change = Decision.change(digest(run), first.id, {"page_id": 42, "description": "x"})
        run = await runtime.decide(run.run_id, change, actor=BOB)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=CAROL)
        assert (run.status, host.elements(), host.description()) == (RunStatus.COMPLETED, [], "x")
