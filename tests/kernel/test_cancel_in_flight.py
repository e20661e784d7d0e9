"""A cancel that comes in the middle of a call: a write ends, is announced and recorded; a read is broken off."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest

from byline import (
    AfterAiRecordWrittenEvent,
    AgentRuntime,
    Decision,
    ModelRequest,
    Reconciliation,
    Run,
    RunStatus,
    StepKind,
    TerminationReason,
    Tool,
    ToolContext,
    ToolEffect,
    ToolError,
    ToolResult,
    UncertaintyReason,
    tool,
)
from byline.models.scripted import Reply, Turn
from byline.testing import ScriptedModel, call
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import unknown, waiting
from tests.kernel.stopping import ADD, READ, SET, WHENCE, Hold, Whence, cancel, kinds, outcomes
from tests.kernel.writers import TURNS, WRITE, WRITES, async_writer, writer, written

LOOK = call("look")
Form = Literal["sync", "async"]


def held_writer(host: Host, effect: ToolEffect, form: Form, hold: Hold) -> Tool:
    """A tool that writes, and stops behind its write."""
    return writer(host, effect, hold.end) if form == "sync" else async_writer(host, effect, hold.end_on_loop)


async def decide_in_background(runtime: AgentRuntime, run: Run) -> "asyncio.Task[Run]":
    """Approve a run in a task of its own."""
    return asyncio.create_task(runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB))


@pytest.mark.promise("P22", "P9", "P19")
@pytest.mark.report(28)
@pytest.mark.parametrize("whence", WHENCE)
@pytest.mark.parametrize("form", ["sync", "async"])
@pytest.mark.parametrize("effect", WRITES)
async def test_of_a_write(host: Host, effect: ToolEffect, form: Form, whence: Whence) -> None:
    hold = Hold()
    model = ScriptedModel([[WRITE, READ, ADD], "Done."])
    tools = [held_writer(host, effect, form, hold), *host.tools()]
    async with host.runtime(model, tools=tools) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        deciding = await decide_in_background(runtime, run)
        await hold.is_reached()
        for _ in range(2):  # to ask again changes nothing
            asked = await cancel(host, runtime, whence, run.run_id)
            assert (asked.status, asked.cancel_requested) == (RunStatus.RUNNING, True)
        assert not deciding.done()
        hold.let_go()
        ended = await deciding
        assert (ended.status, ended.reason, ended.output) == (RunStatus.CANCELLED, TerminationReason.CANCELLED, None)
        assert await outcomes(runtime, run.run_id) == [
            ("write", "succeeded"), ("read_page", "cancelled"), ("add_element", "cancelled"),
        ]  # fmt: skip
        assert [fact.correlation_id for fact in await runtime.writes()] == [run.run_id]
        assert host.heard() == [("pages:42", "updated")]
        assert (host.executions("write"), host.executions()) == (1, 1)
        assert len(model.requests) == 1


@pytest.mark.promise("P22", "P10")
@pytest.mark.report(28)
@pytest.mark.parametrize("effect", WRITES)
async def test_of_a_write_that_says_it_wrote_nothing(host: Host, effect: ToolEffect) -> None:
    hold = Hold()

    def refuse(_context: ToolContext) -> ToolResult:
        hold.wait()
        raise ToolError("This page cannot be changed.")

    async with host.runtime(ScriptedModel(TURNS), tools=[writer(host, effect, refuse)]) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        deciding = await decide_in_background(runtime, run)
        await hold.is_reached()
        await cancel(host, runtime, "here", run.run_id)
        hold.let_go()
        assert (await deciding).status is RunStatus.CANCELLED
        assert await outcomes(runtime, run.run_id) == [("write", "failed")]
        assert (host.heard(), await runtime.writes()) == ([], [])


@pytest.mark.promise("P22", "P9")
@pytest.mark.parametrize("whence", WHENCE)
@pytest.mark.parametrize("effect", WRITES)
async def test_of_a_write_whose_outcome_nobody_knows(host: Host, effect: ToolEffect, whence: Whence) -> None:
    """A cancelled run may not be silent of it; and an idempotent write is not tried again after the cancel."""
    hold = Hold()

    def break_down(_context: ToolContext) -> ToolResult:
        hold.wait()
        raise ConnectionError("in the middle")

    async with host.runtime(ScriptedModel(TURNS), tools=[writer(host, effect, break_down)]) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        deciding = await decide_in_background(runtime, run)
        await hold.is_reached()
        await cancel(host, runtime, whence, run.run_id)
        hold.let_go()
        ended = await deciding
        idempotent = effect is ToolEffect.IDEMPOTENT_WRITE
        why = UncertaintyReason.NOT_REPEATABLE if idempotent else UncertaintyReason.RAISED
        assert unknown(ended).reason is why
        assert (ended.cancel_requested, host.executions()) == (True, 1)

        ended = await runtime.reconcile(run.run_id, Reconciliation.leave_it(unknown(ended).digest), actor=BOB)
        assert ended.status is RunStatus.CANCELLED
        assert await outcomes(runtime, run.run_id) == [("write", "left")]


@pytest.mark.promise("P22")
@pytest.mark.report(28)
@pytest.mark.parametrize("whence", WHENCE)
@pytest.mark.parametrize("form", ["sync", "async"])
async def test_of_reads(host: Host, form: Form, whence: Whence) -> None:
    """Two run side by side: one has ended and keeps its result, one is broken off; a thread is left to itself."""
    hold = Hold()

    @tool(effect=ToolEffect.READ_ONLY)
    def look(context: ToolContext) -> ToolResult:
        """Look."""
        hold.wait()
        return ToolResult.text("Seen.")

    @tool(effect=ToolEffect.READ_ONLY, name="look")
    async def look_on_loop(context: ToolContext) -> ToolResult:
        """Look."""
        await hold.on_loop()
        return ToolResult.text("Seen.")

    tools = [look if form == "sync" else look_on_loop, *host.tools()]
    model = ScriptedModel([[READ, LOOK], "Done."])
    async with host.runtime(model, tools=tools, beat=0.05) as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        executing = asyncio.create_task(runtime.execute(run.run_id))
        await hold.is_reached()
        async with asyncio.timeout(5):
            while StepKind.TOOL not in await kinds(runtime, run.run_id):  # noqa: ASYNC110 - it is in the store
                await asyncio.sleep(0.005)
            await cancel(host, runtime, whence, run.run_id)
            assert (await executing).status is RunStatus.CANCELLED
        hold.let_go()
        assert await outcomes(runtime, run.run_id) == [("read_page", "succeeded"), ("look", "cancelled")]
        assert len(model.requests) == 1


@pytest.mark.promise("P22")
@pytest.mark.report(30)
async def test_that_a_tool_makes_a_result_of(host: Host) -> None:
    """A read swallows its cancellation and answers: no such answer goes on to the model."""
    hold = Hold()

    @tool(effect=ToolEffect.READ_ONLY)
    async def look(context: ToolContext) -> ToolResult:
        """Look."""
        try:
            await hold.on_loop()
        except asyncio.CancelledError:
            return ToolResult.text("I was cancelled.")
        raise AssertionError

    async with host.runtime(model := ScriptedModel([[LOOK], "Done."]), tools=[look]) as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        executing = asyncio.create_task(runtime.execute(run.run_id))
        await hold.is_reached()
        await cancel(host, runtime, "here", run.run_id)
        assert (await executing).status is RunStatus.CANCELLED
        assert await outcomes(runtime, run.run_id) == [("look", "cancelled")]
        assert len(model.requests) == 1


async def _swallows(hold: Hold) -> Reply:
    try:
        await hold.on_loop()
    except asyncio.CancelledError:
        return "I was cancelled."
    raise AssertionError


async def _goes_on(hold: Hold) -> Reply:
    try:
        await hold.on_loop()
    except asyncio.CancelledError:
        return [READ, SET]
    raise AssertionError


async def _makes_an_error_of_it(hold: Hold) -> Reply:
    try:
        await hold.on_loop()
    except asyncio.CancelledError:
        raise ConnectionError("the line was cut") from None
    raise AssertionError


@pytest.mark.promise("P22")
@pytest.mark.report(30)
@pytest.mark.parametrize("answers", [_swallows, _goes_on, _makes_an_error_of_it])
async def test_that_a_model_makes_an_answer_of(host: Host, answers: Callable[[Hold], Awaitable[Reply]]) -> None:
    hold = Hold()

    async def turn(_request: ModelRequest) -> Reply:
        return await answers(hold)

    async with host.runtime(model := ScriptedModel([turn, "Done."])) as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        executing = asyncio.create_task(runtime.execute(run.run_id))
        await hold.is_reached()
        await cancel(host, runtime, "here", run.run_id)
        assert (await executing).status is RunStatus.CANCELLED
        assert host.executions() == 0
        assert len(model.requests) == 1


@pytest.mark.promise("P10", "P22")
@pytest.mark.report(30)
@pytest.mark.parametrize("effect", WRITES)
async def test_that_nobody_asked_for(host: Host, effect: ToolEffect) -> None:
    """A tool raises a CancelledError of its own: that ends no caller, and says as little as any other exception."""

    def give_up(_context: ToolContext) -> ToolResult:
        raise asyncio.CancelledError

    async with host.runtime(TURNS, tools=[writer(host, effect, give_up)]) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert unknown(run).reason is UncertaintyReason.RAISED
        assert host.executions() == (2 if effect is ToolEffect.IDEMPOTENT_WRITE else 1)


@pytest.mark.promise("P22", "P21")
@pytest.mark.report(30)
async def test_that_only_the_model_raised(host: Host) -> None:
    """A model's adapter lets a CancelledError of its own out: the caller is not cancelled, and the run is not lost."""
    turns: list[Turn] = [asyncio.CancelledError(), "Done."]
    async with host.runtime(turns) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        assert (run.status, run.reason) == (RunStatus.DEAD_LETTER, TerminationReason.NOT_RETRYABLE)
    async with host.runtime(["Done."]) as runtime:
        assert (await runtime.retry(run.run_id)).output == "Done."


