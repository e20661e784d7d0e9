"""What passes between a loop and whoever drives it: steps, the conversation, and on whose behalf it runs."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Self, TypeAlias
from uuid import UUID

from pydantic import JsonValue

from byline.actors import AiActorContext
from byline.approval.decision import CallVerdict
from byline.approval.fence import Fence, FenceVerdict
from byline.approval.turn import PendingCall, PendingTurn, RejectedCall
from byline.hosted import MAX_TEXT_BYTES, bounded_text
from byline.models.messages import AssistantMessage, Message, ToolMessage
from byline.runs.status import TerminationReason, UncertaintyReason
from byline.tools.context import ToolContext
from byline.tools.effect import ToolEffect
from byline.tools.result import ToolResult, WriteTarget
from byline.tools.schema import canonical_json


class CallOutcome(StrEnum):
    """How a call ended. Every call of a turn ends in exactly one of these."""

    SUCCEEDED = "succeeded"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    INVALID = "invalid"
    NOT_OFFERED = "not_offered"
    DENIED = "denied"
    REFUSED = "refused"
    LEFT = "left"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReport:
    """The one result of one call.

    Attributes:
        call_id, tool, effect: the call; the effect is None for a call that was never valid.
        outcome: how it ended.
        message: what the model reads.
        written: the record it wrote, if it says so: announced, if there is a run.
        by: the id of the person who denied or reconciled it.
        attempt: which attempt ended it; 0 if it never ran.
        seconds: how long the last attempt took.
        artifacts: values for the host.
    """

    call_id: UUID
    tool: str
    effect: ToolEffect | None
    outcome: CallOutcome
    message: ToolMessage
    written: WriteTarget | None = None
    by: str | None = None
    attempt: int = 0
    seconds: float = 0.0
    artifacts: Mapping[str, JsonValue] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def rejected(cls, call: RejectedCall) -> Self:
        """Report a call that nobody was asked about."""
        outcome = CallOutcome.INVALID if call.offered else CallOutcome.NOT_OFFERED
        message = ToolMessage(call.id, call.tool, bounded_text(call.error, MAX_TEXT_BYTES), is_error=True)
        return cls(call_id=call.id, tool=call.tool, effect=None, outcome=outcome, message=message)

    @classmethod
    def of(
        cls,
        call: PendingCall,
        outcome: CallOutcome,
        text: str,
        *,
        by: str | None = None,
        attempt: int = 0,
        seconds: float = 0.0,
    ) -> Self:
        """Report a call in words. They are a tool's or a person's: bounded, so that any can be stored and read."""
        words = bounded_text(text, MAX_TEXT_BYTES)
        message = ToolMessage(call.id, call.tool, words, is_error=outcome not in _GOOD)
        return cls(
            call_id=call.id,
            tool=call.tool,
            effect=call.effect,
            outcome=outcome,
            message=message,
            by=by,
            attempt=attempt,
            seconds=seconds,
        )

    @classmethod
    def returned(cls, call: PendingCall, result: ToolResult, *, attempt: int, seconds: float) -> Self:
        """Report a result. Arguments that a person changed are named, so that the model knows what ran."""
        outcome = CallOutcome.SUCCEEDED if result.changed else CallOutcome.UNCHANGED
        text = result.for_model
        if call.changed_by is not None:
            text = f"A person changed the arguments of this call; it ran with {_shown(call)}.\n{text}"
        report = cls.of(
            call, CallOutcome.FAILED if result.is_error else outcome, text, attempt=attempt, seconds=seconds
        )
        return replace(report, written=announced(result, attempt), artifacts=result.artifacts)


_GOOD = (CallOutcome.SUCCEEDED, CallOutcome.UNCHANGED)


def announced(result: ToolResult, attempt: int) -> WriteTarget | None:
    """Return the record to announce. An unchanged one only if an earlier attempt may have written it (P10)."""
    return result.target if result.changed or attempt > 1 else None


def _shown(call: PendingCall) -> str:
    """Show the arguments as the model may read them, at most 2,000 characters."""
    text = canonical_json(call.arguments)
    return text if len(text) <= 2_000 else text[:2_000] + "…"


@dataclass(frozen=True, slots=True)
class Answered:
    """The model called tools, and none of the calls needs a decision: they run next."""

    message: AssistantMessage
    seconds: float


@dataclass(frozen=True, slots=True)
class Suspended:
    """The turn waits for a person, and the loop has ended. `message` is None when a stored turn waits again."""

    turn: PendingTurn
    message: AssistantMessage | None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class AboutToWrite:
    """A write is next: the driver sets its fence before it asks for the next step, or asks no more."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class Finished:
    """Calls that ended. The fence of a write among them is cleared with the record of its result."""

    reports: tuple[CallReport, ...]


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A write may have landed and nobody here knows: its fence stands, and the loop has ended."""

    fence: Fence
    reason: UncertaintyReason
    detail: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", bounded_text(self.detail, MAX_TEXT_BYTES))


@dataclass(frozen=True, slots=True)
class Lied:
    """A read-only tool named a record it wrote: that was announced, and the loop has ended. The run fails.

    `reports` are the calls that ended with it: stored with the run's end, so that nothing comes between the two.
    """

    reports: tuple[CallReport, ...]


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """The model could not answer; the loop has ended."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Ended:
    """The model closed with words; the loop has ended."""

    message: AssistantMessage
    reason: TerminationReason
    seconds: float


