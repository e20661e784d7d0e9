"""The site's database: one SQLite file, opened anew by every session, so that any thread and process may use it."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, NullPool, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry

from examples.newsroom.models import Base

BUSY = 5.0
"""Seconds that a session waits for another one's write to end."""


class Site:
    """The site."""

    def __init__(self, path: Path) -> None:
        self.path = path
        engine = create_engine(
            URL.create("sqlite", database=str(path)), poolclass=NullPool, connect_args={"timeout": BUSY}
        )
        event.listen(engine, "connect", _connected)
        event.listen(engine, "begin", _begun)
        self._engine = engine
        self.readers = sessionmaker(engine)
        self.writers = sessionmaker(engine.execution_options(writes=True), expire_on_commit=False)

    def create_tables(self) -> None:
        """Make the tables that are not there yet."""
        Base.metadata.create_all(self._engine.execution_options(writes=True))

    @contextmanager
    def reading(self) -> Generator[Session]:
        """Open a session that sees one state of the site from its first look to its end."""
        with self.readers() as session:
            yield session

    @contextmanager
    def writing(self) -> Generator[Session]:
        """Open a session alone with its write: committed when the block ends, rolled back when it raises."""
        with self.writers.begin() as session:
            yield session


def _connected(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
    assert isinstance(connection, sqlite3.Connection)
    connection.isolation_level = None  # `_begun` begins, not the driver
    connection.execute("PRAGMA journal_mode = WAL")  # so that who reads waits for no one who writes
    connection.execute("PRAGMA synchronous = FULL")  # so that what was committed stands, whatever dies
    connection.execute("PRAGMA foreign_keys = ON")


def _begun(connection: Connection) -> None:
    """Take the one place of a writer at once, so that what is read inside is not changed before it is written."""
    writes: object = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
