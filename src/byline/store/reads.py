"""What is read of the store. Every list is a range of an index, from a cursor, of a constant number of queries."""

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, Select, bindparam, func, literal, or_, select, union_all

from byline.errors import InvalidIdentifier
from byline.records import RecordReference
from byline.runs.status import TERMINAL, RunStatus
from byline.runs.steps import Step, WriteFact
from byline.store.clock import now, to_datetime, to_milliseconds
from byline.store.moves import THE_RUN
from byline.store.part import NOW, SqlPart
from byline.store.protocol import Claimable, LateReport, StoredRun, Trace
from byline.store.rows import AnyRow, Values, report_of, step_of, stored_run, write_fact_of
from byline.store.tables import decision, late_report, run, step

_LAST_ID: Final = UUID(int=2**128 - 1)
_CURSOR = re.compile(r"1-(0|[1-9][0-9]{0,17})")

_DUE = (
    select(run.c.id, run.c.due_at)
    .where(
        run.c.agent == bindparam("of"),
        run.c.due_at >= bindparam("since"),
        or_(run.c.due_at > bindparam("since"), run.c.id > bindparam("beyond", type_=run.c.id.type)),
    )
    .order_by(run.c.due_at, run.c.id)
    .limit(bindparam("at_most"))
)
_QUEUED = _DUE.where(run.c.status == RunStatus.QUEUED.value, run.c.due_at <= now())
_EXPIRED_LEASE = _DUE.where(run.c.status == RunStatus.RUNNING.value, run.c.due_at <= now())
_RUNS = select(run, NOW).where(run.c.id < bindparam("before")).order_by(run.c.id.desc()).limit(bindparam("at_most"))
_DECISIONS_OF_RUNS = (
    select(decision)
    .join(run, (decision.c.run_id == run.c.id) & (decision.c.suspension == run.c.suspension))
    .where(run.c.id.in_(bindparam("the_runs", expanding=True)))
    .order_by(decision.c.claim, decision.c.at, decision.c.id)
)
_STEPS = (
    select(step)
    .where(step.c.run_id == THE_RUN, step.c.id > bindparam("position"))
    .order_by(step.c.id)
    .limit(bindparam("at_most"))
)
_STANDING = {
    status: select(run.c.updated_at)
    .where(run.c.status == status.value)
    .order_by(run.c.id)
    .limit(bindparam("at_most"))
    .subquery(status.value)
    for status in RunStatus
    if status not in TERMINAL
}
_CENSUS = union_all(
    *(
        select(
            literal(status.value).label("status"),
            func.count().label("runs"),
            func.min(at.c.updated_at).label("since"),
            NOW,
        ).select_from(at)
        for status, at in _STANDING.items()
    )
)
_REPORTS = select(late_report).order_by(late_report.c.id.desc()).limit(bindparam("at_most"))
_CONFLICTS = _REPORTS.where(late_report.c.conflict.is_(True))


