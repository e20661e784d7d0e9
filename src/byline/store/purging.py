"""Deleting what is kept for no longer: answers, content and traces, and in the end provenance (P23)."""

from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Connection, Delete, Select, Update, bindparam, delete, null, select, update

from byline.runs.status import TERMINAL, RunStatus, TerminationReason
from byline.store.changes import milliseconds
from byline.store.clock import now
from byline.store.moves import THE_RUNS, settling_all
from byline.store.part import SqlPart
from byline.store.protocol import Purged
from byline.store.rows import AnyRow
from byline.store.tables import decision, late_report, message, run, step

_SETTLED: Final = [status.value for status in (*sorted(TERMINAL), RunStatus.DEAD_LETTER)]
_OLD = run.c.updated_at <= now() - bindparam("age", type_=run.c.updated_at.type)  # nothing updates a run that has ended


_OLDEST = (
    select(run.c.id, run.c.status)
    .where(_OLD)
    .order_by(run.c.updated_at)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True)
)
_RETAINED = _OLDEST.where(run.c.purged_at.is_(None), run.c.status.in_(_SETTLED))
_PURGED = _OLDEST.where(run.c.purged_at.is_not(None))
_ANSWERED = _OLDEST.where(run.c.output.is_not(None))
# They ended when they stood still: what is left of them is kept from then on.
_GIVE_UP = settling_all(RunStatus.DEAD_LETTER, RunStatus.FAILED, TerminationReason.RETENTION).values(
    updated_at=run.c.updated_at
)
_DROP_OUTPUTS = (update(run).where(run.c.id.in_(THE_RUNS)).values(output=null()),)
# What stays of a run: its row (who it acted for, how it ended), its WRITE facts, and who decided what.
_DROP_CONTENT = (
    delete(message).where(message.c.run_id.in_(THE_RUNS)),
    delete(step).where(step.c.run_id.in_(THE_RUNS), step.c.write_kind.is_(None)),
    update(step).where(step.c.run_id.in_(THE_RUNS), step.c.detail.is_not(None)).values(detail=null()),
    update(decision).where(decision.c.run_id.in_(THE_RUNS), decision.c.reason.is_not(None)).values(reason=null()),
    update(run).where(run.c.id.in_(THE_RUNS)).values(output=null(), purged_at=now()),
)
_DROP_ALL = (
    *(delete(table).where(table.c.run_id.in_(THE_RUNS)) for table in (message, step, decision, late_report)),
    delete(run).where(run.c.id.in_(THE_RUNS)),
)


class Purges(SqlPart):
    """The part of the store that forgets. A batch is one transaction, of as many queries however many runs it holds."""

    def purge(self, limit: int, *, older_than: float) -> Purged:
        """Delete the content and the trace of runs that ended long ago; their provenance stays."""

        def drop(connection: Connection, found: Sequence[AnyRow]) -> Purged:
            _execute(connection, (_GIVE_UP, *_DROP_CONTENT), found)
            return Purged(runs=len(found), dead_letters=sum(row.status == RunStatus.DEAD_LETTER for row in found))

        return self._emptied(self._batch(_RETAINED, limit, older_than, drop), limit)

    def purge_provenance(self, limit: int, *, older_than: float) -> Purged:
        """Delete all that is left of runs whose content was purged, and which ended still longer ago."""

        def drop(connection: Connection, found: Sequence[AnyRow]) -> Purged:
            _execute(connection, _DROP_ALL, found)
            return Purged(forgotten=len(found))

        return self._emptied(self._batch(_PURGED, limit, older_than, drop), limit)

    def purge_outputs(self, limit: int, *, older_than: float) -> Purged:
        """Delete the answers of runs that were completed long ago."""

        def drop(connection: Connection, found: Sequence[AnyRow]) -> Purged:
            _execute(connection, _DROP_OUTPUTS, found)
            return Purged(outputs=len(found))

        return self._batch(_ANSWERED, limit, older_than, drop)

    def _batch(
        self,
        oldest: Select[*tuple[Any, ...]],
        limit: int,
        older_than: float,
        drop: Callable[[Connection, Sequence[AnyRow]], Purged],
    ) -> Purged:
        def work(connection: Connection) -> Purged:
            found = connection.execute(oldest, {"age": milliseconds(older_than), "at_most": limit}).all()
            return drop(connection, found) if found else Purged()

        return self._database.write(work)

    def _emptied(self, purged: Purged, limit: int) -> Purged:
        """Behind the last batch, leave nothing of what was deleted in a log either."""
        if purged.runs + purged.forgotten < limit:
            self._database.empty_log()
        return purged


def _execute(connection: Connection, statements: Sequence[Delete | Update], found: Sequence[AnyRow]) -> None:
    the_runs: list[UUID] = [row.id for row in found]
    for statement in statements:
        connection.execute(statement, {"the_runs": the_runs})
