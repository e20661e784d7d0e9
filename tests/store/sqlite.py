"""What the conformance suite asks of SQLite: stores in memory and in files, and the ways in which they fail."""

import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import event
from sqlalchemy.engine.interfaces import DBAPIConnection

from byline.store.protocol import RunStore
from byline.store.sealing import KeyRing
from byline.store.sql import SqlStore
from tests.store.commits import BrokenCommits, sql

KEYS = KeyRing({"k1": b"1" * 32}, "k1")


def hurry(store: SqlStore) -> SqlStore:
    """Let a store not wait for the disk: where durability is not what a test is about."""

    @event.listens_for(store.engine, "connect")
    def _(connection: DBAPIConnection, _record: object) -> None:
        connection.cursor().execute("PRAGMA synchronous=OFF")

    return store


class SqliteFile(BrokenCommits):
    """A store in a file of its own; its peer is a second one on that file, as in another process."""

    folder = Path()

    @pytest.fixture(autouse=True)
    def _make_folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_store(self, clock: Callable[[], float]) -> SqlStore:
        path = self.folder / f"{uuid4()}.db"
        path.write_bytes(_empty())
        return hurry(SqlStore(f"sqlite:///{path}", keys=KEYS, clock=clock))

    def make_peer(self, store: RunStore, clock: Callable[[], float]) -> SqlStore:
        return hurry(SqlStore(sql(store).engine.url.render_as_string(), keys=KEYS, clock=clock))

    @contextmanager
    def is_locked(self, store: RunStore, seconds: float) -> Generator[None]:
        held = threading.Event()

        def hold() -> None:
            connection = sqlite3.connect(str(sql(store).engine.url.database), isolation_level=None)
            connection.execute("BEGIN IMMEDIATE")
            held.set()
            time.sleep(seconds)
            connection.execute("ROLLBACK")
            connection.close()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        yield
        thread.join()


class SqliteMemory(SqliteFile):
    """A store in memory, which nobody else can see or lock."""

    def make_store(self, clock: Callable[[], float]) -> SqlStore:
        return SqlStore("sqlite://", clock=clock)

    def make_peer(self, store: RunStore, clock: Callable[[], float]) -> SqlStore:
        return sql(store)

    @contextmanager
    def is_locked(self, store: RunStore, seconds: float) -> Generator[None]:
        yield


@cache
def _empty() -> bytes:
    """The file of a store in which nothing has happened."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "byline.db"
        store = SqlStore(f"sqlite:///{path}", keys=KEYS)
        store.open()
        store.close()
        return path.read_bytes()


def path_of(store: SqlStore) -> Path:
    """The file of a store."""
    return Path(str(store.engine.url.database))
