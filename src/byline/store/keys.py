"""The administration of a store's keys: list, add, activate, reseal, drop. Each beside running workers.

    add        the key is in the file, then known to the store: workers unseal with it when they meet it
    activate   one row says which key seals: every transaction that seals reads it
    reseal     what is sealed with another key is sealed anew, in small transactions that compare and swap
    drop       closed first: nothing can be sealed with it any more; then looked for; then out of the file

Each can be interrupted anywhere and asked again. The store keeps ids, never a key.
"""

import logging
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from sqlalchemy import Connection, bindparam, insert, null, select, update

from byline.errors import ConfigurationError, KeyInUse, KeyMissing, SealBroken, StoreError, UnknownKey
from byline.store.clock import now
from byline.store.database import Database
from byline.store.rows import AnyRow, Values
from byline.store.sealed import SealedColumn, count_by_key, count_of, pages
from byline.store.sealing import KeyRing, is_key_id, key_id_of
from byline.store.tables import key, message
from byline.store.vault import Vault

_log = logging.getLogger(__name__)

BATCH = 100
"""How many values are sealed anew in one transaction."""

_KEYS = select(key).order_by(key.c.id)
_KNOWN = select(key.c.id).where(key.c.id.in_(bindparam("the_keys", expanding=True)), key.c.closed_at.is_(None)).limit(1)
_LOCKED = select(key).where(key.c.id == bindparam("the_key")).with_for_update()
_ACTIVE = select(key.c.id).where(key.c.active == 1)
_ADD = insert(key)
_DEACTIVATE = update(key).where(key.c.active == 1).values(active=null())
_ACTIVATE = update(key).where(key.c.id == bindparam("the_key"), key.c.closed_at.is_(None)).values(active=1)
_CLOSE = (
    update(key)
    .where(key.c.id == bindparam("the_key"), key.c.active.is_(None), key.c.closed_at.is_(None))
    .values(closed_at=now())
)
_A_MESSAGE = select(message.c.body).limit(1)


class KeyState(StrEnum):
    """What the store does with a key."""

    ACTIVE = "active"
    """It seals."""
    STANDBY = "standby"
    """It unseals, and seals only in a process that lacks the active one."""
    CLOSED = "closed"
    """Nothing can be sealed with it any more: it is dropped, or a drop of it was interrupted."""
    UNKNOWN = "unknown"
    """It is here, or a value needs it, and the store was never told of it."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as the store and this process see it.

    Attributes:
        key_id: its id.
        state: what the store does with it.
        here: whether this process has it.
        values: how many sealed values need it.
    """

    key_id: str
    state: KeyState
    here: bool
    values: int


@dataclass(frozen=True, slots=True)
class AddedKey:
    """A key that was added.

    Attributes:
        key_id: its id.
        file: the key file that holds it now. None: the keys come from elsewhere, and it is to be put there.
        ring: the key itself, as `KeyRing.parse` reads it.
    """

    key_id: str
    file: Path | None
    ring: KeyRing = field(repr=False)


@dataclass(frozen=True, slots=True)
class Resealed:
    """How far a reseal has come.

    Attributes:
        total: how many values were sealed with another key when it began.
        done: how many it has sealed anew.
        moved_on: how many were changed or deleted by others meanwhile.
        unreadable: how many do not open: their key is not here, or they were damaged.
    """

    total: int
    done: int = 0
    moved_on: int = 0
    unreadable: int = 0


