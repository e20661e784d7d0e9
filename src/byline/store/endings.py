"""How a run ends, or begins anew, without a segment: cancel, expiry, retry."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, bindparam, select, update

from byline.errors import NotRetryable, RunFinished
from byline.runs.status import RunStatus, TerminationReason
from byline.store.clock import now
from byline.store.moves import THE_RUN, forget_sealed, moving, settled_step, settling
from byline.store.part import SqlPart
from byline.store.rows import Values
from byline.store.tables import run

_ASK_TO_CANCEL = (
    update(run)
    .where(run.c.id == THE_RUN, run.c.cancelled_by.is_(None))
    .values(cancelled_by=bindparam("actor"), updated_at=now())
)
_STANDING = select(run.c.status, run.c.reason, run.c.cancelled_by).where(run.c.id == THE_RUN)
_EXPIRED = (
    select(run.c.id)
    .where(run.c.status == RunStatus.AWAITING_APPROVAL.value, run.c.due_at <= now())
    .order_by(run.c.due_at)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True)
)
_RETRY = moving(RunStatus.DEAD_LETTER, RunStatus.QUEUED).values(takeovers=0)


class EndingWrites(SqlPart):
    """The part of the store that ends runs which no segment holds."""

    def cancel(self, run_id: UUID, actor_id: str) -> RunStatus:
        """Cancel a run that no segment holds; ask it of one that runs, or that is uncertain."""

        def work(connection: Connection) -> RunStatus:
            row = self._lock(connection, run_id)
            status = RunStatus(row.status)
            if status.is_terminal:
                raise RunFinished
            connection.execute(_ASK_TO_CANCEL, {"the_run": run_id, "actor": actor_id})
            # A fence holds the run open: its call's result, or what is known of it, is stored first (P9).
            if status is RunStatus.RUNNING or row.fence_call is not None:
                return status
            self._end(connection, run_id, status, RunStatus.CANCELLED, TerminationReason.CANCELLED)
            return RunStatus.CANCELLED

        def stands(connection: Connection, status: RunStatus) -> bool:
            row = connection.execute(_STANDING, {"the_run": run_id}).one()
            return row.cancelled_by == actor_id and row.status == status

        return self._database.write(work, stands)

    def retry(self, run_id: UUID) -> None:
        """Queue a run that is in dead letter, with its budget restored."""

        def work(connection: Connection) -> None:
            self._lock(connection, run_id)
            if connection.execute(_RETRY, {"the_run": run_id}).rowcount != 1:
                raise NotRetryable

        def stands(connection: Connection, _: None) -> bool:
            return connection.execute(_STANDING, {"the_run": run_id}).one().status != RunStatus.DEAD_LETTER

        self._database.write(work, stands)

    def expire(self, limit: int) -> Sequence[UUID]:
        """Settle waiting runs whose approval has expired as FAILED (`APPROVAL_EXPIRED`)."""

        def work(connection: Connection) -> list[UUID]:
            expired = list(connection.scalars(_EXPIRED, {"at_most": limit}))
            for run_id in expired:
                reason = TerminationReason.APPROVAL_EXPIRED
                self._end(connection, run_id, RunStatus.AWAITING_APPROVAL, RunStatus.FAILED, reason)
            return expired

        def stands(connection: Connection, expired: list[UUID]) -> bool:
            # They end all or none: one tells for all.
            ended = [connection.execute(_STANDING, {"the_run": run_id}).one() for run_id in expired[:1]]
            return all(row.reason == TerminationReason.APPROVAL_EXPIRED for row in ended)

        return self._database.write(work, stands)

    def _end(
        self, connection: Connection, run_id: UUID, source: RunStatus, target: RunStatus, reason: TerminationReason
    ) -> None:
        the_run: Values = {"the_run": run_id}
        connection.execute(settling(source, target, reason), the_run)
        self._add_steps(connection, run_id, [settled_step(target, reason)])
        forget_sealed(connection, run_id)
