"""The engine for a database URL: its driver, and how each of its connections is set up."""

import math
from collections.abc import Callable

from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import StaticPool

from byline.errors import ConfigurationError

_SetUp = Callable[[DBAPIConnection, object], None]


def is_in_memory(url: URL) -> bool:
    """Whether this is SQLite without a file."""
    return url.get_backend_name() == "sqlite" and (url.database or ":memory:") == ":memory:"


def make_engine(url: URL, patience: float) -> Engine:
    """Make the engine of a store.

    Args:
        url: the database.
        patience: how many seconds to wait for a connection, and for what somebody else has locked.

    Raises:
        ConfigurationError: Byline stores nothing in such a database, or its driver is not here or not synchronous.
        sqlalchemy.exc.NoSuchModuleError: there is no such driver.
    """
    backend = url.get_backend_name()
    if backend == "sqlite":
        return _sqlite(url, patience)
    seconds = max(1, math.ceil(patience))
    if backend == "postgresql":
        return _server(url, seconds, _set_up_postgresql(seconds))
    if backend == "mariadb":
        if url.drivername == backend:
            url = url.set(drivername="mariadb+pymysql")  # the driver that the extra brings
        return _server(url, seconds, _set_up_mariadb(seconds))
    hint = ": name a MariaDB server with mariadb://" if backend == "mysql" else ""
    raise ConfigurationError(f"a store is in SQLite, PostgreSQL or MariaDB, not in {backend:.40}{hint}")


def _sqlite(url: URL, patience: float) -> Engine:
    if url.query:  # a path with a ? in it would open another file
        raise ConfigurationError("an SQLite URL takes no options; quote a ? or % of its path (urllib.parse.quote)")
    if is_in_memory(url):
        alone = {"check_same_thread": False}
        engine = create_engine(url, hide_parameters=True, poolclass=StaticPool, connect_args=alone)
    else:
        engine = create_engine(url, hide_parameters=True, max_overflow=-1, connect_args={"timeout": patience})
    event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _set_up_sqlite(connection: DBAPIConnection, _record: object) -> None:
    connection.isolation_level = None  # BEGIN is ours: sqlite3 would begin late, and never for a SELECT
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")  # readers and the writer do not wait for each other
    cursor.execute("PRAGMA synchronous=FULL")  # and a COMMIT is on the disk all the same
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA secure_delete=ON")  # what is deleted is overwritten (P23; ADR 0005 has its cost)
    cursor.close()


def _server(url: URL, seconds: int, set_up: _SetUp) -> Engine:
    # READ COMMITTED: behind FOR UPDATE, a statement has to see what was committed while it waited for the lock.
    try:
        engine = create_engine(
            url,
            hide_parameters=True,
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
            connect_args={"connect_timeout": seconds},
        )
    except ImportError:
        missing = f"the driver of {url.drivername:.40} is not installed: pip install 'byline[{url.get_backend_name()}]'"
        raise ConfigurationError(missing) from None
    if engine.dialect.is_async:
        raise ConfigurationError(f"the driver of {url.drivername:.40} is for asyncio, and a store's is not")
    event.listen(engine, "connect", set_up)
    return engine


def _set_up_postgresql(seconds: int) -> _SetUp:
    def set_up(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET lock_timeout = '{seconds}s'")
        cursor.execute("SET timezone = 'UTC'")
        cursor.close()
        connection.commit()  # what is SET in a transaction that is rolled back is not set

    return set_up


def _set_up_mariadb(seconds: int) -> _SetUp:
    def set_up(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {seconds}")
        # Without it, what is too long for its column is stored as far as it goes.
        cursor.execute("SET SESSION sql_mode = CONCAT_WS(',', @@SESSION.sql_mode, 'STRICT_ALL_TABLES')")
        cursor.close()

    return set_up
