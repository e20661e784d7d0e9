"""A cancel that comes before the tool: nothing starts after it, and every call has a result."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal
from uuid import UUID

import pytest

from byline import (
    AgentRuntime,
    Approve,
    Decision,
    ModelError,
    ModelRequest,
    RunFinished,
    RunStatus,
    StepKind,
    TerminationReason,
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    tool,
)
from byline.models.scripted import Reply, Turn
from byline.store.protocol import Change, Claim, HandBack
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import LEASE, Clock, die_after_claim, left_queued, store_of, until_left, waiting
from tests.kernel.stopping import ADD, READ, SET, WHENCE, Hold, Whence, cancel, outcomes, whoever

TURN: list[Turn] = [[SET, READ, ADD], "Done."]
NONE_RAN = [("set_description", "cancelled"), ("read_page", "cancelled"), ("add_element", "cancelled")]
BEAT = 0.05
"""Seconds between heartbeats, where one of them is to bring the news of a cancel."""


async def is_cancelled(host: Host, runtime: AgentRuntime, run_id: UUID, model: ScriptedModel, *, asked: int) -> None:
    """The run is cancelled for good: nothing of it was executed or announced, and its model is asked no more."""
    run = await runtime.get_run(run_id)
    assert (run.status, run.reason, run.output) == (RunStatus.CANCELLED, TerminationReason.CANCELLED, None)
    assert (await runtime.execute(run_id)).status is RunStatus.CANCELLED
    assert run_id not in (await runtime.recover()).executed
    assert (host.executions(), host.heard(), await runtime.writes()) == (0, [], [])
    assert len(model.requests) == asked


@pytest.mark.promise("P22", "P12")
@pytest.mark.report(18, 28, 29)
@pytest.mark.parametrize("whence", WHENCE)
async def test_of_a_waiting_turn(host: Host, whence: Whence) -> None:
    async with host.runtime(model := ScriptedModel(TURN)) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        assert (await cancel(host, runtime, whence, run.run_id)).status is RunStatus.CANCELLED
        with pytest.raises(RunFinished):
            await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert await outcomes(runtime, run.run_id) == NONE_RAN
        await is_cancelled(host, runtime, run.run_id, model, asked=1)


@pytest.mark.promise("P22", "P12")
@pytest.mark.report(18)
async def test_of_a_turn_that_is_decided_in_part(host: Host) -> None:
    async with host.runtime(model := ScriptedModel(TURN)) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        assert run.pending is not None
        some = Decision.per_call(run.pending.digest, {run.pending.calls[0].id: Approve()})
        assert (await runtime.decide(run.run_id, some, actor=BOB)).status is RunStatus.AWAITING_APPROVAL
        assert (await runtime.cancel(run.run_id, actor=ALICE)).status is RunStatus.CANCELLED
        assert await outcomes(runtime, run.run_id) == NONE_RAN
        await is_cancelled(host, runtime, run.run_id, model, asked=1)


@pytest.mark.promise("P22", "P17")
@pytest.mark.report(18, 29)
async def test_of_a_released_turn_that_nobody_has_taken_up(host: Host) -> None:
    clock = Clock()
    run_id = await left_queued(host, TURN, clock)
    async with host.runtime(model := ScriptedModel(TURN), store=store_of(host, clock)) as runtime:
        assert (await runtime.cancel(run_id, actor=ALICE)).status is RunStatus.CANCELLED
        assert await outcomes(runtime, run_id) == NONE_RAN
        await is_cancelled(host, runtime, run_id, model, asked=0)


@pytest.mark.promise("P22", "P21")
@pytest.mark.report(18, 29)
@pytest.mark.parametrize("known", ["thought alive", "known to be dead"])
async def test_of_a_turn_whose_process_has_died(host: Host, known: str) -> None:
    """While its lease holds, nobody knows that it is dead: whoever takes the run over carries the cancel out."""
    clock = Clock()
    run_id = await left_queued(host, TURN, clock)
    die_after_claim(host, run_id, clock)
    async with host.runtime(model := ScriptedModel(TURN), store=store_of(host, clock)) as runtime:
        if known == "thought alive":
            clock.now -= LEASE
            run = await runtime.cancel(run_id, actor=ALICE)
            assert (run.status, run.cancel_requested) == (RunStatus.RUNNING, True)
            clock.now += LEASE
            assert (await runtime.recover()).executed == (run_id,)
        else:
            assert (await runtime.cancel(run_id, actor=ALICE)).status is RunStatus.CANCELLED
        assert await outcomes(runtime, run_id) == NONE_RAN
        await is_cancelled(host, runtime, run_id, model, asked=0)


@pytest.mark.promise("P22")
@pytest.mark.report(28, 29)
@pytest.mark.parametrize("whence", WHENCE)
@pytest.mark.parametrize("effect", [ToolEffect.IDEMPOTENT_WRITE, ToolEffect.NON_IDEMPOTENT_WRITE])
async def test_between_the_claim_and_the_fence(host: Host, effect: ToolEffect, whence: Whence) -> None:
    """The authority is asked last before the fence; the cancel comes while it thinks, and the fence is not set."""
    hold = Hold()
    first = SET if effect is ToolEffect.IDEMPOTENT_WRITE else ADD
    async with host.runtime(model := ScriptedModel([[first], "Done."])) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        digest = waiting(run)

        def asked(actor: object, _call: object) -> bool:
            if actor != BOB:  # the re-gate asks for the initiator first
                hold.wait()
            return False

        host.people.forbidden = asked
        deciding = asyncio.create_task(runtime.decide(run.run_id, Decision.approve(digest), actor=BOB))
        await hold.is_reached()
        cancelling = asyncio.create_task(cancel(host, runtime, whence, run.run_id))
        async with asyncio.timeout(5):
            while not (await runtime.get_run(run.run_id)).cancel_requested:  # noqa: ASYNC110 - in the store
                await asyncio.sleep(0.005)
        hold.let_go()
        assert (await deciding).status is RunStatus.CANCELLED
        assert (await cancelling).cancel_requested
        assert [outcome for _, outcome in await outcomes(runtime, run.run_id)] == ["cancelled"]
        await is_cancelled(host, runtime, run.run_id, model, asked=1)


@pytest.mark.promise("P22")
@pytest.mark.parametrize("whence", WHENCE)
@pytest.mark.parametrize("execution", ["inline", "queued"])
async def test_during_a_model_call(host: Host, execution: Literal["inline", "queued"], whence: Whence) -> None:
    """The call is broken off, at once or with the next heartbeat, and nothing of its answer is ever used."""
    hold = Hold()
    model = ScriptedModel([hold.then([READ]), "Done."])
    async with host.runtime(model, beat=BEAT, execution=execution) as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        executing = asyncio.create_task(runtime.execute(run.run_id))
        await hold.is_reached()
        await cancel(host, runtime, whence, run.run_id)
        async with asyncio.timeout(5):
            assert (await executing).status is RunStatus.CANCELLED
        assert await outcomes(runtime, run.run_id) == []
        await is_cancelled(host, runtime, run.run_id, model, asked=1)


@pytest.mark.promise("P22")
@pytest.mark.parametrize("whence", WHENCE)
async def test_during_a_preview(host: Host, whence: Whence) -> None:
    """The turn does not come to wait for anybody."""
    hold = Hold()

    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def set_description(context: ToolContext, page_id: int, description: str) -> ToolResult:
        """Set the description of a page."""
        raise AssertionError

    @set_description.preview
    def _(context: ToolContext, page_id: int, description: str) -> list[str]:
        hold.wait()
        return ["…"]

    tools: list[Tool] = [set_description]
    async with host.runtime(model := ScriptedModel([[SET], "Done."]), tools=tools, beat=BEAT) as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        executing = asyncio.create_task(runtime.execute(run.run_id))
        await hold.is_reached()
        await cancel(host, runtime, whence, run.run_id)
        async with asyncio.timeout(5):
            assert (await executing).status is RunStatus.CANCELLED
        hold.let_go()
        kinds = [step.kind for step in await runtime.list_steps(run.run_id)]
        assert kinds == [StepKind.SETTLED]
        await is_cancelled(host, runtime, run.run_id, model, asked=1)


async def _answers(hold: Hold) -> Reply:
    await hold.on_loop()
    return "Done."


async def _suspends(hold: Hold) -> Reply:
    await hold.on_loop()
    return [SET]


async def _reads(hold: Hold) -> Reply:
    await hold.on_loop()
    return [READ]


async def _fails_for_now(hold: Hold) -> Reply:
    await hold.on_loop()
    raise ConnectionError("the line is dead")


async def _fails_for_good(hold: Hold) -> Reply:
    await hold.on_loop()
    raise ModelError("no right")


@pytest.mark.promise("P22")
@pytest.mark.parametrize("answers", [_answers, _suspends, _reads, _fails_for_now, _fails_for_good])
async def test_that_a_model_call_does_not_hear_of(host: Host, answers: Callable[[Hold], Awaitable[Reply]]) -> None:
    """It was asked for elsewhere, and the model answers before the next heartbeat: whatever it says comes too late."""
    hold = Hold()

    async def turn(_request: ModelRequest) -> Reply:
        return await answers(hold)

    async with host.runtime(model := ScriptedModel([turn, "Done."])) as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        executing = asyncio.create_task(runtime.execute(run.run_id))
        await hold.is_reached()
        assert (await cancel(host, runtime, "elsewhere", run.run_id)).status is RunStatus.RUNNING
        hold.let_go()
        assert (await executing).status is RunStatus.CANCELLED
        assert {outcome for _, outcome in await outcomes(runtime, run.run_id)} <= {"cancelled"}
        await is_cancelled(host, runtime, run.run_id, model, asked=1)


@pytest.mark.promise("P22", "P21")
async def test_of_a_run_in_dead_letter(host: Host) -> None:
    async with host.runtime(model := ScriptedModel([ModelError("no right")])) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        assert run.status is RunStatus.DEAD_LETTER
        assert (await runtime.cancel(run.run_id, actor=ALICE)).status is RunStatus.CANCELLED
        await is_cancelled(host, runtime, run.run_id, model, asked=1)


class Slow(SqlStore):
    """A store that takes its time to hand a run back."""

    hold: Hold = Hold()  # each test gives its own

    def advance(self, claim: Claim, change: Change, *, at: int, revision: int) -> bool:
        """Store what a segment did."""
        if isinstance(change, HandBack):
            self.hold.wait()
        return super().advance(claim, change, at=at, revision=revision)


@pytest.mark.promise("P22")
async def test_that_comes_just_before_a_segment_is_handed_back(host: Host) -> None:
    """Its last step is stored, and the cancel comes in between: the run does not go back to the queue."""
    answering = Hold()
    store = Slow(str(store_of(host).engine.url))
    store.hold = Hold()
    async with host.runtime(model := ScriptedModel([answering.then([READ]), "Done."]), store=store) as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        executing = asyncio.create_task(runtime.execute(run.run_id))
        await answering.is_reached()
        executing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await executing
        answering.let_go()
        await store.hold.is_reached()
        async with whoever(host, runtime, "elsewhere") as other:
            assert (await other.cancel(run.run_id, actor=ALICE)).status is RunStatus.RUNNING
            store.hold.let_go()
            assert (await until_left(other, run.run_id, RunStatus.RUNNING)).status is RunStatus.CANCELLED
        await is_cancelled(host, runtime, run.run_id, model, asked=1)


@pytest.mark.promise("P22")
async def test_that_comes_while_a_segment_is_handed_back(host: Host) -> None:
    """Its caller has gone, and the run is cancelled elsewhere: it does not stay queued for somebody to find out."""
    hold = Hold()
    async with host.runtime(model := ScriptedModel([hold.then([READ]), "Done."])) as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        executing = asyncio.create_task(runtime.execute(run.run_id))
        await hold.is_reached()
        executing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await executing
        await cancel(host, runtime, "elsewhere", run.run_id)
        hold.let_go()
        assert (await until_left(runtime, run.run_id, RunStatus.RUNNING)).status is RunStatus.CANCELLED
        await is_cancelled(host, runtime, run.run_id, model, asked=1)
