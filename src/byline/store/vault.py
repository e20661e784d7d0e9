"""The keys of an open store: which one seals is the store's to know, and a key file that changed is read again."""

import logging
import threading
from uuid import UUID

from sqlalchemy import Connection, bindparam, select

from byline.errors import KeyMissing, StoreError
from byline.store.keyfile import KeyFile, Stamp
from byline.store.sealing import KeyRing, Sealer, key_id_of
from byline.store.tables import key

_log = logging.getLogger(__name__)

_LOOKS = 5
"""Looks for the active key: on a server, one that waited behind an activation finds neither the old one nor the new."""

# The rows stay locked until the transaction ends: a key cannot be closed between this and the COMMIT.
_ACTIVE = select(key.c.id).where(key.c.active == 1).with_for_update(read=True)
_OPEN = (
    select(key.c.id, key.c.active)
    .where(key.c.id.in_(bindparam("the_keys", expanding=True)), key.c.closed_at.is_(None))
    .with_for_update(read=True)
)


class Vault:
    """The keys that this process has. Safe to use from any thread.

    Args:
        ring: the keys.
        file: where they were read, and are read again once it has changed; None if they came from elsewhere.
        stamp: the file's, from before it was read.
    """

    def __init__(self, ring: KeyRing, file: KeyFile | None = None, stamp: Stamp | None = None) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._stamp = stamp
        self._ring = ring
        self._sealers = {ring.active: Sealer(ring)}
        self._warned: set[str] = set()

    @classmethod
    def of_file(cls, file: KeyFile) -> "Vault":
        """The keys of a key file, which is made if there is none.

        Raises:
            StoreError: it cannot be used.
        """
        stamp = file.stamp()
        return cls(file.load_or_make(), file, stamp)

    def __repr__(self) -> str:
        return f"Vault({self._ring!r})"

    @property
    def ring(self) -> KeyRing:
        """The keys, read again if their file has changed."""
        self._read_again()
        return self._ring

    def unseal(self, sealed: bytes, table: str, column: str, run_id: UUID, owner: object = "") -> bytes:
        """Unseal a value of one place, as `Sealer` does."""
        key_id = key_id_of(sealed)
        if key_id is not None:
            self.holds(key_id)
        return self._sealer(self._ring.active).unseal(sealed, table, column, run_id, owner)

    def holds(self, key_id: str) -> bool:
        """Whether this key is here. Looks whether the file has changed, if it is not."""
        return key_id in self._ring.keys or (self._read_again() and key_id in self._ring.keys)

    def active_sealer(self, connection: Connection) -> Sealer:
        """The sealer of this transaction with the store's active key, and no other.

        Raises:
            KeyMissing: it is not here.
        """
        active = None
        for _ in range(_LOOKS):
            active = connection.execute(_ACTIVE).scalar()
            if active is not None:
                break
        if active is None or not self.holds(active):
            raise KeyMissing(f"the store's active key {active!r} is not here: do this where it is")
        return self._sealer(active)

    def sealer_for(self, connection: Connection) -> Sealer:
        """The sealer of this transaction: with the store's active key, or another that is not closed.

        Raises:
            KeyMissing: no key that is here may seal.
        """
        active = connection.execute(_ACTIVE).scalar()
        if active is not None and self.holds(active):
            return self._sealer(active)
        ring = self.ring
        rows = connection.execute(_OPEN, {"the_keys": sorted(ring.keys)}).all()
        # Another may have become active meanwhile; else the one that the ring itself names comes first.
        usable = sorted(rows, key=lambda row: (row.active != 1, row.id != ring.active, row.id))
        if not usable:
            raise KeyMissing(
                f"no key that is here may seal: the store's is {active!r}. Restore it, or let one that is here take "
                "its place with `store.keys.activate`"
            )
        if active is not None and active not in self._warned:
            self._warned.add(active)
            extra = {"action": "active_key_missing", "key_id": active}
            _log.warning(
                "The store's active key %r is not here; %r seals in its place", active, usable[0].id, extra=extra
            )
        return self._sealer(usable[0].id)

    def _sealer(self, key_id: str) -> Sealer:
        with self._lock:
            sealer = self._sealers.get(key_id)
            if sealer is None:
                sealer = self._sealers[key_id] = Sealer(self._ring.led_by(key_id))
            return sealer

    def _read_again(self) -> bool:
        """Read the key file if it has changed. Returns whether it was read."""
        if self.file is None:
            return False
        with self._lock:
            stamp = self.file.stamp()
            if stamp == self._stamp:
                return False
            self._stamp = stamp  # what cannot be read is told once, and tried again when it changes
            try:
                ring = self.file.load()
            except StoreError as error:
                _log.warning("The keys cannot be read again: %s", error, extra={"action": "keys_not_read"})
                return False
            # What this process had stays: a value that was read a moment ago may need it.
            self._ring, self._sealers = KeyRing({**self._ring.keys, **ring.keys}, ring.active), {}
            return True


class Sealing:
    """Seals within one transaction. Which key does is looked up with the first value."""

    def __init__(self, connection: Connection, vault: Vault) -> None:
        self._connection = connection
        self._vault = vault
        self._sealer: Sealer | None = None

    def seal(self, data: bytes, table: str, column: str, run_id: UUID, owner: object = "") -> bytes:
        """Seal a value for one place, as `Sealer` does.

        Raises:
            KeyMissing: no key that is here may seal.
        """
        if self._sealer is None:
            self._sealer = self._vault.sealer_for(self._connection)
        return self._sealer.seal(data, table, column, run_id, owner)