@pytest.mark.promise("P22")
async def test_by_a_listener_of_its_own_write(host: Host) -> None:
    """Who is told of a write may find that it was one too many."""
    runtimes: list[AgentRuntime] = []

    def object_to(event: AfterAiRecordWrittenEvent) -> None:
        runtimes[0].sync.cancel(event.correlation_id, actor=ALICE)

    async with host.runtime([[SET, ADD], "Done."], listeners=[object_to, host.listen]) as runtime:
        runtimes.append(runtime)
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert run.status is RunStatus.CANCELLED
        assert await outcomes(runtime, run.run_id) == [("set_description", "succeeded"), ("add_element", "cancelled")]
        assert host.heard() == [("pages:42", "updated")]


@pytest.mark.promise("P22")
@pytest.mark.parametrize("effect", [ToolEffect.READ_ONLY, ToolEffect.IDEMPOTENT_WRITE])
async def test_by_a_tool_of_its_own_run(host: Host, effect: ToolEffect) -> None:
    runtimes: list[AgentRuntime] = []

    @tool(effect=effect, approval=True)
    async def write(context: ToolContext, text: str) -> ToolResult:
        """Write."""
        assert context.run is not None
        asked = await runtimes[0].cancel(context.run, actor=ALICE)
        assert asked.cancel_requested
        return ToolResult.text("Done.") if effect is ToolEffect.READ_ONLY else written(context)

    async with host.runtime(model := ScriptedModel([[WRITE], "Done."]), tools=[write]) as runtime:
        runtimes.append(runtime)
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        async with asyncio.timeout(5):
            run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert run.status is RunStatus.CANCELLED
        assert len(model.requests) == 1
        assert len(host.heard()) == (0 if effect is ToolEffect.READ_ONLY else 1)
