"""What a server does to a transaction that is no fault of its own: a deadlock, a serialisation failure, a restart.

Each is made from outside, by another connection or by stopping a server of the test's own, before each statement that
the runtime writes. The transaction is tried again whole: nothing of it is lost, and nothing of it is stored twice.
"""

import threading
from collections.abc import Generator
from contextlib import closing
from typing import Literal

import pytest
from sqlalchemy import URL, Connection, create_engine, event, text
from uuid_utils.compat import uuid7

from byline import (
    AfterAiRecordWrittenEvent,
    AgentRuntime,
    Decision,
    Fence,
    LateReport,
    ModelCall,
    ModelRequest,
    Reconciliation,
    RecordReference,
    Run,
    RunStatus,
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    WriteKind,
    tool,
)
from byline.models.messages import UserMessage
from byline.store.protocol import Claim, NewRun
from byline.store.sql import SqlStore
from byline.testing import call
from byline.tools.result import WriteTarget
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import unknown, waiting
from tests.store.own import OwnServer, own_server
from tests.store.servers import opened_on, upgraded

ADD = call("add_element", page_id=42, text="New.")
NEW = WriteTarget(RecordReference("elements", 1), WriteKind.CREATED)
APART = 4
"""So many statements lie between two that fail: a transaction whose every attempt fails is given up, rightly."""
How = Literal["a deadlock", "a serialisation failure"]


@pytest.fixture
def url(request: pytest.FixtureRequest) -> URL:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, URL)
    return found


class Trap:
    """Two rows, one of them held by another connection, which wants the other: whoever wants both is in a deadlock.

    The other connection has written much and waits patiently, so that the server ends the store's transaction.
    """

    def __init__(self, url: URL) -> None:
        self._engine = create_engine(url, isolation_level="READ COMMITTED")
        self._is_postgresql = url.get_backend_name() == "postgresql"
        with self._engine.begin() as connection:
            connection.execute(text("DROP TABLE IF EXISTS trap"))
            connection.execute(text("CREATE TABLE trap (id integer primary key, hits integer not null default 0)"))
            connection.execute(text("INSERT INTO trap (id) VALUES (:id)"), [{"id": number} for number in range(200)])

    def spring(self, connection: Connection) -> None:
        """Be in a deadlock with this connection, whose transaction the server ends: its error is raised."""
        connection.exec_driver_sql("UPDATE trap SET hits = hits + 1 WHERE id = 0")
        if self._is_postgresql:
            connection.exec_driver_sql("SET LOCAL deadlock_timeout = '10ms'")
        holds = threading.Event()
        other = threading.Thread(target=self._want_both, args=(holds,))
        other.start()
        holds.wait()
        try:
            connection.exec_driver_sql("UPDATE trap SET hits = hits + 1 WHERE id = 1")
        finally:
            other.join()  # the server has ended the store's transaction, and what that held is free

    def _want_both(self, holds: threading.Event) -> None:
        with self._engine.connect() as connection:
            if self._is_postgresql:
                connection.exec_driver_sql("SET LOCAL deadlock_timeout = '30s'")
            connection.exec_driver_sql("UPDATE trap SET hits = hits + 1 WHERE id > 0")
            holds.set()
            connection.exec_driver_sql("UPDATE trap SET hits = hits + 1 WHERE id = 0")
            connection.rollback()

    def close(self) -> None:
        with self._engine.begin() as connection:
            connection.execute(text("DROP TABLE trap"))
        self._engine.dispose()