class KeyAdministration:
    """The keys of an open SQL store: `SqlStore.keys`."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database = database
        self._vault = vault

    @property
    def file(self) -> Path | None:
        """The key file. None: the keys come from `BYLINE_KEYS` or `keys=`."""
        return None if self._vault.file is None else self._vault.file.path

    def list(self) -> Sequence[StoredKey]:
        """List the keys that the store knows, that are here, or that a value needs."""
        here = self._here()

        def work(connection: Connection) -> Sequence[StoredKey]:
            states = {row.id: _state_of(row) for row in connection.execute(_KEYS)}
            needed = count_by_key(connection, sorted(states.keys() | here))
            return [
                StoredKey(key_id, states.get(key_id, KeyState.UNKNOWN), key_id in here, values)
                for key_id, values in sorted(needed.items())
            ]

        return self._database.read(work)

    def add(self, given: KeyRing | None = None) -> AddedKey:
        """Add a key, for `activate`. Nothing is sealed with it yet.

        Where the keys are in a file, the key is put there, and the store is told of its id. One that is in the file
        already, because adding it was interrupted, is taken before another is made. Where they come from elsewhere,
        nothing is stored: the caller puts the new key there.

        Args:
            given: a ring of one key; None makes a random one.

        Raises:
            ConfigurationError: more than one key was given, or its id is known already.
            StoreError: the key file cannot be replaced.
        """
        if given is not None and len(given.keys) != 1:
            raise ConfigurationError("keys are added one at a time")
        file = self._vault.file
        new = given or KeyRing.generate()
        if file is None:
            if new.active in self._vault.ring.keys or new.active in self._database.read(_ids):
                raise ConfigurationError(f"there is a key {new.active!r} already: an id is given once")
            return AddedKey(new.active, None, new)

        def work(connection: Connection) -> str:
            # The database's write lock is what keeps two administrators from the file at once.
            ring, known = file.load(), _ids(connection)
            left = sorted(ring.keys.keys() - known)
            key_id = left[0] if given is None and left else new.active
            if key_id in ring.keys:
                if given is not None and ring.keys[key_id] != new.keys[key_id]:
                    raise ConfigurationError(f"the key file holds another key {key_id!r}: an id is given once")
            elif key_id in known:
                raise ConfigurationError(f"the store knows a key {key_id!r} already: an id is given once")
            else:
                file.replace(ring.with_key(key_id, new.keys[key_id]))
            if key_id not in known:
                connection.execute(_ADD, {"id": key_id})
            return key_id

        key_id = self._database.write(work, lambda connection, added: added in _ids(connection))
        self._vault.holds(key_id)
        return AddedKey(key_id, file.path, KeyRing({key_id: self._vault.ring.keys[key_id]}, key_id))

    def activate(self, key_id: str) -> None:
        """Let a key seal from now on, in every process that has it. The others stay, and unseal.

        Raises:
            KeyMissing: it is not here.
            KeyInUse: it is closed.
        """
        if not self._vault.holds(key_id):
            raise KeyMissing(f"the key {key_id!r} is not here: add it first, in every process")

        def work(connection: Connection) -> None:
            row = connection.execute(_LOCKED, {"the_key": key_id}).one_or_none()
            if row is None:
                connection.execute(_ADD, {"id": key_id})
            elif row.closed_at is not None:
                raise KeyInUse(f"the key {key_id!r} is closed: it was dropped, or is being dropped")
            connection.execute(_DEACTIVATE)
            if connection.execute(_ACTIVATE, {"the_key": key_id}).rowcount != 1:
                raise StoreError(f"the key {key_id!r} changed under its lock; nothing was stored")

        self._database.write(work, lambda connection, _: _active(connection) == key_id)

    def reseal(self, progress: Callable[[Resealed], None] | None = None, *, batch: int = BATCH) -> Resealed:
        """Seal anew, with the active key, whatever is sealed with another one.

        Each batch is a transaction, in which a value that somebody changed meanwhile stays as they left it. Behind each
        it pauses for as long as that took, so that others come to write. What one call did not come to, the next one
        does.

        Args:
            progress: told after each batch.
            batch: how many values one transaction takes.

        Raises:
            KeyMissing: the active key is not here, or another became active meanwhile that is not.
        """
        active = self._database.read(_active)
        if active is None or not self._vault.holds(active):
            raise KeyMissing(f"the store's active key {active!r} is not here: do this where it is")
        total, sealed = self._database.read(lambda connection: count_of(connection, active))
        so_far = Resealed(total - sealed)
        for column, rows in pages(self._database.read, active, batch):
            began = time.monotonic()
            so_far = self._reseal(column, rows, so_far)
            took = time.monotonic() - began
            if progress is not None:
                progress(so_far)
            time.sleep(took)  # who waits for SQLite's one lock only looks now and then whether it is free
        return so_far

    def _reseal(self, column: SealedColumn, rows: Sequence[AnyRow], so_far: Resealed) -> Resealed:
        def work(connection: Connection) -> Resealed:
            # With none that stands in for it: what that one sealed would be said to be done.
            sealer = self._vault.active_sealer(connection)
            done = moved_on = unreadable = 0
            for row in rows:
                try:
                    data = self._vault.unseal(row.sealed, *column.place(row))
                except (KeyMissing, SealBroken) as error:
                    _log.warning("A value stays as it is: %s", error, extra={"action": "not_resealed"})
                    unreadable += 1
                    continue
                anew = column.replacement(row, sealer.seal(data, *column.place(row)))
                replaced = connection.execute(column.replacing(), anew).rowcount
                done, moved_on = done + replaced, moved_on + 1 - replaced
            return replace(
                so_far,
                done=so_far.done + done,
                moved_on=so_far.moved_on + moved_on,
                unreadable=so_far.unreadable + unreadable,
            )

        return self._database.write(work)

    def drop(self, key_id: str) -> None:
        """Forget a key: close it, so that nothing can be sealed with it, and take it out of the key file.

        Where the keys come from elsewhere, the caller takes it away there.

        Raises:
            KeyInUse: it is the active one, or a value needs it. The message says what to do.
            KeyMissing: the active key is not here, so that nothing here could seal any more.
            UnknownKey: the store does not know it, and it is not here.
        """
        if not is_key_id(key_id):  # not every database can be asked for such a text
            raise UnknownKey(f"there is no key {key_id!r}")
        row = self._database.read(lambda connection: _row_of(connection, key_id))
        if row is None and not self._vault.holds(key_id):
            raise UnknownKey(f"there is no key {key_id!r}")
        active, here = self._database.read(_active), self._here()
        if active is not None and active not in here:  # before anything is closed: a refusal changes nothing
            raise KeyMissing(
                f"the store's active key {active!r} is not here: restore it, or activate another, then drop"
            )
        if row is None or row.closed_at is None:
            self._expect_unneeded(key_id)
            self._database.write(lambda connection: _close(connection, key_id))
        # From here on nothing is sealed with it: what is not found now never comes.
        self._expect_unneeded(key_id)
        self._database.write(lambda _: self._take_out(key_id))

    def _here(self) -> Set[str]:
        """The ids of the keys that are here: in the file as it is now, or in this process."""
        file = self._vault.file
        return (self._vault.ring if file is None else file.load()).keys.keys()

    def _expect_unneeded(self, key_id: str) -> None:
        _, values = self._database.read(lambda connection: count_of(connection, key_id))
        if values:
            needed = "1 value needs" if values == 1 else f"{values} values need"
            raise KeyInUse(f"{needed} the key {key_id!r}: reseal, then drop it")

    def _take_out(self, key_id: str) -> None:
        """Take a key out of the file, under the database's write lock."""
        file = self._vault.file
        if file is not None and key_id in (ring := file.load()).keys:
            file.replace(ring.without(key_id))


