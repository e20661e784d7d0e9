"""What the parts of the SQL store share: the database, the keys, and how a run is found and read."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, bindparam, insert, select, update

from byline.errors import StoreError, UnknownRun
from byline.runs.steps import NewStep
from byline.store.clock import now
from byline.store.database import Database
from byline.store.moves import THE_RUN
from byline.store.protocol import StoredRun
from byline.store.rows import AnyRow, seal_detail, step_values, stored_run
from byline.store.sealing import Sealer
from byline.store.tables import decision, run, step

NOW = now().label("now")
_SEALED = {run.c.turn, run.c.output}
_READ = select(run, NOW).where(run.c.id == THE_RUN)
_LOCK = select(*(column for column in run.c if column not in _SEALED), NOW).where(run.c.id == THE_RUN).with_for_update()
# Verdicts on a waiting turn bear the claim 0, and so come before those on its uncertain calls.
_DECISIONS = (
    select(decision)
    .where(decision.c.run_id == THE_RUN, decision.c.suspension == bindparam("the_suspension"))
    .order_by(decision.c.claim, decision.c.at, decision.c.id)
)
_EXISTS = select(run.c.id).where(run.c.id == THE_RUN)
_ADD_STEP = insert(step).values(at=now())
_SET_DETAIL = update(step).where(step.c.id == bindparam("the_step")).values(detail=bindparam("sealed"))


class SqlPart:
    """A part of the SQL store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._keys: Sealer | None = None

    @property
    def _sealer(self) -> Sealer:
        if self._keys is None:
            raise StoreError("the store is not open")
        return self._keys

    def _lock(self, connection: Connection, run_id: UUID) -> AnyRow:
        """Read a run's row, all but what is sealed, so that it does not change before this transaction ends."""
        return _one(connection, _LOCK, run_id)

    def _exists(self, connection: Connection, run_id: UUID) -> None:
        _one(connection, _EXISTS, run_id)

    def _read(self, connection: Connection, run_id: UUID, *, strict: bool = False) -> StoredRun:
        """Read a whole run."""
        row = _one(connection, _READ, run_id)
        return stored_run(row, self._decisions(connection, row), self._sealer, strict=strict)

    def _decisions(self, connection: Connection, row: AnyRow) -> list[AnyRow]:
        """Read the decisions on the run's latest suspension, the oldest first."""
        return list(connection.execute(_DECISIONS, {"the_run": row.id, "the_suspension": row.suspension}))

    def _add_steps(
        self, connection: Connection, run_id: UUID, steps: Iterable[NewStep], *, sealed: bool = True
    ) -> None:
        """Append steps to a run's trace; `sealed=False` leaves out their details, for a run that has ended."""
        pending = [(step_values(run_id, new), new.detail if sealed else None) for new in steps]
        if not pending:
            return
        if not any(detail for _, detail in pending):
            connection.execute(_ADD_STEP, [values for values, _ in pending])
            return
        for values, detail in pending:
            inserted = connection.execute(_ADD_STEP, values).inserted_primary_key
            if detail and inserted:
                position = int(inserted[0])
                data = seal_detail(detail, run_id, position, self._sealer)
                connection.execute(_SET_DETAIL, {"the_step": position, "sealed": data})


def _one(connection: Connection, query: Select[*tuple[Any, ...]], run_id: UUID) -> AnyRow:
    row = connection.execute(query, {"the_run": run_id}).one_or_none()
    if row is None:
        raise UnknownRun(f"there is no run {run_id}")
    return row
