"""The one guarded UPDATE behind each change that a segment stores, and why it may touch no row."""

from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import ColumnElement, Update, and_, bindparam, case, null, or_, update

from byline.approval.fence import Fence
from byline.errors import CancelRequested, ClaimLost, StoreError
from byline.models.messages import Message
from byline.runs.status import MOVES, RunStatus, TerminationReason
from byline.runs.steps import NewStep
from byline.store.clock import now
from byline.store.moves import RESTORED, THE_RUN, moving
from byline.store.protocol import (
    BecomeUncertain,
    Change,
    Claim,
    HandBack,
    Postpone,
    Progress,
    Release,
    SetFence,
    Settle,
    Suspend,
)
from byline.store.rows import AnyRow, Values, fence_of, seal_output, seal_turn
from byline.store.sealing import Seals
from byline.store.tables import MAX_REASON, run

_HELD = and_(
    run.c.status == RunStatus.RUNNING.value,
    run.c.claim == bindparam("the_claim"),
    run.c.revision == bindparam("the_revision"),
)
_NO_FENCE = run.c.fence_call.is_(None)
_CLEARED = {name: null() for name in ("fence_call", "fence_tool", "fence_effect", "fence_attempt", "fence_verdict")}


class Guarded(NamedTuple):
    """An UPDATE of a run that is held. It touches a row only if everything is as the segment believes.

    Attributes:
        uncancelled: touches none once a cancel was requested: so the usual case needs no second look.
        anyway: for a change that is stored all the same.
    """

    uncancelled: Update
    anyway: Update

    @classmethod
    def of(cls, statement: Update, *guards: ColumnElement[bool]) -> "Guarded":
        """Guard a statement by claim and revision, and count the revision on."""
        held = statement.where(_HELD, *guards).values(revision=run.c.revision + 1)
        return cls(held.where(run.c.cancelled_by.is_(None)), held)