class Strikes:
    """Makes each of the store's writing statements fail once, when it has written and holds its locks."""

    def __init__(self, store: SqlStore, url: URL, how: How) -> None:
        self.due: set[str] = set()
        self.struck: set[str] = set()
        self._trap = Trap(url)
        self._how = how
        self._passed = 0
        event.listen(store.engine, "after_cursor_execute", self._behind)

    def _behind(self, connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith(("INSERT INTO byline", "UPDATE byline", "DELETE FROM byline")):
            return
        self._passed += 1
        if statement in self.struck:
            return
        self.due.add(statement)
        if self._passed < APART:
            return
        self._passed = 0
        self.due.discard(statement)
        self.struck.add(statement)
        if self._how == "a deadlock":
            self._trap.spring(connection)
        else:
            # What the server says is the same, whoever made it say so.
            connection.exec_driver_sql("DO $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '40001'; END $$")
        pytest.fail("the server let it pass")

    def close(self) -> None:
        self._trap.close()


@pytest.mark.promise("P16", "P19", "P20")
@pytest.mark.parametrize(
    "url, how",  # under READ COMMITTED, MariaDB knows of deadlocks only
    [("postgresql", "a deadlock"), ("postgresql", "a serialisation failure"), ("mariadb", "a deadlock")],
    indirect=["url"],
)
async def test_a_transaction_that_the_server_ends_is_tried_again_whole(host: Host, url: URL, how: How) -> None:
    """At each statement of runs that are released, cancelled, uncertain and settled, and retried from dead letter."""
    tours = 0
    with opened_on(url) as store, closing(Strikes(store, url, how)) as strikes:
        while strikes.due or not tours:
            assert await _tour(host, store) == [
                ("released", RunStatus.COMPLETED, 2),  # and what was reported late
                ("cancelled", RunStatus.CANCELLED, 0),
                ("settled", RunStatus.COMPLETED, 1),
                ("retried", RunStatus.AWAITING_APPROVAL, 0),
            ]
            tours += 1
        assert len(strikes.struck) > 20
    assert host.executions("add_element") == 2 * tours


async def _tour(host: Host, store: SqlStore) -> list[tuple[str, RunStatus, int]]:
    """Have all written that the store writes of runs. Returns how each ended, and how many facts the feed has of it."""
    ended: dict[str, Run] = {}

    async def released(runtime: AgentRuntime) -> Run:
        run = await runtime.run("editor", "Add it.", actor=ALICE)
        return await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)

    async with host.runtime([[ADD], "Done."], store=store) as runtime:
        ended["released"] = run = await released(runtime)
        claim = Claim(run.run_id, 1)
        store.beat([claim], lease=60)
        fence = Fence(uuid7(), "add_element", ToolEffect.NON_IDEMPOTENT_WRITE, 1)
        store.report_late(LateReport(report_id=uuid7(), claim=claim, fence=fence, target=NEW))
        run = await runtime.run("editor", "Add it.", actor=ALICE)
        ended["cancelled"] = await runtime.cancel(run.run_id, actor=ALICE)
    async with host.runtime([[ADD], "Done."], store=store, tools=[_raising(host)]) as runtime:
        run = await released(runtime)
        landed = Reconciliation.landed(unknown(run).digest, RecordReference("elements", 1), WriteKind.CREATED)
        ended["settled"] = await runtime.reconcile(run.run_id, landed, actor=BOB)
        dead = NewRun(run_id=uuid7(), agent="editor", actor=ALICE, messages=(UserMessage("Add it."),))
        store.create(dead, lease=0.001)
        while store.get(dead.run_id).status is not RunStatus.DEAD_LETTER:  # as soon as its lease is over
            assert store.claim(dead.run_id, lease=60, takeovers=0) is None
        ended["retried"] = await runtime.retry(dead.run_id)
    return [(name, run.status, len(_facts(store, run))) for name, run in ended.items()]


def _facts(store: SqlStore, run: Run) -> list[RecordReference]:
    facts = store.writes(after=None, table=None, record=None, since=None, limit=10_000)
    return [fact.record for fact in facts if fact.correlation_id == run.run_id]


def _raising(host: Host) -> Tool:
    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def add_element(context: ToolContext, page_id: int, text: str) -> ToolResult:
        """Add an element to a page, and say nothing of it."""
        host.count(context, "add_element")
        raise RuntimeError("the answer was lost")

    return add_element


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Generator[OwnServer]:
    with own_server("mariadb" if request.param == "mariadb" else "postgresql") as server:
        upgraded(server.url)
        yield server


@pytest.mark.promise("P9", "P16", "P19", "P20")
@pytest.mark.parametrize(
    "during, crash",
    [
        ("the model's answer", False),
        ("the write", True),
        ("the announcement", False),
        ("the model's last answer", True),
    ],
)
async def test_a_run_goes_on_when_the_server_is_back(host: Host, server: OwnServer, during: str, crash: bool) -> None:
    """It is stopped, or crashes, in the middle of a run: what was to be stored then is stored when it is back."""
    restarting: list[threading.Thread] = []

    def goes_away(now: str) -> None:
        if now == during:
            server.stop(crash=crash)
            restarting.append(threading.Thread(target=server.restart, kwargs={"away": 0.5}))
            restarting[-1].start()

    def asks(_request: ModelRequest) -> list[ModelCall]:
        goes_away("the model's answer")
        return [ADD]

    def closes(_request: ModelRequest) -> str:
        goes_away("the model's last answer")
        return "Done."

    def listen(event: AfterAiRecordWrittenEvent) -> None:
        goes_away("the announcement")
        host.listen(event)

    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def add_element(context: ToolContext, page_id: int, text: str) -> ToolResult:
        """Add an element to a page."""
        host.count(context, "add_element")
        goes_away("the write")
        return ToolResult.text("Added.").with_write_target(NEW.record, NEW.kind)

    with opened_on(server.url, emptied=False) as store:
        async with host.runtime([asks, closes], store=store, tools=[add_element], listeners=[listen]) as runtime:
            run = await runtime.run("editor", "Add it.", actor=ALICE)
            run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        for each in restarting:
            each.join()
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
        assert len(restarting) == host.executions() == 1
        assert host.heard() == [("elements:1", "created")]
        assert _facts(store, run) == [RecordReference("elements", 1)]
