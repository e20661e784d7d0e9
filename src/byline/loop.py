"""The loop between a model and its tools, and the one place where tools execute.

`ToolLoop.drive` is an async generator: it yields each step, and whoever drives it stores the step
before asking for the next. So the loop knows no store, and every finished step is durable before
the next begins (P19). A bare consumer needs no store at all: it gets the same gate, and nothing is
announced, since without a persisted run there is no correlation id (P7).
"""

import asyncio
import copy
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from uuid import UUID

from uuid_utils.compat import uuid7

from byline.announcing import AfterAiRecordWrittenEvent, EventDispatcher, contained
from byline.approval.decision import Deny, ReconcileVerdict
from byline.approval.fence import Fence, FenceVerdict
from byline.approval.prepare import PreparedCalls, prepare, recheck, with_previews
from byline.approval.turn import PendingCall, PendingTurn, RejectedCall
from byline.driving import (
    AboutToWrite,
    Answered,
    CallOutcome,
    CallReport,
    Conversation,
    Ended,
    Finished,
    Lied,
    LoopRun,
    LoopStep,
    ModelFailed,
    Suspended,
    Uncertain,
    announced,
)
from byline.errors import ModelUnreachable, ToolContractBroken, ToolError
from byline.hosted import goes_on, where_raised, within, words_of
from byline.models.messages import (
    AssistantMessage,
    EmptyAnswer,
    Message,
    ModelAnswer,
    ModelRequest,
    ToolMessage,
)
from byline.models.protocol import ChatModel
from byline.models.transcript import in_call_order, open_calls, rounds_since_prompt, storable
from byline.runs.status import TerminationReason, UncertaintyReason
from byline.telemetry import UNOBSERVED, observe_announcement, observe_chat, observe_tool
from byline.tools.context import ToolContext
from byline.tools.effect import ToolEffect
from byline.tools.protocol import Tool
from byline.tools.result import ToolResult
from byline.tools.toolbox import Toolbox

_log = logging.getLogger(__name__)

MAX_ATTEMPTS_IN_PLACE = 2
"""How often one segment runs an idempotent write whose outcome it does not know (P10)."""
CANCEL_PATIENCE = 0.5
"""Seconds a cancelled call gets to end before it is left to itself."""

NIL = UUID(int=0)


@dataclass(slots=True)
class _Attempt:
    """How far one attempt has come."""

    started: bool = False
    returned: bool = False


@dataclass(frozen=True, slots=True)
class _Raised:
    """What a tool raised, kept as a value: a SystemExit that escapes a task would end the event loop."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class _WroteNothing:
    """An attempt that says of itself that it wrote nothing: a ToolError, or an error result."""

    text: str


@dataclass(frozen=True, slots=True)
class _Unknown:
    """An attempt whose outcome is not known. `running`: something of it still runs; `raised`: the exception's type."""

    reason: UncertaintyReason
    detail: str
    running: bool = False
    raised: str | None = None


