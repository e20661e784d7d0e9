"""A bare `ToolLoop`, without a persisted run: it gates all the same, and announces nothing (P7)."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from byline import (
    AfterAiRecordWrittenEvent,
    Approve,
    CallVerdict,
    Conversation,
    Deny,
    LoopRun,
    ReconcileVerdict,
    TerminationReason,
    Toolbox,
    ToolContext,
    ToolEffect,
    ToolLoop,
    ToolResult,
    UncertaintyReason,
    UserMessage,
    WriteKind,
)
from byline.approval.fence import FenceVerdict
from byline.driving import AboutToWrite, Answered, CallOutcome, Ended, Finished, LoopStep, Suspended, Uncertain
from byline.models.messages import Message
from byline.models.scripted import Turn
from byline.testing import RecordingDispatcher, ScriptedModel, call
from byline.tools.result import WriteTarget
from tests.host import ALICE, BOB, Host
from tests.kernel.writers import PAGE, WRITE, WRITES, writer

READ = call("read_page", page_id=42)
ADD = call("add_element", page_id=42, text="Come in.")
TURNS: list[Turn] = [[READ], [READ, ADD], "Done."]
ASKED = UserMessage("Please do.")


class Bare:
    """A consumer that holds the conversation itself and has no store."""

    def __init__(self, host: Host, turns: list[Turn]) -> None:
        self.heard = RecordingDispatcher()
        self.loop = ToolLoop(ScriptedModel(turns), Toolbox(host.tools()), dispatcher=self.heard)

    async def drive(self, conversation: Conversation, run: LoopRun | None = None) -> list[LoopStep]:
        return [step async for step in self.loop.drive(conversation, run or LoopRun(actor=ALICE))]


async def suspended(bare: Bare) -> tuple[Conversation, Suspended]:
    """Drive until the turn waits, and return where to go on from."""
    steps = await bare.drive(Conversation(messages=(ASKED,)))
    answered, finished, waiting = steps
    assert isinstance(answered, Answered)
    assert isinstance(finished, Finished)
    assert isinstance(waiting, Suspended)
    assert waiting.message is not None
    results = tuple(report.message for report in finished.reports)
    heard: tuple[Message, ...] = (ASKED, answered.message, *results, waiting.message)
    return Conversation(messages=heard, turn=waiting.turn, suspensions=waiting.turn.suspension), waiting


def verdict(call_id: UUID, said: Approve | Deny) -> Mapping[UUID, CallVerdict]:
    return {call_id: CallVerdict(call_id, said, BOB.id, datetime.now(UTC))}


def with_verdict(conversation: Conversation, said: Mapping[UUID, CallVerdict]) -> Conversation:
    return Conversation(
        messages=conversation.messages, turn=conversation.turn, suspensions=conversation.suspensions, verdicts=said
    )


@pytest.mark.promise("P7", "P11")
async def test_a_bare_loop_yields_suspended_and_runs_no_write(host: Host) -> None:
    bare = Bare(host, TURNS)
    conversation, waiting = await suspended(bare)

    assert [(c.tool, c.needs_decision) for c in waiting.turn.calls] == [("read_page", False), ("add_element", True)]
    assert host.executions() == 1  # the reading turn before it
    assert (host.elements(), bare.heard.events) == ([], [])
    assert conversation.turn is waiting.turn


@pytest.mark.promise("P7", "P11")
@pytest.mark.parametrize("said", ["nothing", "of another call", "of the read"])
async def test_without_a_verdict_on_the_write_it_waits_again(host: Host, said: str) -> None:
    bare = Bare(host, TURNS)
    conversation, waiting = await suspended(bare)
    read, _ = waiting.turn.calls
    on: dict[str, Mapping[UUID, CallVerdict]] = {
        "nothing": {},
        "of another call": verdict(uuid4(), Approve()),
        "of the read": verdict(read.id, Approve()),
    }

    (again,) = await bare.drive(with_verdict(conversation, on[said]))

    assert isinstance(again, Suspended)
    assert again.turn.suspension == waiting.turn.suspension + 1
    assert again.turn.digest != waiting.turn.digest
    assert host.elements() == []


@pytest.mark.promise("P7", "P11")
async def test_with_an_approval_it_writes_and_announces_nothing(host: Host) -> None:
    bare = Bare(host, TURNS)
    conversation, waiting = await suspended(bare)
    write = waiting.turn.calls[1]

    steps = await bare.drive(with_verdict(conversation, verdict(write.id, Approve())))

    read, about, wrote, ended = steps
    assert isinstance(read, Finished)
    assert isinstance(about, AboutToWrite)
    assert (about.fence.call_id, about.fence.attempt) == (write.id, 1)
    assert isinstance(wrote, Finished)
    assert wrote.reports[0].written is not None
    assert isinstance(ended, Ended)
    assert (ended.message.answer.text, ended.reason) == ("Done.", TerminationReason.ANSWERED)
    assert host.elements() == ["Come in."]
    assert bare.heard.events == []


@pytest.mark.promise("P7")
async def test_with_a_denial_it_does_not_write(host: Host) -> None:
    bare = Bare(host, TURNS)
    conversation, waiting = await suspended(bare)
    write = waiting.turn.calls[1]

    steps = await bare.drive(with_verdict(conversation, verdict(write.id, Deny("Not now."))))

    outcomes = [report.outcome for step in steps if isinstance(step, Finished) for report in step.reports]
    assert outcomes == [CallOutcome.SUCCEEDED, CallOutcome.DENIED]
    assert isinstance(steps[-1], Ended)
    assert (host.elements(), bare.heard.events) == ([], [])


@pytest.mark.promise("P7", "P19")
async def test_a_consumer_that_stops_asking_at_the_fence_lets_nothing_run(host: Host) -> None:
    """The write runs only when the driver asks on."""
    bare = Bare(host, TURNS)
    conversation, waiting = await suspended(bare)
    approved = with_verdict(conversation, verdict(waiting.turn.calls[1].id, Approve()))
    before = host.executions("add_element")

    async with aclosing(bare.loop.drive(approved, LoopRun(actor=ALICE))) as steps:
        async for step in steps:
            if isinstance(step, AboutToWrite):
                break

    assert host.executions("add_element") == before == 0


@pytest.mark.promise("P7")
async def test_a_loop_that_has_ended_yields_no_more(host: Host) -> None:
    bare = Bare(host, TURNS)
    steps = bare.loop.drive(Conversation(messages=(ASKED,)), LoopRun(actor=ALICE))
    assert isinstance([step async for step in steps][-1], Suspended)
    with pytest.raises(StopAsyncIteration):
        await anext(steps)
    assert host.elements() == []


@pytest.mark.promise("P1", "P7")
@pytest.mark.parametrize("effect", WRITES)
async def test_a_bare_loop_takes_a_word_on_an_uncertain_write(host: Host, effect: ToolEffect) -> None:
    def fail(context: ToolContext) -> ToolResult:
        raise ConnectionError

    heard = RecordingDispatcher()
    loop = ToolLoop(ScriptedModel([[WRITE], "Done."]), Toolbox([writer(host, effect, fail)]), dispatcher=heard)
    run = LoopRun(actor=ALICE)
    (waiting,) = [step async for step in loop.drive(Conversation(messages=(ASKED,)), run)]
    assert isinstance(waiting, Suspended)
    assert waiting.message is not None
    approved = Conversation(
        messages=(ASKED, waiting.message),
        turn=waiting.turn,
        verdicts=verdict(waiting.turn.calls[0].id, Approve()),
    )
    *_, unknown = [step async for step in loop.drive(approved, run)]
    assert isinstance(unknown, Uncertain)
    assert unknown.reason is UncertaintyReason.RAISED
    executions = host.executions()

    landed = FenceVerdict(ReconcileVerdict.LANDED, WriteTarget(PAGE, WriteKind.UPDATED), BOB.id)
    known = Conversation(
        messages=approved.messages,
        turn=approved.turn,
        verdicts=approved.verdicts,
        fence=unknown.fence,
        known=landed,
    )
    told, ended = [step async for step in loop.drive(known, run)]

    assert isinstance(told, Finished)
    assert told.reports[0].written == landed.target
    assert isinstance(ended, Ended)
    assert host.executions() == executions
    assert heard.events == []


@pytest.mark.promise("P6", "P7")
async def test_a_loop_with_a_run_announces_and_the_cancellation_of_its_task_passes(host: Host) -> None:
    """Nothing but the run's id makes the difference; what is not contained is the driver's own cancellation."""
    told: list[AfterAiRecordWrittenEvent] = []
    begun = asyncio.Event()

    class Hanging:
        async def dispatch(self, event: AfterAiRecordWrittenEvent, /) -> None:
            told.append(event)
            begun.set()
            await asyncio.Event().wait()

    bare = Bare(host, TURNS)
    bare.loop = ToolLoop(ScriptedModel(TURNS), Toolbox(host.tools()), dispatcher=Hanging())
    conversation, waiting = await suspended(bare)
    approved = with_verdict(conversation, verdict(waiting.turn.calls[1].id, Approve()))
    run = LoopRun(actor=ALICE, run_id=uuid4())
    driving = asyncio.create_task(bare.drive(approved, run))
    await begun.wait()

    driving.cancel()

    with pytest.raises(asyncio.CancelledError):
        await driving
    assert driving.cancelled()
    assert [event.correlation_id for event in told] == [run.run_id]