class Reads(SqlPart):
    """The part of the store that only reads."""

    def claimable(self, limit: int, *, agents: Collection[str], after: Claimable | None = None) -> Sequence[Claimable]:
        """List runs of these agents that are QUEUED or RUNNING under an expired lease, the longest waiting first."""
        since, beyond = (-1, None) if after is None else (to_milliseconds(after.since), after.run_id)

        def work(connection: Connection) -> list[Claimable]:
            found: list[AnyRow] = []
            for agent in agents:
                due: Values = {"of": agent, "since": since, "beyond": beyond, "at_most": limit}
                found += connection.execute(_QUEUED, due)
                found += connection.execute(_EXPIRED_LEASE, due)
            return sorted(Claimable(to_datetime(row.due_at), row.id) for row in found)[:limit]

        return self._database.read(work)

    def get(self, run_id: UUID) -> StoredRun:
        """Read one run."""
        return self._database.read(lambda connection: self._read(connection, run_id))

    def list_runs(
        self, *, status: RunStatus | None, agent: str | None, after: UUID | None, limit: int
    ) -> Sequence[StoredRun]:
        """List runs, newest first, those after (older than) the run `after`."""
        query = _RUNS
        if status is not None:
            query = query.where(run.c.status == status.value)
        if agent is not None:
            query = query.where(run.c.agent == agent)

        def work(connection: Connection) -> list[StoredRun]:
            rows = connection.execute(query, {"before": after or _LAST_ID, "at_most": limit}).all()
            decisions: dict[UUID, list[AnyRow]] = {row.id: [] for row in rows}
            if rows:
                for said in connection.execute(_DECISIONS_OF_RUNS, {"the_runs": [row.id for row in rows]}):
                    decisions[said.run_id].append(said)
            return [stored_run(row, decisions[row.id], self._sealer) for row in rows]

        return self._database.read(work)

    def list_steps(self, run_id: UUID, *, after: int, limit: int) -> Sequence[Step]:
        """List steps of a run with a position above `after`."""
        return self.trace(run_id, after=after, limit=limit).steps

    def trace(self, run_id: UUID, *, after: int, limit: int) -> Trace:
        """List steps of a run with a position above `after`, and say whether it has ended.

        Whoever adds steps holds the run's row from before its first one to its COMMIT: so their positions are in the
        order in which they are seen.
        """

        def work(connection: Connection) -> Trace:
            status = self._status(connection, run_id)  # before the steps: those that came with an end are seen then
            rows = connection.execute(_STEPS, {"the_run": run_id, "position": after, "at_most": limit})
            return Trace([step_of(row, self._sealer) for row in rows], status.is_terminal)

        return self._database.read(work)

    def writes(
        self,
        *,
        after: str | None,
        table: str | None,
        record: RecordReference | None,
        since: datetime | None,
        limit: int,
    ) -> Sequence[WriteFact]:
        """List announced writes behind the cursor, in an order in which a reader never misses a late commit."""
        query = _writes(after, table, record, since).limit(limit)

        def work(connection: Connection) -> list[WriteFact]:
            return [write_fact_of(row, f"1-{row.id}") for row in connection.execute(query)]

        return self._database.read(work)

    def census(self, limit: int) -> Sequence[tuple[RunStatus, int, float]]:
        """Count the runs that have not ended."""

        def work(connection: Connection) -> list[tuple[RunStatus, int, float]]:
            return [
                (RunStatus(row.status), row.runs, 0.0 if row.since is None else max(0, row.now - row.since) / 1000)
                for row in connection.execute(_CENSUS, {"at_most": limit})
            ]

        return self._database.read(work)

    def late_reports(self, *, conflicts_only: bool, limit: int) -> Sequence[LateReport]:
        """List late reports, newest first."""
        query = _CONFLICTS if conflicts_only else _REPORTS
        return self._database.read(
            lambda connection: [report_of(row) for row in connection.execute(query, {"at_most": limit})]
        )


def _writes(
    after: str | None, table: str | None, record: RecordReference | None, since: datetime | None
) -> Select[*tuple[object, ...]]:
    """Select WRITE steps in the order of their commits.

    It is the order of their positions, since whoever writes one holds the feed until the COMMIT. The cursor is
    versioned, so that another order, and another cursor, can take its place.
    """
    query = select(step).where(step.c.write_kind.is_not(None), step.c.id > _position(after)).order_by(step.c.id)
    if record is not None:
        query = query.where(step.c.record_table == record.table, step.c.record_uid == str(record.uid))
    if table is not None:
        query = query.where(step.c.record_table == table)
    if record is None and table is None:
        query = query.where(step.c.kind == "write")
    if since is not None:
        if since.tzinfo is None:
            raise InvalidIdentifier("since is a time with a time zone")
        recent = (step.c.write_kind.is_not(None), step.c.kind == "write", step.c.at >= to_milliseconds(since))
        query = query.where(*recent[2:])
        if after is None:  # begin where the answer begins, not where the feed does
            query = query.where(step.c.id >= select(func.min(step.c.id)).where(*recent).scalar_subquery())
    return query


def _position(cursor: str | None) -> int:
    if cursor is None:
        return 0
    found = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    if found is None:
        raise InvalidIdentifier("the cursor is none of this feed's: hand back WriteFact.cursor as it came")
    return int(found[1])
