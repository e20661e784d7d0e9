"""What the parts of the SQL store share: the database, the keys, and how a run is found and read."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, bindparam, insert, select, update

from byline.errors import StoreError, UnknownRun
from byline.privacy import PrivacyLevel
from byline.runs.keeping import kept
from byline.runs.status import RunStatus
from byline.runs.steps import NewStep
from byline.store.clock import now
from byline.store.database import Database
from byline.store.moves import THE_RUN
from byline.store.protocol import StoredRun
from byline.store.rows import AnyRow, seal_detail, step_values, stored_run
from byline.store.tables import decision, feed, run, step
from byline.store.vault import Sealing, Vault

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
_TURN = select(feed.c.id).with_for_update()
_STATUS = select(run.c.status).where(run.c.id == THE_RUN)
_ADD_STEP = insert(step).values(at=now())
_SET_DETAIL = update(step).where(step.c.id == bindparam("the_step")).values(detail=bindparam("sealed"))


class SqlPart:
    """A part of the SQL store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._keys: Vault | None = None

    @property
    def _sealer(self) -> Vault:
        if self._keys is None:
            raise StoreError("the store is not open")
        return self._keys

    def _sealing(self, connection: Connection) -> Sealing:
        """What seals in this transaction."""
        return Sealing(connection, self._sealer)

    def _lock(self, connection: Connection, run_id: UUID) -> AnyRow:
        """Read a run's row, all but what is sealed, so that it does not change before this transaction ends."""
        return _one(connection, _LOCK, run_id)

    def _status(self, connection: Connection, run_id: UUID) -> RunStatus:
        return RunStatus(_one(connection, _STATUS, run_id).status)

    def _read(self, connection: Connection, run_id: UUID, *, strict: bool = False) -> StoredRun:
        """Read a whole run."""
        row = _one(connection, _READ, run_id)
        return stored_run(row, self._decisions(connection, row), self._sealer, strict=strict)

    def _decisions(self, connection: Connection, row: AnyRow) -> list[AnyRow]:
        """Read the decisions on the run's latest suspension, the oldest first."""
        return list(connection.execute(_DECISIONS, {"the_run": row.id, "the_suspension": row.suspension}))

    def _add_steps(
        self, connection: Connection, run_id: UUID, steps: Iterable[NewStep], level: PrivacyLevel, *, ended: bool
    ) -> None:
        """Append what the run's level keeps of steps to its trace; of a run that has ended, only what outlives it."""
        sealed = not ended or level.keeps_content
        stored = [kept(new, level) for new in steps]
        pending = [(step_values(run_id, new), new.detail if sealed else None) for new in stored]
        if not pending:
            return
        sealing = self._sealing(connection) if any(detail for _, detail in pending) else None
        if any(values["write_kind"] for values, _ in pending):
            self._wait_for_turn(connection)  # behind the key, as everywhere: else two could wait for each other
        if sealing is None:
            connection.execute(_ADD_STEP, [values for values, _ in pending])
            return
        for values, detail in pending:
            inserted = connection.execute(_ADD_STEP, values).inserted_primary_key
            if detail and inserted:
                position = int(inserted[0])
                data = seal_detail(detail, run_id, position, sealing)
                connection.execute(_SET_DETAIL, {"the_step": position, "sealed": data})

    def _wait_for_turn(self, connection: Connection) -> None:
        """Wait until no other transaction has written a fact that it has not committed.

        Else a reader of the feed might pass a position that is not there yet, and never see it (P8). SQLite has one
        writer at a time in any case.
        """
        if not self._database.is_sqlite and connection.execute(_TURN).first() is None:
            raise StoreError(f"the one row of {feed.name}, with the id 1, is gone: put it back")


def _one(connection: Connection, query: Select[*tuple[Any, ...]], run_id: UUID) -> AnyRow:
    row = connection.execute(query, {"the_run": run_id}).one_or_none()
    if row is None:
        raise UnknownRun(f"there is no run {run_id}")
    return row