def adopt(database: Database, ring: KeyRing) -> None:
    """Let a store begin with the keys of the process that opens it, if it knows none of them.

    A store is new, or has lost its keys while nothing waited. Where something waits that these keys do not open,
    they are wrong: they may read what they can, and seal nothing.
    """
    the_keys = {"the_keys": sorted(ring.keys)}
    if database.read(lambda connection: connection.execute(_KNOWN, the_keys).first()) is not None:
        return

    def work(connection: Connection) -> None:
        sealed = connection.execute(_A_MESSAGE).scalar()
        fresh = ring.keys.keys() - _ids(connection)
        # Known by now, closed for ever, or wrong.
        if len(fresh) < len(ring.keys) or (sealed is not None and key_id_of(bytes(sealed)) not in ring.keys):
            return
        before = _active(connection)
        if before is not None:
            extra = {"action": "active_key_replaced", "key_id": ring.active}
            _log.warning(
                "The store's key %r is not here, and nothing waits: %r is active now", before, ring.active, extra=extra
            )
        connection.execute(_DEACTIVATE)
        rows: list[Values] = [
            {"id": key_id, "active": 1 if key_id == ring.active else None} for key_id in sorted(fresh)
        ]
        connection.execute(_ADD, rows)

    database.write(work)


def _close(connection: Connection, key_id: str) -> None:
    row = connection.execute(_LOCKED, {"the_key": key_id}).one_or_none()
    if row is None:
        connection.execute(_ADD, {"id": key_id})
    elif row.active is not None:
        raise KeyInUse(f"the key {key_id!r} is the active one: activate another, reseal, then drop it")
    connection.execute(_CLOSE, {"the_key": key_id})


def _active(connection: Connection) -> str | None:
    return connection.execute(_ACTIVE).scalar()


def _row_of(connection: Connection, key_id: str) -> AnyRow | None:
    return connection.execute(select(key).where(key.c.id == key_id)).one_or_none()


def _ids(connection: Connection) -> set[str]:
    return {row.id for row in connection.execute(_KEYS)}


def _state_of(row: AnyRow) -> KeyState:
    if row.closed_at is not None:
        return KeyState.CLOSED
    return KeyState.STANDBY if row.active is None else KeyState.ACTIVE
