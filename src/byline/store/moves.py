"""The UPDATE that moves a run from one status to another: the only place of the store that writes a status."""

from functools import cache
from uuid import UUID

from sqlalchemy import BindParameter, Connection, Update, bindparam, delete, null, update

from byline.errors import StoreError
from byline.privacy import PrivacyLevel
from byline.runs.status import MOVES, RunStatus, TerminationReason
from byline.runs.steps import NewStep, StepKind
from byline.store.clock import now
from byline.store.tables import decision, message, run, step

THE_RUN = bindparam("the_run", type_=run.c.id.type)
THE_RUNS: BindParameter[UUID] = bindparam("the_runs", expanding=True)
RESTORED = {"takeovers": 0, "model_failures": 0}
"""What progress sets back: the budget of a run is what it may lose without any."""


@cache
def moving(source: RunStatus, target: RunStatus) -> Update:
    """UPDATE of the run `the_run` from one status to another, with all that the new status implies.

    Raises:
        StoreError: there is no such move.
    """
    return _moving(source, target).where(run.c.id == THE_RUN)


def _moving(source: RunStatus, target: RunStatus) -> Update:
    if target not in MOVES[source]:
        raise StoreError(f"a run does not move from {source} to {target}")
    moved = (
        update(run)
        .where(run.c.status == source.value)
        .values(
            status=target.value,
            updated_at=now(),
            claim_token=null(),
            due_at=null(),
            reason=null(),
            deferred_because=null(),
        )
    )
    if target is RunStatus.QUEUED:
        return moved.values(due_at=now())
    if target.is_terminal:
        return moved.values(turn=null())
    return moved


@cache
def settling(source: RunStatus, target: RunStatus, reason: TerminationReason) -> Update:
    """UPDATE that settles the run, unless its fence stands (P9)."""
    return moving(source, target).where(run.c.fence_call.is_(None)).values(reason=reason.value)


@cache
def settling_all(source: RunStatus, target: RunStatus, reason: TerminationReason) -> Update:
    """UPDATE that settles those of `the_runs` that stand in `source`, unless their fence stands (P9)."""
    settled = _moving(source, target).where(run.c.fence_call.is_(None)).values(reason=reason.value)
    return settled.where(run.c.id.in_(THE_RUNS))


def settled_step(status: RunStatus, reason: TerminationReason) -> NewStep:
    """The step of the trace that says how a run ended."""
    return NewStep(StepKind.SETTLED, payload={"status": status.value, "reason": reason.value})


# The rows that a settled run no longer needs (P23); the turn goes with the UPDATE of its status.
_FORGET = (
    delete(message).where(message.c.run_id == THE_RUN),
    update(decision).where(decision.c.run_id == THE_RUN, decision.c.reason.is_not(None)).values(reason=null()),
)
_FORGET_DETAILS = update(step).where(step.c.run_id == THE_RUN, step.c.detail.is_not(None)).values(detail=null())


def forget_sealed(connection: Connection, run_id: UUID, level: PrivacyLevel) -> None:
    """Delete what was sealed for a run that has ended, in the transaction that ends it.

    Details stay where the run's level keeps content: they were redacted, if they are to be, when they were written.
    """
    for statement in _FORGET:
        connection.execute(statement, {"the_run": run_id})
    if not level.keeps_content:
        forget_details(connection, run_id)


def forget_details(connection: Connection, run_id: UUID) -> None:
    """Delete the details of a run's trace."""
    connection.execute(_FORGET_DETAILS, {"the_run": run_id})
