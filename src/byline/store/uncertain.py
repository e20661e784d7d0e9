"""What settles an uncertain call in the store: a person's word, or a fact, that may have come before."""

from uuid import UUID

from sqlalchemy import Connection, bindparam, insert, select, update

from byline.approval.decision import ReconcileVerdict
from byline.approval.fence import FenceVerdict
from byline.errors import StoreError
from byline.runs.status import RunStatus
from byline.store.clock import now
from byline.store.moves import RESTORED, THE_RUN, moving
from byline.store.part import SqlPart
from byline.store.rows import AnyRow, Values, fence_of, target_of, target_values
from byline.store.tables import decision, late_report, run

_ADD_RECONCILIATION = insert(decision).values(at=now())
_RECONCILE = (
    moving(RunStatus.UNCERTAIN, RunStatus.QUEUED)
    .where(run.c.fence_call == bindparam("the_call"), run.c.fence_attempt == bindparam("the_attempt"))
    .values(fence_verdict=bindparam("verdict"), **RESTORED)  # what was said is progress
)
_EARLIER_REPORT = (
    select(late_report)
    .where(
        late_report.c.run_id == THE_RUN,
        late_report.c.call_id == bindparam("the_call"),
        late_report.c.settled.is_(False),
        late_report.c.conflict.is_(False),
    )
    .order_by(late_report.c.claim.desc())
    .limit(1)
)
_MARK_SETTLED = update(late_report).where(late_report.c.id == bindparam("the_report")).values(settled=True)


class UncertainCalls(SqlPart):
    """The part of the store that both segments and people settle uncertain calls through."""

    def _settle_call(self, connection: Connection, row: AnyRow, decision_id: UUID, known: FenceVerdict) -> None:
        """Append what is known about the uncertain call, and queue the run with its fence."""
        fence = fence_of(row)
        if fence is None:
            raise StoreError(f"run {row.id} is uncertain without a fence")
        said: Values = {
            "id": decision_id,
            "run_id": row.id,
            "call_id": fence.call_id,
            "suspension": row.suspension,
            "attempt": fence.attempt,
            "claim": row.claim,
            "digest": fence.digest(row.id),
            "verdict": known.verdict.value,
            "actor_id": known.actor_id,
            "denied": sorted(str(call_id) for call_id in known.denied),
            **target_values(known.target),
        }
        connection.execute(_ADD_RECONCILIATION, said)
        moved = {
            "the_run": row.id,
            "the_call": fence.call_id,
            "the_attempt": fence.attempt,
            "verdict": known.verdict.value,
        }
        if connection.execute(_RECONCILE, moved).rowcount != 1:
            raise StoreError("the run changed under its lock; nothing was stored")

    def _settle_by_earlier_report(self, connection: Connection, run_id: UUID) -> None:
        """Settle a call that has become uncertain just now, if whoever had lost its claim reported it before."""
        row = self._lock(connection, run_id)
        report = connection.execute(_EARLIER_REPORT, {"the_run": run_id, "the_call": row.fence_call}).one_or_none()
        if report is not None:
            connection.execute(_MARK_SETTLED, {"the_report": report.id})
            landed = FenceVerdict(ReconcileVerdict.LANDED, target_of(report), None)
            self._settle_call(connection, row, report.id, landed)