LoopStep: TypeAlias = Answered | Suspended | AboutToWrite | Finished | Uncertain | Lied | ModelFailed | Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Where a loop goes on from: what a store keeps, or what a bare consumer holds.

    Attributes:
        messages: the transcript.
        turn: the turn that was suspended, if the last answer's calls are it.
        verdicts: what was decided about its calls.
        suspensions: how often the run has been suspended.
        fence: the fence that stands, if a segment died or was stopped in a write.
        known: what is known about the fenced call.
    """

    messages: tuple[Message, ...]
    turn: PendingTurn | None = None
    verdicts: Mapping[UUID, CallVerdict] = field(default_factory=lambda: MappingProxyType({}))
    suspensions: int = 0
    fence: Fence | None = None
    known: FenceVerdict | None = None


async def _nothing_refused(_call: PendingCall, _approver_id: str | None) -> str | None:
    return None


def _always_young() -> None:
    return None


def _nobody_waits(_fence: Fence, _target: WriteTarget) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRun:
    """On whose behalf a loop runs, and how it asks its driver.

    Attributes:
        actor: who it acts for.
        agent: the agent's name.
        run_id: the persisted run, or None: then nothing is announced (P7).
        claim: the segment's claim.
        resources: handed to the tools.
        second_approver, approval_ttl: the gate's facts, stored with each turn.
        guard: called directly before `execute`, with no await between; raises if the claim may be lost (P18).
        refusal: asked before each released call; returns what the model is told if it may not run (P15).
        came_late: told of a write whose call had been given up and that landed after all.
    """

    actor: AiActorContext
    agent: str = ""
    run_id: UUID | None = None
    claim: int = 0
    resources: object = None
    second_approver: bool = False
    approval_ttl: float | None = None
    guard: Callable[[], None] = _always_young
    refusal: Callable[[PendingCall, str | None], Awaitable[str | None]] = _nothing_refused
    came_late: Callable[[Fence, WriteTarget], None] = _nobody_waits

    def context(self, call_id: UUID, *, attempt: int = 1, timeout: float | None = None) -> ToolContext:
        """Tell a tool about the call it serves."""
        return ToolContext(
            run=self.run_id,
            actor=self.actor,
            call_id=call_id,
            attempt=attempt,
            claim=self.claim,
            deadline=None if timeout is None else time.monotonic() + timeout,
            resources=self.resources,
        )
