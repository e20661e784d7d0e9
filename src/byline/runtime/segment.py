"""One segment: one unbroken execution of a run by one process, from its claim to whatever ends it.

It drives the loop, and stores each step before it asks for the next:

    claim ▸ drive ▸ Answered        progress                        ▸ next
                  ▸ AboutToWrite    fence (refused after a cancel)  ▸ next: the tool runs
                  ▸ Finished        result, fence cleared           ▸ next
                  ▸ Suspended, Uncertain, Ended, …                  ▸ the segment's end
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from uuid import UUID

from pydantic import JsonValue
from uuid_utils.compat import uuid7

from byline.approval.decision import CallVerdict, Deny, ReconcileVerdict
from byline.approval.fence import Fence
from byline.approval.gate import Gate
from byline.approval.turn import PendingCall, PendingTurn, stricter_ttl
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
)
from byline.errors import CancelRequested, ClaimLost, KeyMissing, NativeUnreadable, StoreUnavailable
from byline.hosted import PATIENCE, where_raised
from byline.loop import ToolLoop
from byline.models.transcript import unanswered
from byline.runs.status import RunStatus, TerminationReason, UncertaintyReason
from byline.runs.steps import NewStep, StepKind, never_ran
from byline.runtime.agent import Agent
from byline.runtime.heartbeat import Heartbeat, Holding
from byline.runtime.retrying import Backoff, because, failed_step, final_reason, retry_after
from byline.runtime.store_threads import StoreThreads
from byline.runtime.trace import call_steps, model_step, suspended_step
from byline.store.protocol import (
    BecomeUncertain,
    Change,
    Claimed,
    HandBack,
    LateReport,
    Postpone,
    Progress,
    Release,
    RunStore,
    SetFence,
    Settle,
    Suspend,
)
from byline.tools.effect import ToolEffect
from byline.tools.result import WriteTarget

_log = logging.getLogger(__name__)

FIRST_DELAY, LONGEST_DELAY = 0.05, 2.0
"""Seconds between two attempts to reach a store that does not answer."""


RELEASED_FOR = 60.0
"""Seconds until a run that a process had to release is due again, at least; at most twice that."""


def delay_of_released() -> float:
    """How long a released run is left alone. Never the same, so that no process is always the one that comes first."""
    return RELEASED_FOR * random.uniform(1, 2)  # noqa: S311 - nobody gains by guessing it


class Stop(IntEnum):
    """Why a segment is to stop; a higher one overrides a lower one."""

    NO = 0
    HAND_BACK = 1
    """Finish the step in flight, then hand the run back."""
    CANCEL = 2
    """Start nothing more: break off a model call or a read, let a write end, then cancel the run."""
    LOST = 3
    """Another segment has the run: break off, and store nothing more."""
    ABORT = 4
    """The grace is over: break off whatever runs. A write in flight becomes uncertain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What every segment of a runtime shares."""

    store: RunStore
    threads: StoreThreads
    heartbeat: Heartbeat
    gate: Gate
    resources: object
    release_ttl: float
    max_model_failures: int
    backoff: Backoff
    spawn: Callable[[Coroutine[object, object, None]], None]
    stepped: Callable[[UUID], None]


class Segment:
    """Executes one claimed run until it is suspended, handed back, settled, uncertain, or taken away."""

    def __init__(
        self, claimed: Claimed, claimed_at: float, agent: Agent, tool_loop: ToolLoop, place: Workplace
    ) -> None:
        self._run = claimed.run
        self._claim = claimed.claim
        self._claimed = claimed
        self._agent = agent
        self._loop = tool_loop
        self._place = place
        self._at = len(claimed.messages)
        self._revision = 0
        self._fence = claimed.run.fence
        self._failures = claimed.run.model_failures
        self._open = unanswered(claimed.messages)
        self._tools = frozenset(tool.spec.name for tool in agent.tools)
        turn = claimed.run.turn
        self._second = agent.second_approver or (turn is not None and turn.second_approver)
        self._verdicts = _standing_verdicts(claimed, place.release_ttl, second_approver=self._second)
        self._stop = Stop.CANCEL if claimed.run.cancel_requested else Stop.NO
        # A known outcome is told before anything else; a standing fence without one is not cancelled silently (P9).
        self._writing = self._fence is not None and not (self._stop and self._nothing_to_tell())
        self._current: asyncio.Task[LoopStep | None] | None = None
        self._event_loop = asyncio.get_running_loop()
        self._holding: Holding = place.heartbeat.hold(self._claim, claimed_at, self._beaten)
        self.left: Change | None = None  # what was stored last
        self.lost = False

    @property
    def writing(self) -> bool:
        """Whether a fence stands: nothing but its end ends the step."""
        return self._writing

    def stop(self, why: Stop) -> None:
        """Ask the segment to stop. Called on the event loop's thread; returns at once."""
        self._stop = max(self._stop, why)
        breaks_off = self._stop is Stop.ABORT or (self._stop > Stop.HAND_BACK and not self._writing)
        if breaks_off and self._current is not None:
            self._current.cancel()

    def _beaten(self, lost: bool, cancel_requested: bool) -> None:
        """Hear from the heartbeat, on its thread."""
        why = Stop.LOST if lost else Stop.CANCEL if cancel_requested else Stop.NO
        try:
            # An event loop that sleeps can miss a signal: it is woken at each beat, with news or without.
            self._event_loop.call_soon_threadsafe(partial(self.stop, why) if why else _nothing_to_do)
        except RuntimeError:
            extra = {"action": "beat_after_close", "run_id": str(self._run.run_id)}
            _log.debug("A heartbeat came after the event loop had closed", extra=extra)

    async def run(self) -> Fence | None:
        """Execute until something ends it.

        Returns:
            The fence, if the run became uncertain.

        Raises:
            StoreUnavailable: the store did not answer; what stands there is what goes on.
        """
        try:
            return await self._drive()
        except ClaimLost as lost:
            self.lost = True
            extra = {"action": "claim_lost", "run_id": str(self._run.run_id), "claim": self._claim.number}
            _log.warning("Segment %s of run %s stops: %s", self._claim.number, self._run.run_id, lost, extra=extra)
            return None
        finally:
            self._place.heartbeat.release(self._holding)

    async def _drive(self) -> Fence | None:
        if self._claimed.taken_over:
            extra = {"action": "taken_over", "run_id": str(self._run.run_id)}
            _log.info("Run %s is taken over", self._run.run_id, extra=extra)
        steps = self._loop.drive(self._conversation(), self._loop_run())
        async with aclosing(steps):
            try:
                try:
                    return await self._follow(steps)
                except KeyMissing as missing:
                    return await self._release(str(missing))
            except CancelRequested:  # also of a run that was to be released
                return await self._cancel()

    async def _follow(self, steps: AsyncGenerator[LoopStep, None]) -> Fence | None:
        if self._is_release_too_old():
            await self._become_uncertain(UncertaintyReason.NOT_REPEATABLE, "the word to run it again is too old")
            return self._fence
        while not self._stop or (self._writing and self._stop is not Stop.ABORT):
            step = await self._next(steps)
            if step is None:
                break
            if await self._keep(step):
                return self._fence
        return await self._break_off()

    async def _next(self, steps: AsyncGenerator[LoopStep, None]) -> LoopStep | None:
        """Ask the loop for its next step, in a task that `stop` can break off.

        Returns:
            None if it was broken off, also where a model makes an error of its own of that.
        """
        self._current = asyncio.create_task(anext(steps))
        try:
            await asyncio.wait({self._current})
        except asyncio.CancelledError:
            self._current.cancel()
            await asyncio.wait({self._current}, timeout=PATIENCE)  # a generator that still runs cannot be closed
            raise
        current, self._current = self._current, None
        if current.cancelled() and self._stop > Stop.HAND_BACK:
            return None
        step = current.result()
        return None if isinstance(step, ModelFailed) and self._stop > Stop.HAND_BACK else step

    async def _keep(self, step: LoopStep) -> bool:
        """Store a step. Returns whether it was the last."""
        match step:
            case Answered(message, seconds):
                self._open.update(zip(message.call_ids, (call.name for call in message.answer.calls), strict=True))
                await self._advance(Progress(messages=(message,), steps=(model_step(message, seconds),)))
            case AboutToWrite(fence):
                await self._advance(SetFence(fence))
                self._fence, self._writing = fence, True
            case Finished(reports):
                decided = self._verdicts
                kept = tuple(step for report in reports for step in call_steps(report, decided.get(report.call_id)))
                clears = self._fence.call_id if self._fence is not None else None
                change = Progress(messages=tuple(report.message for report in reports), steps=kept, clears=clears)
                await self._record(change, reports)
                for report in reports:
                    self._open.pop(report.call_id, None)
                self._fence, self._writing = None, False
            case Suspended(turn, asking, seconds):
                spoken = () if asking is None else (asking,)
                kept = tuple(model_step(message, seconds) for message in spoken)
                waits = (*kept, suspended_step(turn))
                suspend = Suspend(turn=turn, ttl=turn.approval_ttl, messages=spoken, steps=waits)
                await self._advance(suspend)
                return True
            case Ended(message, reason, seconds):
                await self._settle(RunStatus.COMPLETED, reason, message.answer.text, model_step(message, seconds))
                return True
            case ModelFailed(NativeUnreadable() as error):
                await self._release(str(error))
                return True
            case ModelFailed(error):
                await self._fail(error)
                return True
            case Lied(reports):
                told = {report.call_id for report in reports}
                steps = [step for report in reports for step in call_steps(report)]
                left = ((i, tool) for i, tool in self._open.items() if i not in told)
                steps += never_ran(left, CallOutcome.CANCELLED, self._tools)
                settle = _settling(RunStatus.FAILED, TerminationReason.READ_ONLY_TOOL_WROTE, None, *steps)
                await self._record(settle, reports)
                return True
            case uncertain:
                self._fence, self._writing = uncertain.fence, False
                await self._become_uncertain(uncertain.reason, uncertain.detail)
                return True
        return False

    async def _break_off(self) -> Fence | None:
        """End the segment because it was asked to stop."""
        match self._stop:
            case Stop.LOST:
                raise ClaimLost
            case Stop.CANCEL:
                return await self._cancel()
            case _ if self._fence is not None and not self._is_verdict_unused():
                await self._become_uncertain(UncertaintyReason.INTERRUPTED, "stopped past its grace in a write")
                return self._fence
            case _:
                await self._advance(HandBack(steps=(NewStep(StepKind.HANDED_BACK),)))
                return None

    async def _release(self, because: str) -> Fence | None:
        """Leave the run to a process that has what this one lacks; while its fence stands, to a person (P9)."""
        if self._fence is not None and not self._is_verdict_unused():
            await self._become_uncertain(UncertaintyReason.INTERRUPTED, because)
            return self._fence
        extra = {"action": "released", "run_id": str(self._run.run_id)}
        _log.warning("Run %s is released: %s", self._run.run_id, because, extra=extra)
        await self._advance(
            Release(because=because, delay=delay_of_released(), taken_over=self._claimed.taken_over),
        )
        return None

    async def _fail(self, error: BaseException) -> None:
        """Let the run go on later, or go to dead letter, as its model's failure asks for; a fence comes first (P9)."""
        run_id, place, failures = self._run.run_id, self._place, self._failures + 1
        reason = final_reason(error, failures, place.max_model_failures)
        if reason is not None:
            extra = {"action": "model_failed", "run_id": str(run_id)}
            _log.error("The model of run %s failed: %s", run_id, where_raised(error), extra=extra)
        else:
            extra = {"action": "model_failed_for_now", "run_id": str(run_id)}
            _log.warning("The model of run %s failed for now: %s", run_id, where_raised(error), extra=extra)
        if self._fence is not None:  # the loop settles a fence before it asks; whatever comes here tells nothing of it
            await self._become_uncertain(UncertaintyReason.INTERRUPTED, "the model failed while a write was unknown")
            return
        failed = failed_step(error)
        if reason is not None:
            await self._settle(RunStatus.DEAD_LETTER, reason, None, failed)
            return
        why, delay = because(error, failures), place.backoff.after(failures, retry_after(error))
        await self._advance(
            Postpone(because=why, delay=delay, taken_over=self._claimed.taken_over, steps=(failed,)),
        )

    async def _cancel(self) -> Fence | None:
        """Cancel the run; while its fence stands, nobody may say that nothing was written (P9)."""
        if self._fence is not None and not self._was_found_not_landed():
            await self._become_uncertain(UncertaintyReason.NOT_REPEATABLE, "cancelled while a write was unknown")
            return self._fence
        if self._fence is not None:  # found not to have landed, and now it is not run again
            await self._advance(Progress(clears=self._fence.call_id))
            self._fence = None
        steps = never_ran(self._open.items(), CallOutcome.CANCELLED, self._tools)
        await self._settle(RunStatus.CANCELLED, TerminationReason.CANCELLED, None, *steps)
        return None

    def _is_verdict_unused(self) -> bool:
        """Whether what is known of the fenced call still waits to be told: then it stays, and nobody is asked again."""
        return self._run.fence_verdict is not None and self._fence == self._run.fence

    def _is_release_too_old(self) -> bool:
        """Whether the word to run an uncertain write again came so long ago that it must be given again (P13)."""
        age = self._claimed.verdict_age
        return self._was_found_not_landed() and age is not None and age > self._place.release_ttl

    def _nothing_to_tell(self) -> bool:
        return self._run.fence_verdict is None or self._was_found_not_landed()

    def _was_found_not_landed(self) -> bool:
        """Whether somebody said that the fenced call did not land, and it was not run again since."""
        known = self._run.fence_verdict
        return self._is_verdict_unused() and known is not None and known.verdict is ReconcileVerdict.RUN_AGAIN

    async def _settle(self, status: RunStatus, reason: TerminationReason, output: str | None, *steps: NewStep) -> None:
        await self._advance(_settling(status, reason, output, *steps))

    async def _become_uncertain(self, reason: UncertaintyReason, detail: str) -> None:
        fence = self._fence
        assert fence is not None
        payload: dict[str, JsonValue] = {"tool": fence.tool, "attempt": fence.attempt, "reason": reason.value}
        step = NewStep(StepKind.UNCERTAIN, fence.call_id, payload, detail=detail)
        try:
            await self._record(BecomeUncertain(reason=reason, steps=(step,)), ())
        except KeyMissing:  # then without what would have to be sealed
            await self._record(BecomeUncertain(reason=reason, steps=(replace(step, detail=None),)), ())

    async def _advance(self, change: Change) -> None:
        """Store a change, or say that it could not be stored: then what would follow does not happen (P16)."""
        place = self._place
        spoken = change.messages if isinstance(change, Progress | Suspend) else ()
        cancel = await place.threads(place.store.advance, self._claim, change, at=self._at, revision=self._revision)
        self._at += len(spoken)
        self._revision += 1
        place.stepped(self._run.run_id)
        self.left = change
        if isinstance(change, Progress):
            self._failures = 0
        if cancel:
            self._stop = max(self._stop, Stop.CANCEL)

    async def _record(self, change: Change, reports: Sequence[CallReport]) -> None:
        """Store what a write did. Where the store does not answer, this is tried again, never the tool (P9)."""
        delay = FIRST_DELAY
        while True:
            try:
                return await self._advance(change)
            except StoreUnavailable:
                if self._holding.lost or self._stop is Stop.ABORT:
                    raise
                _log.exception(
                    "The result of a write could not be stored; trying again in %s s",
                    delay,
                    extra={"action": "result_not_stored", "run_id": str(self._run.run_id)},
                )
                await asyncio.sleep(delay)
                delay = min(2 * delay, LONGEST_DELAY)
            except (ClaimLost, KeyMissing):
                for report in reports:
                    if report.written is not None:
                        read = Fence(report.call_id, report.tool, ToolEffect.READ_ONLY, report.attempt)
                        await self._report_late(self._fence or read, report.written)
                raise

    def _came_late(self, fence: Fence, target: WriteTarget) -> None:
        self._place.spawn(self._report_late(fence, target))

    async def _report_late(self, fence: Fence, target: WriteTarget) -> None:
        """Say what a write did although this segment may say nothing else of the run any more."""
        report = LateReport(report_id=uuid7(), claim=self._claim, fence=fence, target=target)
        stored = await self._until_stored(self._place.store.report_late, report)
        _log.warning(
            "A write of run %s was reported late%s",
            self._run.run_id,
            ", against what had been decided" if stored.conflict else "",
            extra={"action": "late_report", "run_id": str(self._run.run_id), "conflict": stored.conflict},
        )

    async def _until_stored(self, keep: Callable[[LateReport], LateReport], report: LateReport) -> LateReport:
        delay = FIRST_DELAY
        while True:
            try:
                return await self._place.threads(keep, report)
            except StoreUnavailable:
                extra = {"action": "late_report_not_stored", "run_id": str(self._run.run_id)}
                _log.exception("A late report could not be stored; trying again in %s s", delay, extra=extra)
                await asyncio.sleep(delay)
                delay = min(2 * delay, LONGEST_DELAY)

    def _conversation(self) -> Conversation:
        run = self._run
        return Conversation(
            messages=self._claimed.messages,
            turn=run.turn,
            verdicts=self._verdicts,
            suspensions=run.suspension,
            fence=run.fence,
            known=run.fence_verdict,
        )

    def _loop_run(self) -> LoopRun:
        run = self._run
        return LoopRun(
            actor=run.actor,
            agent=run.agent,
            run_id=run.run_id,
            claim=self._claim.number,
            resources=self._place.resources,
            second_approver=self._second,
            approval_ttl=stricter_ttl(None if run.turn is None else run.turn.approval_ttl, self._agent.approval_ttl),
            guard=self._holding.check,
            refusal=self._refusal,
            came_late=self._came_late,
        )

    async def _refusal(self, call: PendingCall, approver_id: str | None) -> str | None:
        run = self._run
        turn = PendingTurn(
            run_id=run.run_id,
            suspension=run.suspension,
            agent=run.agent,
            second_approver=self._second,
            calls=(call,),
        )
        if self._second and approver_id in {run.actor.id, *call.changers}:
            return "Not executed: somebody else than who started this, or who changed it, must approve it now."
        return await self._place.gate.refusal(run.actor, approver_id, call, turn)


def _nothing_to_do() -> None:
    return None


def _settling(status: RunStatus, reason: TerminationReason, output: str | None, *steps: NewStep) -> Settle:
    settled = NewStep(StepKind.SETTLED, payload={"status": status.value, "reason": reason.value})
    return Settle(status=status, reason=reason, output=output, steps=(*steps, settled))


def _standing_verdicts(claimed: Claimed, release_ttl: float, *, second_approver: bool) -> dict[UUID, CallVerdict]:
    """The verdicts that still hold; a denial stands.

    A release waits again if it is too old (P13), or was given by whom the agent as it is loaded now asks for a second
    approver (P14). What stands behind a fence cannot wait again.
    """
    run = claimed.run
    fenced = None if run.fence is None else run.fence.call_id
    old = claimed.release_age is not None and claimed.release_age > release_ttl

    def holds(said: CallVerdict) -> bool:
        if said.call_id == fenced or isinstance(said.verdict, Deny):
            return True
        call = None if run.turn is None else run.turn.call(said.call_id)
        alone = said.actor_id == run.actor.id or (call is not None and said.actor_id == call.changed_by)
        return not old and not (second_approver and alone)

    return {call_id: said for call_id, said in run.decided.items() if holds(said)}
