"""The store over SQLAlchemy Core: one code path for every database."""

import threading
from collections.abc import Callable

from sqlalchemy import Engine

from byline.errors import KeyMissing
from byline.store.database import Database
from byline.store.endings import EndingWrites
from byline.store.keyfile import KeyFile
from byline.store.keys import KeyAdministration, adopt
from byline.store.opening import holds_sealed, prepare, revision_of, upgrade
from byline.store.purging import Purges
from byline.store.reads import Reads
from byline.store.sealing import ENVIRONMENT_VARIABLE, KeyRing
from byline.store.segments import SegmentWrites
from byline.store.vault import Vault
from byline.store.verdicts import VerdictWrites


class SqlStore(SegmentWrites, VerdictWrites, EndingWrites, Purges, Reads):
    """A `RunStore` in a SQL database. What the methods do and raise is said there.

    Args:
        url: a database URL as SQLAlchemy reads it, such as `sqlite:///byline.db`; `sqlite://` is in memory, and gone
            when the store closes.
        keys: what sealed values are sealed with. None: the keys of `BYLINE_KEYS`; without it, those of the key file
            beside an embedded file (`byline.db.key`, made with the file), or a random key in memory.
        clock: seconds since the epoch in the place of the database's clock: for tests.
        busy_timeout: how many seconds to wait for a database that another process has locked.

    Raises:
        ConfigurationError: the URL is none.
    """

    def __init__(
        self,
        url: str,
        *,
        keys: KeyRing | None = None,
        clock: Callable[[], float] | None = None,
        busy_timeout: float = 10.0,
    ) -> None:
        super().__init__(Database(url, clock=clock, busy_timeout=busy_timeout))
        self._ring = keys
        self._opening = threading.Lock()

    def __repr__(self) -> str:
        return f"SqlStore({self._database.name!r})"

    @property
    def engine(self) -> Engine:
        """SQLAlchemy's engine: for what the store does not do, and for faults injected by tests."""
        return self._database.engine

    @property
    def concurrency(self) -> int:
        """How many threads may usefully call at once."""
        return 1 if self._database.is_sqlite else 4

    @property
    def keys(self) -> KeyAdministration:
        """The store's keys: list, add, activate, reseal, drop.

        Raises:
            StoreError: the store is not open.
        """
        return KeyAdministration(self._database, self._sealer)

    def open(self) -> None:
        """Connect, and bring an embedded file up to date. A second call does nothing."""
        with self._opening:
            if self._keys is None:
                prepare(self._database)
                vault = Vault(self._ring) if self._ring is not None else self._find_keys()
                adopt(self._database, vault.ring)
                self._keys = vault

    def upgrade(self) -> None:
        """Bring the schema to this version's revision: what `open` does for an embedded file, and for no server.

        Raises:
            SchemaMismatch: it is newer than this version of Byline.
            StoreError: the database refused it.
        """
        self._database.write(upgrade)

    def schema_revision(self) -> str | None:
        """Read the schema's revision; None of a database in which Byline has no tables yet."""
        return self._database.read(revision_of)

    def close(self) -> None:
        """Disconnect. A second call does nothing."""
        with self._opening:
            self._keys = None
            self.engine.dispose()

    def _find_keys(self) -> Vault:
        ring = KeyRing.from_environment()
        if ring is not None:
            return Vault(ring)
        if self._database.in_memory:
            return Vault(KeyRing.generate())
        if self._database.path is not None:
            key_file = KeyFile.of(self._database.path)
            # Looked for again: another process may have made it meanwhile, and have sealed something since.
            if not key_file.path.exists() and self._database.read(holds_sealed) and not key_file.path.exists():
                raise KeyMissing(
                    f"{self._database.name} holds sealed content, and its key file {key_file.path} is not there: "
                    f"restore it, or set {ENVIRONMENT_VARIABLE}"
                )
            return Vault.of_file(key_file)
        raise KeyMissing(f"a store on a server takes its keys from {ENVIRONMENT_VARIABLE}: set it to id:base64")