_STAY = update(run).where(run.c.id == THE_RUN).values(updated_at=now())
_PROGRESS = Guarded.of(_STAY.values(RESTORED))
_CLEAR = Guarded.of(_STAY.values(RESTORED | _CLEARED), run.c.fence_call == bindparam("the_call"))
_SET_FENCE = Guarded.of(
    _STAY.values(
        fence_call=bindparam("call"),
        fence_tool=bindparam("tool"),
        fence_effect=bindparam("effect"),
        fence_attempt=bindparam("attempt"),
        fence_verdict=null(),
    ),
    or_(
        _NO_FENCE,
        and_(run.c.fence_call == bindparam("the_call"), run.c.fence_attempt < bindparam("the_attempt")),
    ),
)
_SUSPEND = Guarded.of(
    moving(RunStatus.RUNNING, RunStatus.AWAITING_APPROVAL).values(
        **RESTORED,
        suspension=bindparam("number"),
        turn=bindparam("sealed"),
        turn_digest=bindparam("digest"),
        due_at=now() + bindparam("ttl"),  # NULL without one
    ),
    _NO_FENCE,
    run.c.suspension < bindparam("the_number"),
)
_HAND_BACK = Guarded.of(moving(RunStatus.RUNNING, RunStatus.QUEUED), or_(_NO_FENCE, run.c.fence_verdict.is_not(None)))
_UNSPENT = bindparam("taken_over", type_=run.c.takeovers.type)
_RELEASED = moving(RunStatus.RUNNING, RunStatus.QUEUED).values(
    deferred_because=bindparam("because"),
    due_at=now() + bindparam("delay"),
    takeovers=case((run.c.takeovers > 0, run.c.takeovers - _UNSPENT), else_=0),
)
_RELEASE = Guarded.of(_RELEASED, or_(_NO_FENCE, run.c.fence_verdict.is_not(None)))
_POSTPONE = Guarded.of(
    _RELEASED.values(reason=TerminationReason.MODEL_FAILED.value, model_failures=run.c.model_failures + 1),
    _NO_FENCE,
)
TO_UNCERTAIN = (
    moving(RunStatus.RUNNING, RunStatus.UNCERTAIN)
    .where(run.c.fence_call.is_not(None))
    .values(reason=bindparam("why"), fence_verdict=null())
)
_BECOME_UNCERTAIN = Guarded.of(TO_UNCERTAIN)
_SETTLE = {
    status: Guarded.of(
        moving(RunStatus.RUNNING, status).values(reason=bindparam("why"), output=bindparam("sealed")),
        _NO_FENCE,
    )
    for status in MOVES[RunStatus.RUNNING]
    if status.is_terminal or status is RunStatus.DEAD_LETTER
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a change comes to.

    Attributes:
        statement: the UPDATE.
        values: its values, on top of run, claim and revision.
        messages, steps: what is appended behind it.
        ends: whether the run has ended then, and what is sealed is deleted.
    """

    statement: Guarded
    values: Values
    messages: tuple[Message, ...] = ()
    steps: tuple[NewStep, ...] = ()
    ends: bool = False

    @classmethod
    def of(cls, change: Change, claim: Claim, sealer: Seals) -> "Plan":
        """Plan a change."""
        match change:
            case Progress(clears=None):
                return cls(_PROGRESS, {}, change.messages, change.steps)
            case Progress(clears=clears):
                return cls(_CLEAR, {"the_call": clears}, change.messages, change.steps)
            case SetFence(fence):
                return cls(_SET_FENCE, _fence_values(fence))
            case Suspend(turn=turn, ttl=ttl):
                values: Values = {
                    "number": turn.suspension,
                    "the_number": turn.suspension,
                    "sealed": seal_turn(turn, sealer),
                    "digest": turn.digest,
                    "ttl": None if ttl is None else milliseconds(ttl),
                }
                return cls(_SUSPEND, values, change.messages, change.steps)
            case HandBack(steps=steps):
                return cls(_HAND_BACK, {}, steps=steps)
            case Release():
                return cls(_RELEASE, _left_values(change))
            case Postpone(steps=steps):
                return cls(_POSTPONE, _left_values(change), steps=steps)
            case BecomeUncertain(reason=reason, steps=steps):
                return cls(_BECOME_UNCERTAIN, {"why": reason.value}, steps=steps)
            case Settle(status=status, reason=reason, output=output, steps=steps):
                if status not in _SETTLE:
                    raise StoreError(f"a run does not settle as {status}")
                sealed = None if output is None else seal_output(output, claim.run_id, sealer)
                return cls(_SETTLE[status], {"why": reason.value, "sealed": sealed}, (), steps, status.is_terminal)

    def without_clearing(self) -> "Plan":
        """The same progress for a fence that is not of its call: it stays."""
        return Plan(_PROGRESS, {}, self.messages, self.steps)


def milliseconds(seconds: float) -> int:
    """A span of time as the tables count it."""
    return round(seconds * 1000)


def stands(row: AnyRow, claim: Claim, change: Change, revision: int) -> bool:
    """Whether this very change has been stored before, and its answer was lost."""
    if row.claim != claim.number or row.revision != revision + 1:
        return False
    running = RunStatus(row.status) is RunStatus.RUNNING
    fence = fence_of(row)
    match change:
        case Progress(clears=clears):
            return running and (clears is None or fence is None or fence.call_id != clears)
        case SetFence(new):
            return running and fence == new
        case _:  # whatever has become of the run since it left the segment
            return not running


def refuse(row: AnyRow, claim: Claim, change: Change, revision: int) -> None:
    """Say why a change touched no row; a cancel alone does not refuse every change.

    Raises:
        ClaimLost, CancelRequested: as `RunStore.advance` says.
        StoreError: the change does not fit the run: a defect of the segment.
    """
    if row.status != RunStatus.RUNNING or row.claim != claim.number:
        raise ClaimLost
    if row.revision != revision:
        raise StoreError(f"run {row.id} has stored {row.revision} changes under this claim, not {revision}")
    fence = fence_of(row)
    match change:
        case SetFence(new) if fence and (fence.call_id != new.call_id or fence.attempt >= new.attempt):
            raise StoreError(f"a fence stands already before call {fence.call_id}, attempt {fence.attempt}")
        case HandBack() | Release() if fence and row.fence_verdict is not None:
            return  # whatever was requested since: the next segment tells what is known
        case Suspend() | HandBack() | Release() | Postpone() | Settle() if fence:
            raise StoreError(f"run {row.id} cannot leave its segment: the fence of call {fence.call_id} stands")
        case BecomeUncertain() if not fence:
            raise StoreError(f"run {row.id} has no fence, so that nothing about it is uncertain")
        case Suspend(turn=turn) if turn.suspension <= row.suspension:
            raise StoreError(f"run {row.id} has been suspended {row.suspension} times; this is no later one")
        case SetFence() | Suspend() | HandBack() | Release() | Postpone() if row.cancelled_by is not None:
            raise CancelRequested
        case Settle(status=RunStatus.COMPLETED | RunStatus.DEAD_LETTER) if row.cancelled_by is not None:
            raise CancelRequested
        case _:
            return


def _left_values(change: Release | Postpone) -> Values:
    return {
        "because": change.because[:MAX_REASON],
        "delay": milliseconds(change.delay),
        "taken_over": int(change.taken_over),
    }


def _fence_values(fence: Fence) -> Values:
    return {
        "call": fence.call_id,
        "the_call": fence.call_id,
        "tool": fence.tool,
        "effect": fence.effect.value,
        "attempt": fence.attempt,
        "the_attempt": fence.attempt,
    }
