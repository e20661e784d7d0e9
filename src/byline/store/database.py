"""One database: its connections, its transactions, and what is done when it does not answer."""

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import StaticPool

from byline.errors import ConfigurationError, StoreError, StoreUnavailable
from byline.store.clock import replace_clock

_ATTEMPTS = 5
_PAUSE = 0.02

T = TypeVar("T")


class Database:
    """Runs a piece of work as one transaction, again where that is safe, and finds out where an answer was lost."""

    def __init__(self, url: str, *, clock: Callable[[], float] | None, busy_timeout: float) -> None:
        self._busy_timeout = busy_timeout
        try:
            self.url = make_url(url)
            self.is_sqlite = self.url.get_backend_name() == "sqlite"
            self.engine = self._make_engine()
        except (ArgumentError, NoSuchModuleError, ImportError):
            # Neither chained nor printed: the URL may hold a password.
            raise ConfigurationError(
                "the store is named by a database URL such as sqlite:///byline.db (three slashes before the path), for "
                "a driver that is installed"
            ) from None
        self.name = self.url.render_as_string(hide_password=True)
        if clock is not None:
            replace_clock(self.engine, clock)
        # SQLite has one writer: in this process they queue here, which is fair and quicker than its polling.
        # A database in memory is one connection, so that its readers queue as well.
        turn: AbstractContextManager[object] = threading.Lock() if self.is_sqlite else nullcontext()
        self._write_turn = turn
        self._read_turn = turn if self.in_memory else nullcontext()

    def _make_engine(self) -> Engine:
        if self.is_sqlite and self.url.query:  # a path with a ? in it would open another file
            raise ConfigurationError("an SQLite URL takes no options; quote a ? or % of its path (urllib.parse.quote)")
        if not self.is_sqlite:
            return create_engine(self.url, hide_parameters=True, pool_pre_ping=True)
        if self.in_memory:
            alone = {"check_same_thread": False}
            engine = create_engine(self.url, hide_parameters=True, poolclass=StaticPool, connect_args=alone)
        else:
            patient = {"timeout": self._busy_timeout}
            engine = create_engine(self.url, hide_parameters=True, max_overflow=-1, connect_args=patient)
        event.listen(engine, "connect", _set_up_connection)
        return engine

    @property
    def in_memory(self) -> bool:
        """Whether this is SQLite without a file."""
        return self.is_sqlite and (self.url.database or ":memory:") == ":memory:"

    @property
    def path(self) -> Path | None:
        """The file of an embedded database."""
        return Path(self.url.database) if self.is_sqlite and not self.in_memory and self.url.database else None

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run a reading transaction."""
        patience = _Patience(self.name, self._busy_timeout)
        while True:
            try:
                with self._read_turn, self.engine.connect() as connection:
                    self._begin(connection, "BEGIN")
                    return work(connection)
            except (DBAPIError, PoolTimeout) as error:
                patience.spend(error)

    def write(self, work: Callable[[Connection], T], stands: Callable[[Connection, T], bool] | None = None) -> T:
        """Run a writing transaction.

        Args:
            work: what to do. It runs again if its transaction did not come to be.
            stands: looks, when COMMIT has raised, whether the transaction stands all the same (P16). None: running the
                work again on top of itself changes nothing.

        Raises:
            StoreUnavailable: the database did not answer for as long as it was asked.
            StoreError: it refused a statement: a defect.
        """
        patience = _Patience(self.name, self._busy_timeout)
        while True:
            done: tuple[T] | None = None
            try:
                with self._write_turn, self.engine.connect() as connection:
                    self._begin(connection, "BEGIN IMMEDIATE")
                    result = work(connection)
                    done = (result,)
                    connection.commit()
                    return result
            except (DBAPIError, PoolTimeout) as error:
                failure = error
            if done and stands and self.read(partial(_look, stands, done[0])):
                return done[0]
            patience.spend(failure)

    def _begin(self, connection: Connection, statement: str) -> None:
        # Said here and not in an event: an engine with listeners is slower at every statement.
        if self.is_sqlite:
            connection.exec_driver_sql(statement)


def _look(stands: Callable[[Connection, T], bool], result: T, connection: Connection) -> bool:
    return stands(connection, result)


class _Patience:
    """How often a failed transaction is tried again: a locked file until its time is up, all else a few times."""

    def __init__(self, name: str, seconds: float) -> None:
        self._name = name
        self._until = time.monotonic() + seconds
        self._attempts = _ATTEMPTS

    def spend(self, error: DBAPIError | PoolTimeout) -> None:
        """Pause before the next attempt, or give up."""
        code = _sqlite_code(error)
        advice = _ADVICE.get(code or 0)
        if advice is not None:
            raise StoreError(f"the store {self._name} {advice}") from error
        if not (isinstance(error, _TRANSIENT) or error.connection_invalidated):
            refused = f"the store {self._name} refused a statement ({type(error).__name__}): nothing was stored"
            raise StoreError(refused) from error
        self._attempts -= 1
        locked = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        if time.monotonic() >= self._until or (self._attempts <= 0 and not locked):
            raise StoreUnavailable(f"the store {self._name} did not answer ({type(error).__name__})") from error
        time.sleep(_PAUSE)


_TRANSIENT = (OperationalError, InterfaceError, PoolTimeout)
_ADVICE = {
    sqlite3.SQLITE_NOTADB: "is no SQLite database: name another file",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore a backup",
    sqlite3.SQLITE_READONLY: "is read-only: give this process the right to write the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: look at the rights on the file and its folder",
}


def _sqlite_code(error: Exception) -> int | None:
    cause = error.orig if isinstance(error, DBAPIError) else None
    # An error of the module itself, and not of SQLite, has no code.
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF if isinstance(cause, sqlite3.Error) else None


def _set_up_connection(connection: DBAPIConnection, _record: object) -> None:
    connection.isolation_level = None  # BEGIN is ours: sqlite3 would begin late, and never for a SELECT
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")  # readers and the writer do not wait for each other
    cursor.execute("PRAGMA synchronous=FULL")  # and a COMMIT is on the disk all the same
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
