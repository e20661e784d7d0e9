"""Opening a store: what cannot be used says what to do, and loses nothing."""

import multiprocessing
import os
import sqlite3
import sys
import traceback
from contextlib import suppress
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from uuid_utils.compat import uuid7

from byline.actors import AiActorContext
from byline.errors import ConfigurationError, KeyMissing, SchemaMismatch, StoreError, StoreUnavailable
from byline.models.messages import UserMessage
from byline.store.protocol import NewRun
from byline.store.sealing import KeyRing
from byline.store.sql import SqlStore
from byline.testing.conformance import FakeClock
from byline.testing.conformance.stage import LEASE, Stage
from tests.store.sqlite import KEYS


def open_at(path: Path, busy_timeout: float = 10.0) -> SqlStore:
    store = SqlStore(f"sqlite:///{path}", keys=KEYS, busy_timeout=busy_timeout)
    try:
        store.open()
    except BaseException:
        store.close()
        raise
    return store


def test_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a directory"):
        open_at(tmp_path)


def test_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist: make it first"):
        open_at(tmp_path / "missing" / "byline.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"no database at all, but long enough to have a header. " * 20, b"short"])
def test_other_file_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="no SQLite database"):
        open_at(path)
    assert path.read_bytes() == content
    assert [found.name for found in tmp_path.iterdir()] == ["notes.txt"]


def test_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "byline.db"
    open_at(path).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE byline_revision SET version_num = '9999'")
    connection.commit()
    with pytest.raises(SchemaMismatch, match="9999"):
        open_at(path)
    assert connection.execute("SELECT version_num FROM byline_revision").fetchall() == [("9999",)]
    connection.close()


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX users")
@pytest.mark.parametrize("mode", [0o555, 0o755])
def test_read_only_says_so(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "byline.db"
    open_at(path).close()
    path.chmod(0o444)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    tmp_path.chmod(mode)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)  # what root may not do is nothing
    try:
        with pytest.raises(StoreError, match=r"read-only|right to write"):
            open_at(path)
    finally:
        if was_root:
            os.seteuid(0)
        tmp_path.chmod(0o755)


def test_tables_of_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "site.db"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE page (id INTEGER); INSERT INTO page VALUES (42)")
    open_at(path).close()
    assert connection.execute("SELECT id FROM page").fetchall() == [(42,)]
    connection.close()


@pytest.mark.parametrize("url", ["", "byline.db", "nonsense://x"])
def test_url_that_is_none(url: str) -> None:
    with pytest.raises((ConfigurationError, StoreError)):
        SqlStore(url).open()


def test_password_is_never_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        SqlStore("nonsense://user:hunter2@host/db")
    assert "hunter2" not in f"{caught.value!r}{caught.value.__context__!r}"


@pytest.mark.parametrize(
    "url, words",
    [
        ("postgresql://someone:hunter2", "named by a database URL"),  # no host: the password is read as a port
        ("postgresql://someone:some@hunter2@127.0.0.1/x", "is written %40"),
        ("postgresql://someone@127.0.0.1:1/x?password=hunter2", "cannot be reached"),
        ("postgresql://someone:some@127.0.0.1:1/hunter2@127.0.0.1/x", "cannot be reached"),
        ("mariadb://someone@127.0.0.1:1/x?password=hunter2", "cannot be reached"),
        ("mariadb://someone:hunter2@127.0.0.1:1/x?nonsense=1", "does not take its URL's options"),
    ],
)
def test_password_is_never_shown_wherever_the_url_has_it(url: str, words: str) -> None:
    with pytest.raises((ConfigurationError, StoreError), match=words) as caught:
        SqlStore(url, keys=KeyRing.generate(), busy_timeout=0.1).open()
    assert "hunter2" not in "".join(traceback.format_exception(caught.value)).replace(url, "")
    with suppress(ConfigurationError):
        assert "hunter2" not in repr(SqlStore(url))


def test_closed_store_says_so_and_opens_again(tmp_path: Path) -> None:
    store = open_at(tmp_path / "byline.db")
    store.open()
    run_id = Stage(store, store, FakeClock()).queued()
    store.close()
    store.close()
    with pytest.raises(StoreError, match="not open"):
        store.claim(run_id, lease=LEASE, takeovers=0)
    store.open()
    assert store.get(run_id).run_id == run_id
    store.close()


@pytest.mark.promise("P16")
@pytest.mark.report(43)
def test_lock_that_is_never_let_go_is_an_error_in_time(tmp_path: Path) -> None:
    store = open_at(tmp_path / "byline.db", busy_timeout=0.3)
    stage = Stage(store, store, FakeClock())
    run_id = stage.queued()
    connection = sqlite3.connect(tmp_path / "byline.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable):
        store.claim(run_id, lease=LEASE, takeovers=0)
    connection.execute("ROLLBACK")
    connection.close()
    assert store.claim(run_id, lease=LEASE, takeovers=0) is not None
    store.close()


def _open(path: Path, results: "SimpleQueue[str]", barrier: Barrier) -> None:
    barrier.wait()
    try:
        store = SqlStore(f"sqlite:///{path}")
        store.open()
        run_id = Stage(store, store, FakeClock()).queued()
        results.put("" if store.claim(run_id, lease=LEASE, takeovers=0) else "not claimed")
        store.close()
    except Exception as error:
        results.put(repr(error))


def test_eight_processes_open_a_fresh_file_at_once(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    results, barrier = spawn.SimpleQueue(), spawn.Barrier(8)
    path = tmp_path / "byline.db"
    processes = [spawn.Process(target=_open, args=(path, results, barrier)) for _ in range(8)]
    for process in processes:
        process.start()
    assert [results.get() for _ in processes] == [""] * 8
    for process in processes:
        process.join()
    store = SqlStore(f"sqlite:///{path}")
    store.open()
    assert len(store.list_runs(status=None, agent=None, after=None, limit=99)) == 8
    store.close()


def test_a_question_mark_in_the_path_is_refused_rather_than_opened_as_another_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="takes no options"):
        SqlStore(f"sqlite:///{tmp_path}/what?x=1/byline.db")


def test_a_lost_key_file_is_missed_at_opening_while_something_waits(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/byline.db")
    store.open()
    new = NewRun(run_id=uuid7(), agent="editor", actor=AiActorContext.user("7"), messages=(UserMessage("Go."),))
    store.create(new, lease=None)
    store.close()
    key_file = tmp_path / "byline.db.key"
    kept = key_file.read_bytes()
    key_file.unlink()
    with pytest.raises(KeyMissing, match=r"byline\.db\.key"):
        store.open()
    assert not key_file.exists()
    key_file.touch(mode=0o600)
    key_file.write_bytes(kept)
    store.open()
    assert store.get(new.run_id).problem is None
    store.close()
