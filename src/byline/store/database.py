"""One database: its connections, its transactions, and what is done when it does not answer."""

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from byline.errors import ConfigurationError, StoreError, StoreUnavailable
from byline.store.clock import replace_clock
from byline.store.engines import is_in_memory, make_engine

_ATTEMPTS = 5
_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
_MAX_SAID = 300
"""Most characters of what a server said."""

T = TypeVar("T")


class Database:
    """Runs a piece of work as one transaction, again where that is safe, and finds out where an answer was lost."""

    def __init__(self, url: str, *, clock: Callable[[], float] | None, busy_timeout: float) -> None:
        self._busy_timeout = busy_timeout
        made = _make(url, busy_timeout)
        if made is None:
            raise ConfigurationError(
                "the store is named by a database URL such as sqlite:///byline.db (three slashes before the path), "
                "postgresql://… or mariadb://…"
            )
        self.url, self.engine = made
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.name = _name_of(self.url)
        if clock is not None:
            replace_clock(self.engine, clock)
        # SQLite has one writer: in this process they queue here, which is fair and quicker than its polling.
        # A database in memory is one connection, so that its readers queue as well.
        turn: AbstractContextManager[object] = threading.Lock() if self.is_sqlite else nullcontext()
        self._write_turn = turn
        self._read_turn = turn if self.in_memory else nullcontext()

    @property
    def in_memory(self) -> bool:
        """Whether this is SQLite without a file."""
        return is_in_memory(self.url)

    @property
    def path(self) -> Path | None:
        """The file of an embedded database."""
        return Path(self.url.database) if self.is_sqlite and not self.in_memory and self.url.database else None

    def reach(self) -> None:
        """Connect, once.

        Raises:
            StoreUnavailable: the server cannot be reached, or lets nobody in by this URL. The message says why.
        """
        try:
            with self._connected():
                pass
        except DBAPIError as error:
            said = " ".join(str(error.orig).split())
            for secret in _secrets_of(self.url):
                said = said.replace(secret, "***")
            failed = f"the store {self.name} cannot be reached: {said[:_MAX_SAID]}"
        else:
            return
        raise StoreUnavailable(failed)  # out here: what the driver raised may hold the password

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run a reading transaction."""
        patience = _Patience(self.name, self._busy_timeout, alone=self.is_sqlite)
        while True:
            try:
                with self._read_turn, self._connected() as connection:
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
        patience = _Patience(self.name, self._busy_timeout, alone=self.is_sqlite)
        while True:
            done: tuple[T] | None = None
            try:
                with self._write_turn, self._connected() as connection:
                    self._begin(connection, "BEGIN IMMEDIATE")
                    result = work(connection)
                    done = (result,)
                    self._commit(connection)
                    return result
            except (DBAPIError, PoolTimeout) as error:
                failure = error
            if done and stands and self.read(partial(_look, stands, done[0])):
                return done[0]
            patience.spend(failure)

    def empty_log(self) -> None:
        """Bring an SQLite file's write-ahead log into the file, and empty it, unless somebody is using it just now."""
        if self.path is None:
            return
        with self.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA busy_timeout = 0")  # who waits here would hold up every writer
            try:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.exec_driver_sql(f"PRAGMA busy_timeout = {round(self._busy_timeout * 1000)}")

    def _connected(self) -> Connection:
        """Connect.

        Raises:
            ConfigurationError: the driver knows no such option as the URL has.
        """
        try:
            return self.engine.connect()
        except TypeError as error:  # as a driver written in Python refuses an argument
            failed = f"the driver of the store {self.name} does not take its URL's options: {error}"
        raise ConfigurationError(failed)

    def _begin(self, connection: Connection, statement: str) -> None:
        # Said here and not in an event: an engine with listeners is slower at every statement.
        if self.is_sqlite:
            connection.exec_driver_sql(statement)

    def _commit(self, connection: Connection) -> None:
        try:
            connection.commit()
        except DBAPIError:
            if not self.is_sqlite:  # nobody knows in what state this connection is: it goes to no other transaction
                connection.invalidate()
            raise


def _make(url: str, patience: float) -> tuple[URL, Engine] | None:
    """Read a database URL, and make its engine; None if it is none. What the reader raised may hold the password."""
    try:
        read = make_url(url)
        return read, make_engine(read, patience)
    except ConfigurationError:
        raise
    except (ArgumentError, NoSuchModuleError, ValueError):  # ValueError: a port that is no number
        return None


def _name_of(url: URL) -> str:
    """Name a database for people: without its password, wherever in the URL that stands."""
    if url.host is not None and "@" in url.host:
        raise ConfigurationError("in a database URL, the @ of a password is written %40, its / %2F and its : %3A")
    hidden = url.set(query={})  # drivers take a password from there as well
    if hidden.database is not None and "@" in hidden.database and url.host is not None:
        hidden = hidden.set(database="***")  # what stands behind the / of a password with an @ and a / in it
    return hidden.render_as_string(hide_password=True)


def _secrets_of(url: URL) -> list[str]:
    """What nobody is to read of a URL: its password, and those among its options."""
    options = [value for name, values in url.normalized_query.items() if "pass" in name.lower() for value in values]
    return sorted(filter(None, [str(url.password or ""), *options]), key=len, reverse=True)


def _look(stands: Callable[[Connection, T], bool], result: T, connection: Connection) -> bool:
    return stands(connection, result)


class _Patience:
    """How often a failed transaction is tried again.

    Until the time is up: behind a lock, and while a server is away. A few times: all else that passes by, such as a
    deadlock, or a key that another transaction was the first to insert.
    """

    def __init__(self, name: str, seconds: float, *, alone: bool) -> None:
        self._name = name
        self._until = time.monotonic() + seconds
        self._alone = alone
        self._attempts = _ATTEMPTS
        self._pause = _PAUSE

    def spend(self, error: DBAPIError | PoolTimeout) -> None:
        """Pause before the next attempt, or give up."""
        code = _sqlite_code(error)
        advice = _ADVICE.get(code or 0)
        if advice is not None:
            raise StoreError(f"the store {self._name} {advice}") from error
        raced = isinstance(error, IntegrityError) and not self._alone  # next time, what the other one stored is seen
        away = not self._alone and _is_away(error)
        self._attempts -= 1
        refused = not (raced or away or isinstance(error, _TRANSIENT))
        if refused or (raced and self._attempts <= 0):
            words = f"the store {self._name} refused a statement ({type(error).__name__}): nothing was stored"
            raise StoreError(words) from error
        waits = away or code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        if time.monotonic() >= self._until or (self._attempts <= 0 and not waits):
            raise StoreUnavailable(f"the store {self._name} did not answer ({type(error).__name__})") from error
        time.sleep(self._pause)
        if away:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)


def _is_away(error: DBAPIError | PoolTimeout) -> bool:
    """Whether the connection was cut, or could not be made."""
    return isinstance(error, DBAPIError) and (error.connection_invalidated or error.statement is None)


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