class ToolLoop:
    """Asks a model, gates its calls, executes them at one place, and announces what they wrote.

    Args:
        model: who answers.
        toolbox: what is offered.
        instructions: what the model is told first.
        max_rounds: how many answers may call tools; then the model closes without tools.
        model_timeout: seconds that one answer may take, or None.
        dispatcher: who is told of writes; None tells nobody.
    """

    def __init__(
        self,
        model: ChatModel,
        toolbox: Toolbox,
        *,
        instructions: str = "",
        max_rounds: int = 20,
        model_timeout: float | None = None,
        dispatcher: EventDispatcher | None = None,
    ) -> None:
        self._model = model
        self._toolbox = toolbox
        self._instructions = instructions
        self._max_rounds = max_rounds
        self._model_timeout = model_timeout
        self._dispatcher = None if dispatcher is None else contained(dispatcher)

    async def drive(self, conversation: Conversation, run: LoopRun) -> AsyncGenerator[LoopStep, None]:
        """Go on with a conversation, a step at a time.

        The driver stores each step before it asks for the next. A write runs only after `AboutToWrite` was
        yielded and the driver asked on. Without a verdict on a call that needs one, the turn waits (again).

        Raises:
            ClaimLost: `run.guard` said so; nothing more was executed. Whatever else `run`'s functions raise.
        """
        messages = list(conversation.messages)
        opened = open_calls(messages)
        if opened is not None:
            async with aclosing(self._resume_turn(opened, conversation, messages, run)) as steps:
                async for step in steps:
                    yield step
                    if not isinstance(step, AboutToWrite | Finished):
                        return
        suspensions = conversation.suspensions
        while True:
            began = time.monotonic()
            closing = rounds_since_prompt(messages) >= self._max_rounds
            try:
                message = await self._ask(messages, closing=closing)
            except BaseException as error:
                if goes_on(error):
                    raise
                yield ModelFailed(error)  # whatever a model's adapter raises, a CancelledError of its own too
                return
            if closing or not message.call_ids:
                reason = TerminationReason.MAX_ROUNDS if closing else TerminationReason.ANSWERED
                yield Ended(message, reason, time.monotonic() - began)
                return
            prepared = prepare(message, self._toolbox)
            if prepared.waits:
                turn = await self._turn(prepared, suspensions + 1, run)
                yield Suspended(turn, message, time.monotonic() - began)
                return
            yield Answered(message, time.monotonic() - began)
            messages.append(message)
            async with aclosing(self._run_turn(message, prepared, conversation, messages, run)) as steps:
                async for step in steps:
                    yield step
                    if not isinstance(step, AboutToWrite | Finished):
                        return

    async def _ask(self, messages: Sequence[Message], *, closing: bool) -> AssistantMessage:
        """Ask the model once, and mint the ids of its calls."""
        offered = () if closing else self._toolbox.offered()
        request = ModelRequest(self._instructions, tuple(in_call_order(messages)), offered)
        with observe_chat(self._model, request) as asked:
            try:
                answer = await within(self._model_timeout, self._model.answer(request))
            except TimeoutError:
                raise ModelUnreachable("the model did not answer in time") from None
            if not isinstance(answer, ModelAnswer):
                raise EmptyAnswer(f"the model's adapter returned a {type(answer).__name__}, not a ModelAnswer")
            answer = storable(replace(answer, calls=()) if closing else answer)
            if not answer.calls and not answer.text.strip() and not closing:
                raise EmptyAnswer("the model answered with neither words nor calls")
            message = AssistantMessage(answer, tuple(uuid7() for _ in answer.calls))
            asked.answered(message)
            return message

    async def _turn(self, prepared: PreparedCalls, suspension: int, run: LoopRun) -> PendingTurn:
        contexts = {call.id: run.context(call.id) for call in prepared.calls}
        return PendingTurn(
            run_id=run.run_id or NIL,
            suspension=suspension,
            agent=run.agent,
            second_approver=run.second_approver,
            approval_ttl=run.approval_ttl,
            calls=await with_previews(prepared.calls, self._toolbox, contexts),
            rejected=prepared.rejected,
        )

    async def _resume_turn(
        self, message: AssistantMessage, conversation: Conversation, messages: list[Message], run: LoopRun
    ) -> AsyncGenerator[LoopStep, None]:
        """Go on within a turn: from its decision, or from where a segment left it."""
        answered = {said.call_id for said in messages if isinstance(said, ToolMessage)}
        stored, fence = conversation.turn, conversation.fence
        if stored is None or not stored.holds(message.call_ids):
            stored, prepared = None, prepare(message, self._toolbox, answered=answered)
        else:
            prepared = PreparedCalls(
                tuple(call for call in stored.calls if call.id not in answered),
                tuple(call for call in stored.rejected if call.id not in answered),
            )
        if fence is not None:
            async with aclosing(self._resume_write(fence, prepared, conversation, run)) as steps:
                async for step in steps:
                    yield step
                    if isinstance(step, Finished):
                        messages.extend(report.message for report in step.reports)
                    elif isinstance(step, Uncertain):
                        return
            answered.add(fence.call_id)
            prepared = PreparedCalls(
                tuple(call for call in prepared.calls if call.id != fence.call_id), prepared.rejected
            )
        changed = recheck(stored, self._toolbox, answered=answered) if stored is not None else None
        undecided = any(c.needs_decision and c.id not in conversation.verdicts for c in prepared.calls)
        if changed is not None or undecided:
            prepared = changed or prepared
            refused = {c.id for c in prepared.calls if _is_denied(c, conversation)}
            if refused and prepared.waits:  # a denial stands: it is not asked again
                denied = PreparedCalls(tuple(c for c in prepared.calls if c.id in refused), ())
                async with aclosing(self._run_turn(message, denied, conversation, messages, run)) as steps:
                    async for step in steps:
                        yield step
                kept = tuple(c for c in prepared.calls if c.id not in refused)
                prepared = PreparedCalls(kept, prepared.rejected)
            if prepared.waits:
                yield Suspended(await self._turn(prepared, conversation.suspensions + 1, run), None)
                return
        async with aclosing(self._run_turn(message, prepared, conversation, messages, run)) as steps:
            async for step in steps:
                yield step

    async def _run_turn(
        self,
        message: AssistantMessage,
        prepared: PreparedCalls,
        conversation: Conversation,
        messages: list[Message],
        run: LoopRun,
    ) -> AsyncGenerator[LoopStep, None]:
        """Give every call of the turn that has no result one: reads side by side, writes one after the other."""
        todo: dict[UUID, PendingCall | RejectedCall] = {call.id: call for call in prepared.calls}
        todo.update({call.id: call for call in prepared.rejected})
        reads: list[PendingCall] = []
        for call in [*(todo[call_id] for call_id in message.call_ids if call_id in todo), None]:
            if isinstance(call, PendingCall) and call.effect is ToolEffect.READ_ONLY:
                reads.append(call)
                continue
            batches: list[AsyncGenerator[LoopStep, None]] = [self._read_all(reads, conversation, run)]
            if isinstance(call, RejectedCall):
                batches.append(_reject(call))
            elif call is not None:
                batches.append(self._write(call, conversation, run))
            for batch in batches:
                async with aclosing(batch) as steps:
                    async for step in steps:
                        yield step
                        if isinstance(step, Finished):
                            messages.extend(report.message for report in step.reports)
                        elif not isinstance(step, AboutToWrite):
                            return
            reads = []

    async def _settled_before_running(
        self, call: PendingCall, conversation: Conversation, run: LoopRun
    ) -> CallReport | Tool:
        """Return the tool if the call may run, else the result it has without running."""
        approver_id: str | None = None
        decided = conversation.verdicts.get(call.id)
        if decided is not None:
            if isinstance(decided.verdict, Deny):
                why = f" They say: {decided.verdict.reason}" if decided.verdict.reason else ""
                text = f"A person refused this call; it was not executed. Do not make it again unchanged.{why}"
                return CallReport.of(call, CallOutcome.DENIED, text, by=decided.actor_id)
            approver_id = decided.actor_id
        elif call.needs_decision:  # it waits before it comes here; this is the last guard behind that
            return CallReport.of(call, CallOutcome.REFUSED, "Not executed: nobody has approved this call.")
        tool = self._toolbox.get(call.tool)
        if tool is None:
            return CallReport.of(call, CallOutcome.REFUSED, "Not executed: this tool is not offered any more.")
        refusal = await run.refusal(call, approver_id) if call.needs_decision else None
        if refusal is not None:
            return CallReport.of(call, CallOutcome.REFUSED, refusal)
        return tool

    async def _read_all(
        self, calls: Sequence[PendingCall], conversation: Conversation, run: LoopRun
    ) -> AsyncGenerator[LoopStep, None]:
        """Run reads side by side; each is yielded as it ends, so that none runs again after a crash."""
        running = {asyncio.create_task(self._read(call, conversation, run)) for call in calls}
        for task in running:  # the first that raises ends the batch: asyncio need not report the others
            task.add_done_callback(lambda read: read.cancelled() or read.exception())
        try:
            while running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                reports = tuple(task.result() for task in done)
                if any(report.written is not None for report in reports):
                    yield Lied(reports)
                    return
                yield Finished(reports)
        finally:
            for task in running:
                task.cancel()

    async def _read(self, call: PendingCall, conversation: Conversation, run: LoopRun) -> CallReport:
        tool = await self._settled_before_running(call, conversation, run)
        if isinstance(tool, CallReport):
            return tool
        fence = Fence(call.id, call.tool, ToolEffect.READ_ONLY, 1)
        began = time.monotonic()
        outcome = await self._attempt(call, tool, fence, run)
        seconds = time.monotonic() - began
        if isinstance(outcome, ToolResult):
            return CallReport.returned(call, outcome, attempt=1, seconds=seconds)
        text = outcome.text if isinstance(outcome, _WroteNothing) else f"The tool failed: {outcome.detail}."
        return CallReport.of(call, CallOutcome.FAILED, text, attempt=1, seconds=seconds)

    async def _write(
        self, call: PendingCall, conversation: Conversation, run: LoopRun
    ) -> AsyncGenerator[LoopStep, None]:
        tool = await self._settled_before_running(call, conversation, run)
        if isinstance(tool, CallReport):
            yield Finished((tool,))
            return
        fence = Fence(call.id, call.tool, call.effect.stricter(tool.spec.effect), 1)
        async with aclosing(self._write_fenced(call, tool, fence, run, earlier_unknown=False)) as steps:
            async for step in steps:
                yield step

    async def _resume_write(
        self, fence: Fence, prepared: PreparedCalls, conversation: Conversation, run: LoopRun
    ) -> AsyncGenerator[LoopStep, None]:
        """Take up the call whose fence stands: by its verdict, or again if it is idempotent and still allowed (P20)."""
        call = next((call for call in prepared.calls if call.id == fence.call_id), None)
        tool = self._toolbox.get(fence.tool)
        known = conversation.known
        if call is None:
            yield Uncertain(fence, UncertaintyReason.NOT_REPEATABLE, "the call cannot be read back")
            return
        if known is not None and known.verdict is not ReconcileVerdict.RUN_AGAIN:
            yield Finished((await self._take_word(call, fence, known, run),))
            return
        approver_id = known.actor_id if known is not None else _approver(call, conversation)
        stopped = await self._why_not_again(call, tool, fence, approver_id, run, told=known is not None)
        if stopped is not None and known is not None:  # it did not land, says the verdict: nothing is uncertain
            yield Finished((CallReport.of(call, CallOutcome.REFUSED, stopped[1], by=known.actor_id),))
        elif stopped is not None or tool is None:
            reason, detail = stopped or (UncertaintyReason.NOT_REPEATABLE, "the tool is gone")
            yield Uncertain(fence, reason, detail)
        else:
            again = replace(fence, effect=fence.effect.stricter(tool.spec.effect), attempt=fence.attempt + 1)
            async with aclosing(self._write_fenced(call, tool, again, run, earlier_unknown=known is None)) as steps:
                async for step in steps:
                    yield step

    async def _why_not_again(
        self,
        call: PendingCall,
        tool: Tool | None,
        fence: Fence,
        approver_id: str | None,
        run: LoopRun,
        *,
        told: bool,
    ) -> tuple[UncertaintyReason, str] | None:
        """Say why a fenced write may not be run again, if so. `told`: a person said that it did not land."""
        if not told and approver_id is None:
            return UncertaintyReason.NOT_REPEATABLE, "nobody is known to have approved it"
        if not told and fence.effect is ToolEffect.NON_IDEMPOTENT_WRITE:
            return UncertaintyReason.INTERRUPTED, "the process ended in a write that must not be repeated"
        if tool is None:
            return UncertaintyReason.NOT_REPEATABLE, "Not executed: this tool is not offered any more."
        if not told and tool.spec.effect.is_stricter_than(fence.effect):
            return UncertaintyReason.INTERRUPTED, "the tool is no longer declared idempotent"
        if recheck(_turn_of(call, run), self._toolbox, answered=()) is not None:
            return (
                UncertaintyReason.NOT_REPEATABLE,
                "Not executed: the tool has changed since this was approved.",
            )
        refusal = await run.refusal(call, approver_id)
        return None if refusal is None else (UncertaintyReason.NOT_REPEATABLE, refusal)

    async def _take_word(self, call: PendingCall, fence: Fence, known: FenceVerdict, run: LoopRun) -> CallReport:
        """Pass a known outcome through the one place: announced if it landed, never executed."""
        word = "A person" if known.actor_id is not None else "A check of the record"
        if known.target is None:
            text = f"{word} found that this call did not land. It was left so: do not make it again."
            result = ToolResult.error(text)
        else:
            text = f"{word} found that this call landed: {known.target.record} was {known.target.kind}."
            result = ToolResult.text(text).with_write_target(known.target.record, known.target.kind)
        context = run.context(call.id, attempt=fence.attempt)
        target = result.target
        with UNOBSERVED if target is None else observe_announcement(target.record, target.kind):
            await self.invoke(call, result, context, run, _Attempt())
        if known.target is None:
            return CallReport.of(call, CallOutcome.LEFT, text, by=known.actor_id, attempt=fence.attempt)
        return replace(CallReport.returned(call, result, attempt=fence.attempt, seconds=0.0), by=known.actor_id)

    async def _write_fenced(
        self, call: PendingCall, tool: Tool, fence: Fence, run: LoopRun, *, earlier_unknown: bool
    ) -> AsyncGenerator[LoopStep, None]:
        """Fence and run a write until its outcome is known, or may not be found out by running it again."""
        last = fence.attempt + MAX_ATTEMPTS_IN_PLACE - 1
        unknown: _Unknown | None = None
        while True:
            yield AboutToWrite(fence)
            began = time.monotonic()
            outcome = await self._attempt(call, tool, fence, run)
            seconds = time.monotonic() - began
            if isinstance(outcome, _WroteNothing) and not earlier_unknown:
                failed = CallReport.of(call, CallOutcome.FAILED, outcome.text, attempt=fence.attempt, seconds=seconds)
                yield Finished((failed,))
                return
            if isinstance(outcome, _WroteNothing):  # an earlier attempt may have written
                reason = unknown.reason if unknown is not None else UncertaintyReason.INTERRUPTED
                yield Uncertain(fence, reason, "an earlier attempt may have landed; the last one wrote nothing")
                return
            if isinstance(outcome, ToolResult):
                if outcome.target is None:
                    yield Uncertain(fence, UncertaintyReason.UNNAMED, "the tool did not name the record it wrote")
                else:
                    yield Finished((CallReport.returned(call, outcome, attempt=fence.attempt, seconds=seconds),))
                return
            unknown, earlier_unknown = outcome, True
            repeatable = fence.effect is ToolEffect.IDEMPOTENT_WRITE and not unknown.running
            if not repeatable or fence.attempt >= last:
                yield Uncertain(fence, unknown.reason, unknown.detail)
                return
            fence = replace(fence, attempt=fence.attempt + 1)

    async def _attempt(
        self, call: PendingCall, tool: Tool, fence: Fence, run: LoopRun
    ) -> ToolResult | _WroteNothing | _Unknown:
        """Run one attempt, observed."""
        with observe_tool(call.tool, call.id, fence.effect.value, fence.attempt, call.arguments) as observed:
            outcome = await self._in_time(call, tool, fence, run)
            match outcome:
                case ToolResult(for_model=text, target=target):
                    observed.say(lambda shown: {"gen_ai.tool.call.result": shown(text)})
                    if target is not None:
                        observed.wrote(target.record, target.kind)
                case _WroteNothing():
                    observed.failed(ToolError.__name__)
                case _Unknown(reason=reason, raised=raised):
                    observed.failed(raised or reason.value)
            return outcome

    async def _in_time(
        self, call: PendingCall, tool: Tool, fence: Fence, run: LoopRun
    ) -> ToolResult | _WroteNothing | _Unknown:
        """Run one attempt within the tool's time.

        Returns:
            A successful result; or that nothing was written; or that nobody knows.
        """
        attempt, limit = _Attempt(), tool.spec.timeout
        context = run.context(call.id, attempt=fence.attempt, timeout=limit)
        task = asyncio.create_task(self._kept(self.invoke(call, tool, context, run, attempt)))
        timed_out = False
        try:
            done, _ = await asyncio.wait({task}, timeout=limit)
            if not done and not attempt.returned:
                timed_out = True
                task.cancel()
                done, _ = await asyncio.wait({task}, timeout=CANCEL_PATIENCE)
            if not done and attempt.returned:  # it is being announced, and that is bounded
                done, _ = await asyncio.wait({task})
        except asyncio.CancelledError:
            if not attempt.returned:
                task.cancel()
            task.add_done_callback(lambda late: self._came_late(late, fence, run))
            raise
        if not done:
            task.add_done_callback(lambda late: self._came_late(late, fence, run))
            return _Unknown(UncertaintyReason.TIMED_OUT, f"no answer within {limit} s", running=True)
        ended = task.result()
        if isinstance(ended, ToolResult):
            return _WroteNothing(ended.for_model) if ended.is_error else ended
        error = ended.error
        if not attempt.started:  # the guard, not the tool
            raise error
        if isinstance(error, ToolError):
            return _WroteNothing(words_of(error))
        if timed_out:
            return _Unknown(UncertaintyReason.TIMED_OUT, f"no answer within {limit} s")
        extra = {"action": "tool_failed", "tool": call.tool, "run_id": str(run.run_id), "call_id": str(call.id)}
        _log.error("%s failed: %s", call.tool, where_raised(error), extra=extra)
        # What is wrong with a result names its path, never its value; what else a tool raises may say anything.
        broken = f": {words_of(error)}" if isinstance(error, ToolContractBroken) else ""
        raised = type(error).__name__
        return _Unknown(UncertaintyReason.RAISED, raised + broken, raised=raised)

    async def _kept(self, invoking: Awaitable[ToolResult]) -> ToolResult | _Raised:
        """Keep what a tool raises as a value, a SystemExit and its own CancelledError too."""
        try:
            return await invoking
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - see above: this task is the call's own
            return _Raised(error)

    def _came_late(self, task: "asyncio.Task[ToolResult | _Raised]", fence: Fence, run: LoopRun) -> None:
        """A call that was given up has ended after all: if it wrote, its driver hears of it."""
        ended = None if task.cancelled() or task.exception() is not None else task.result()
        target = announced(ended, fence.attempt) if isinstance(ended, ToolResult) else None
        if target is not None:
            run.came_late(fence, target)

    async def invoke(
        self,
        call: PendingCall,
        work: Tool | ToolResult,
        context: ToolContext,
        run: LoopRun,
        attempt: _Attempt,
    ) -> ToolResult:
        """Execute one call, and announce what it wrote. The only place for either (P1).

        A call whose outcome is already known, by a person's or a fact's verdict, passes here as that result, and
        `execute` is skipped.
        """
        if isinstance(work, ToolResult):
            result = work
        else:
            run.guard()
            attempt.started = True
            result = await work.execute(context, copy.deepcopy(call.arguments))  # a further attempt gets the same
            if not isinstance(result, ToolResult):
                raise ToolContractBroken(f"{call.tool} returned a {type(result).__name__}, not a ToolResult")
        attempt.returned = True
        target = announced(result, context.attempt)
        if target is not None and run.run_id is not None and self._dispatcher is not None:
            await self._dispatcher.dispatch(AfterAiRecordWrittenEvent(run.run_id, target.record, target.kind))
        return result


async def _reject(call: RejectedCall) -> AsyncGenerator[LoopStep, None]:
    """Answer a call that never runs, so that the model can mend it."""
    yield Finished((CallReport.rejected(call),))


def _approver(call: PendingCall, conversation: Conversation) -> str | None:
    decided = conversation.verdicts.get(call.id)
    return None if decided is None else decided.actor_id


def _is_denied(call: PendingCall, conversation: Conversation) -> bool:
    decided = conversation.verdicts.get(call.id)
    return decided is not None and isinstance(decided.verdict, Deny)


def _turn_of(call: PendingCall, run: LoopRun) -> PendingTurn:
    return PendingTurn(
        run_id=run.run_id or NIL,
        suspension=0,
        agent=run.agent,
        second_approver=run.second_approver,
        calls=(call,),
    )
