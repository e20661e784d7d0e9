"""What the conformance suite asks of a database on a server: one of its own for each process of tests."""

import itertools
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from typing import ClassVar

import pytest
from sqlalchemy import URL, create_engine, delete, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from byline.store.protocol import RunStore
from byline.store.sql import SqlStore
from byline.store.tables import feed, metadata
from tests.store.commits import BrokenCommits
from tests.store.sqlite import KEYS

POSTGRESQL = make_url("postgresql+psycopg://postgres@127.0.0.1:5432/postgres")
MARIADB = make_url("mariadb+pymysql://root@127.0.0.1:3306/test")
_NUMBERS = itertools.count(1)


@cache
def _answers(server: URL) -> bool:
    engine = create_engine(server, connect_args={"connect_timeout": 2})
    try:
        with engine.connect():
            return True
    except Exception:
        return False
    finally:
        engine.dispose()


@contextmanager
def database(server: URL, name: str | None = None) -> Generator[URL]:
    """An empty database of its own, gone afterwards."""
    name = name or f"byline_test_{os.getpid()}_{next(_NUMBERS)}"  # several may be open in this process
    if not _answers(server):
        pytest.skip(f"the {server.get_backend_name()} server does not answer at {server.host}:{server.port}")
    _run(server, f"DROP DATABASE IF EXISTS {name}")
    _run(server, f"CREATE DATABASE {name}")
    try:
        yield server.set(database=name)
    finally:
        force = " WITH (FORCE)" if server.get_backend_name() == "postgresql" else ""
        _run(server, f"DROP DATABASE {name}{force}")


def upgraded(url: URL) -> URL:
    store = SqlStore(url.render_as_string(hide_password=False), keys=KEYS)
    store.upgrade()
    store.close()
    return url


@contextmanager
def opened_on(url: URL, *, emptied: bool = True) -> Generator[SqlStore]:
    """An open store on a database."""
    store = SqlStore(url.render_as_string(hide_password=False), keys=KEYS)
    if emptied:
        empty(store)
    store.open()
    yield store
    store.close()


def empty(store: SqlStore) -> None:
    """Delete all that is stored."""
    with store.engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            if table is not feed:
                connection.execute(delete(table))


def cut_connections(url: URL) -> None:
    """Let the server drop everybody's connection to a database."""
    if url.get_backend_name() == "postgresql":
        terminated = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"
        _run(url.set(database="postgres"), terminated, name=url.database)
        return
    connected = "SELECT id FROM information_schema.processlist WHERE db = :name"
    for (number,) in _run(url.set(database="mysql"), connected, name=url.database):
        try:
            _run(url.set(database="mysql"), f"KILL CONNECTION {int(number)}")
        except OperationalError as error:
            if "Unknown thread id" not in str(error):  # that one ended by itself meanwhile
                raise


def _run(server: URL, statement: str, **values: object) -> list[tuple[int]]:
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        found = connection.execute(text(statement), values)
        rows = [(int(row[0]),) for row in found] if found.returns_rows else []
    engine.dispose()
    return rows


class OnServer(BrokenCommits):
    """A store in this process's database, which each test finds empty."""

    url: ClassVar[URL]
    locks: ClassVar[str]
    rounds: ClassVar[int] = 20

    def make_store(self, clock: Callable[[], float]) -> SqlStore:
        store = self._store(clock)
        empty(store)
        return store

    def make_peer(self, store: RunStore, clock: Callable[[], float]) -> SqlStore:
        return self._store(clock)

    def _store(self, clock: Callable[[], float]) -> SqlStore:
        return SqlStore(self.url.render_as_string(hide_password=False), keys=KEYS, clock=clock, busy_timeout=1.0)

    @contextmanager
    def is_locked(self, store: RunStore, seconds: float) -> Generator[None]:
        held = threading.Event()
        engine = create_engine(self.url)

        def hold() -> None:
            with engine.connect() as connection:
                connection.execute(text(self.locks))
                held.set()
                time.sleep(seconds)
                if self.url.get_backend_name() == "mariadb":
                    connection.execute(text("UNLOCK TABLES"))

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        yield
        thread.join()
        engine.dispose()


class OnPostgresql(OnServer):
    locks = "LOCK TABLE byline_run IN ACCESS EXCLUSIVE MODE"

    @pytest.fixture(autouse=True)
    def _find(self, postgresql: URL) -> None:
        type(self).url = postgresql


class OnMariadb(OnServer):
    locks = "LOCK TABLES byline_run WRITE"

    @pytest.fixture(autouse=True)
    def _find(self, mariadb: URL) -> None:
        type(self).url = mariadb
