"""What only a database on a server can do to a store: refuse it, cut its connections, and let writers write at once."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import URL, PoolProxiedConnection, event
from uuid_utils.compat import uuid7

from byline import ConfigurationError, Decision, RunStatus, SchemaMismatch, StoreUnavailable, WriteFact
from byline.models.messages import UserMessage
from byline.store import tables
from byline.store.protocol import Claim, NewRun, StoredRun
from byline.store.sql import SqlStore
from byline.testing import call
from byline.testing.conformance import FakeClock
from byline.testing.conformance.stage import FILE, PAGE, Stage, written
from tests.host import ALICE, BOB, Host
from tests.store.servers import MARIADB, POSTGRESQL, cut_connections, database, opened_on
from tests.store.sqlite import KEYS


@pytest.fixture(params=["postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> URL:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, URL)
    return found


@pytest.fixture
def store(url: URL) -> Iterator[SqlStore]:
    with opened_on(url) as store:
        yield store


@pytest.mark.parametrize("server", [POSTGRESQL, MARIADB], ids=str)
def test_schema_is_made_when_asked_to_and_not_before(server: URL) -> None:
    with database(server, f"byline_empty_{threading.get_native_id()}") as empty:
        store = SqlStore(empty.render_as_string(hide_password=False), keys=KEYS)
        with pytest.raises(SchemaMismatch, match="byline db upgrade"):
            store.open()
        assert store.schema_revision() is None
        store.upgrade()
        store.upgrade()
        store.open()
        assert store.claimable(1, agents=["editor"]) == []
        store.close()


@pytest.mark.parametrize("server", [POSTGRESQL, MARIADB], ids=str)
def test_who_may_not_in_is_told_so_without_the_password(server: URL) -> None:
    wrong = server.set(username="byline_nobody", password="s3cret-word", port=server.port)
    with database(server, f"byline_in_{threading.get_native_id()}"):
        store = SqlStore(wrong.render_as_string(hide_password=False), keys=KEYS)
        with pytest.raises(StoreUnavailable, match="byline_nobody") as caught:
            store.open()
    assert "s3cret-word" not in f"{caught.value} {caught.value.__cause__} {caught.value.__context__} {store!r}"


@pytest.mark.parametrize(
    "url, words",
    [
        ("mysql://root@127.0.0.1/test", "mariadb://"),
        ("oracle://someone:s3cret-word@127.0.0.1/x", "not in oracle"),
        ("postgresql+pg8000://someone:s3cret-word@127.0.0.1/x", r"byline\[postgresql\]"),
        ("redis://:s3cret-word@127.0.0.1", "not in redis"),
        ("127.0.0.1/x?password=s3cret-word", "sqlite:///"),
    ],
)
def test_what_is_no_store_is_refused_at_once(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        SqlStore(url)
    assert "s3cret-word" not in str(caught.value)


@pytest.mark.promise("P17")
def test_of_many_with_one_dedupe_key_one_is_made(store: SqlStore) -> None:
    def create(key: str) -> Claim | StoredRun | None:
        new = NewRun(run_id=uuid7(), agent="editor", actor=ALICE, messages=(UserMessage("Go."),), dedupe_key=key)
        return store.create(new, lease=None)

    with ThreadPoolExecutor(8) as pool:
        for number in range(10):
            made = list(pool.map(create, [f"the same {number}"] * 8))
            assert made.count(None) == 1
            assert len({run.run_id for run in made if isinstance(run, StoredRun)}) == 1


@pytest.mark.promise("P16", "P19")
async def test_run_goes_on_wherever_its_connections_are_cut(host: Host, store: SqlStore) -> None:
    """Each time a run is approved and ends, the server drops all connections before one more of its statements."""
    written, cut_before = 0, 0

    @event.listens_for(store.engine, "before_cursor_execute")
    def _(_c: object, _cursor: object, statement: str, *_: object) -> None:
        nonlocal written
        if statement.startswith(("INSERT", "UPDATE", "DELETE")):
            written += 1
            if written == cut_before:
                cut_connections(store.engine.url)

    while written >= cut_before:
        written, cut_before = 0, cut_before + 1
        async with host.runtime([[call("add_element", page_id=42, text="New.")], "Done."], store=store) as runtime:
            run = await runtime.run("editor", "Add it.", actor=ALICE)
            assert run.pending is not None
            run = await runtime.decide(run.run_id, Decision.approve(run.pending.digest), actor=BOB)
            assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
            facts = [fact for fact in await runtime.writes() if fact.correlation_id == run.run_id]
            assert len(facts) == 1
        assert host.executions() == cut_before
    assert cut_before > 12


@pytest.mark.promise("P8")
def test_feed_misses_no_write_whose_commit_is_late(store: SqlStore, url: URL) -> None:
    """One writes first and commits last; a reader who looked in between reads on, and finds it."""
    late, early = (Stage(store, store, FakeClock()).fenced()[0:2] for _ in range(2))
    commit = store.engine.dialect.do_commit
    committing, let_go = threading.Event(), threading.Event()

    def slowly(connection: PoolProxiedConnection) -> None:
        if threading.current_thread() is first:
            committing.set()
            let_go.wait()
        commit(connection)

    def read(after: str | None) -> list[WriteFact]:
        return list(store.writes(after=after, table=None, record=None, since=None, limit=9))

    first = threading.Thread(target=late[0].advance, args=[written(late[1], FILE)])
    second = threading.Thread(target=early[0].advance, args=[written(early[1], PAGE)])
    with mock.patch.object(store.engine.dialect, "do_commit", slowly):
        first.start()
        committing.wait()
        second.start()
        second.join(0.5)  # it may wait for the first one
        before = read(None)
        let_go.set()
        first.join()
        second.join()
    after = read(before[-1].cursor if before else None)
    assert sorted(str(fact.record) for fact in [*before, *after]) == ["files:a/b.png", "pages:42"]


@pytest.mark.promise("P8")
def test_feed_gives_each_fact_once_while_many_write(store: SqlStore, url: URL) -> None:
    """Writers in two stores, with commits that take their time; a reader that polls and keeps its cursor."""
    pause = random.Random(7)
    with opened_on(url, emptied=False) as peer:
        fenced = [Stage(of, of, FakeClock()).fenced() for of in (store, peer) * 15]
        commit = store.engine.dialect.do_commit

        def slowly(connection: PoolProxiedConnection) -> None:
            threading.Event().wait(pause.random() / 50)
            commit(connection)

        read: list[WriteFact] = []

        def read_on() -> None:
            cursor = read[-1].cursor if read else None
            read.extend(store.writes(after=cursor, table=None, record=None, since=None, limit=3))

        with (
            mock.patch.object(type(store.engine.dialect), "do_commit", staticmethod(slowly)),
            ThreadPoolExecutor(4) as pool,
        ):
            writing = [pool.submit(segment.advance, written(fence)) for segment, fence in fenced]
            while not all(each.done() for each in writing):
                read_on()
        for each in writing:
            each.result()
        for _ in fenced:
            read_on()
    assert sorted(fact.correlation_id for fact in read) == sorted(segment.run_id for segment, _ in fenced)


def test_migrations_lead_to_the_schema_of_the_tables(store: SqlStore, url: URL) -> None:
    with store.engine.connect() as connection:
        # MariaDB makes a LONGBLOB of a large BLOB, which alembic takes for another type.
        options = {"compare_type": url.get_backend_name() != "mariadb", "version_table": tables.REVISION_TABLE}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), tables.metadata) == []
