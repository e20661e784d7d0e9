"""A run as a person or a program reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from byline.actors import AiActorContext
from byline.approval.decision import CallVerdict
from byline.approval.fence import Fence
from byline.approval.turn import PendingCall, PendingTurn, RejectedCall
from byline.errors import InvalidIdentifier
from byline.runs.status import RunStatus, TerminationReason, UncertaintyReason
from byline.tools.protocol import Verification

Reason: TypeAlias = TerminationReason | UncertaintyReason


@dataclass(frozen=True, slots=True)
class Pending:
    """What an approver reads: the waiting turn and what has been decided so far.

    Attributes:
        turn: the calls, their arguments and previews.
        decided: verdicts so far, by call id.
    """

    turn: PendingTurn
    decided: Mapping[UUID, CallVerdict] = field(default_factory=dict[UUID, CallVerdict])

    @property
    def digest(self) -> str:
        """What a decision must carry: it binds to exactly this turn."""
        return self.turn.digest

    @property
    def calls(self) -> tuple[PendingCall, ...]:
        """The valid calls of the turn, in the model's order."""
        return self.turn.calls

    @property
    def rejected(self) -> tuple[RejectedCall, ...]:
        """The calls of the turn that never run."""
        return self.turn.rejected

    @property
    def expires_at(self) -> datetime | None:
        """When the approval expires, or None."""
        return self.turn.expires_at

    @property
    def undecided(self) -> frozenset[UUID]:
        """The ids of the calls that still need a verdict."""
        return self.turn.waiting - self.decided.keys()


@dataclass(frozen=True, slots=True)
class UncertainCall:
    """A write that may have landed.

    Attributes:
        run_id: the run.
        fence: the call, its tool, its effect and its attempt.
        reason: why nobody knows.
        call: the call as it was approved, or None if this process cannot read it.
        found: what the tool's `verify` said when it was asked last in this process: only shown.
    """

    run_id: UUID
    fence: Fence
    reason: UncertaintyReason
    call: PendingCall | None
    found: Verification = None

    @property
    def call_id(self) -> UUID:
        """The call."""
        return self.fence.call_id

    @property
    def digest(self) -> str:
        """What a reconciliation must carry: it binds to this call and this attempt."""
        return self.fence.digest(self.run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as it stands in the store.

    Attributes:
        run_id: its uuid, the correlation id of all it does.
        agent: the agent's name.
        status: where it stands.
        reason: why it stands there, for a run that ended, is uncertain or in dead letter, or is QUEUED since its model
            failed (`MODEL_FAILED`).
        actor: who it acts for.
        created_at, updated_at: by the store's clock, in UTC.
        cancel_requested: whether it is to be cancelled as soon as that is possible.
        pending: the turn that waits, with AWAITING_APPROVAL only; None if `problem` says that it cannot be read.
        uncertain: the write nobody knows the outcome of, with UNCERTAIN only.
        output: the model's closing words, with COMPLETED only, for as long as the runtime keeps them (`output_ttl`).
        problem: why this process cannot execute or read it (a missing agent, tool or key), or why whoever tried last
            could not; None once it is executed. A list reads no transcript: whether that opens is found by trying.
        due_at: when whoever looks for runs takes it up again, of one that whoever tried last could not go on with.
        purged_at: when its content and trace were deleted; what it wrote and who decided it is still known.
    """

    run_id: UUID
    agent: str
    status: RunStatus
    reason: Reason | None
    actor: AiActorContext
    created_at: datetime
    updated_at: datetime
    cancel_requested: bool = False
    pending: Pending | None = None
    uncertain: UncertainCall | None = None
    output: str | None = None
    problem: str | None = None
    due_at: datetime | None = None
    purged_at: datetime | None = None


def parse_run_id(value: object) -> UUID:
    """Read a run's id from a UUID or its text.

    Raises:
        InvalidIdentifier: it is neither.
    """
    if isinstance(value, UUID):
        return value
    if isinstance(value, str):
        try:
            return UUID(value)
        except ValueError:
            pass
    raise InvalidIdentifier("a run's id is a UUID, such as run.run_id")
