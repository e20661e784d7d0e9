"""The schema: what it makes impossible, how it is reached, and that its lists are ranges of indexes."""

import ast
import inspect
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import IntegrityError
from uuid_utils.compat import uuid7

from byline.errors import StoreError
from byline.models.messages import UserMessage
from byline.records import RecordReference
from byline.runs.status import MOVES, TERMINAL, RunStatus
from byline.runs.steps import NewStep, StepKind
from byline.store import migrations, moves, tables
from byline.store.moves import moving
from byline.store.protocol import LateReport, NewRun, Progress
from byline.store.sql import SqlStore
from byline.testing.conformance import FakeClock
from byline.testing.conformance.stage import EDITOR, PAGE, Segment, Stage
from tests.store.sqlite import KEYS

STORE = Path(moves.__file__).parent


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    store = SqlStore(f"sqlite:///{tmp_path}/byline.db", keys=KEYS)
    store.open()
    yield store
    store.close()


def test_migrations_lead_to_the_schema_of_the_tables(store: SqlStore) -> None:
    made = sa.create_engine("sqlite://")
    tables.metadata.create_all(made)
    with store.engine.connect() as migrated, made.connect() as direct:
        context = MigrationContext.configure(
            migrated, opts={"compare_type": True, "version_table": tables.REVISION_TABLE}
        )
        assert compare_metadata(context, tables.metadata) == []
        for name in tables.metadata.tables:
            ours, theirs = sa.inspect(migrated), sa.inspect(direct)
            for of in ("get_check_constraints", "get_indexes", "get_foreign_keys", "get_pk_constraint"):
                assert _told(getattr(ours, of)(name)) == _told(getattr(theirs, of)(name))
        indexes = sa.text("SELECT sql FROM sqlite_master WHERE type = 'index' AND name LIKE 'byline_%'")
        assert _told(migrated.scalars(indexes).all()) == _told(direct.scalars(indexes).all())
    made.dispose()


def _told(found: Sequence[object] | Mapping[str, object]) -> list[str]:
    parts = sorted(map(str, found.items() if isinstance(found, Mapping) else found))
    return [re.sub(r" object at \w+|\s+", " ", part) for part in parts]


def test_revision_is_the_head_of_the_migrations() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    assert ScriptDirectory.from_config(config).get_current_head() == tables.REVISION


def test_file_that_is_up_to_date_is_opened_without_alembic(store: SqlStore) -> None:
    script = f"""
import sys
from byline.store.sql import SqlStore
store = SqlStore({store.engine.url.render_as_string()!r})
store.open()
store.close()
assert not any(name.split(".")[0] in ("alembic", "mako") for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_connections_are_durable_and_wait_for_each_other(store: SqlStore) -> None:
    with store.engine.connect() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10_000}


# What no statement of the store does, and no statement at all can do.

FENCED = {
    "fence_call": uuid7(),
    "fence_tool": "t",
    "fence_effect": "idempotent_write",
    "fence_attempt": 1,
}


def _row(status: RunStatus, /, **values: object) -> dict[str, object]:
    """A legal row of a run."""
    row: dict[str, object] = {
        "id": uuid7(),
        "agent": "editor",
        "actor_id": "7",
        "actor_scope": "user",
        "actor_grants": "",
        "status": status.value,
        "created_at": 1,
        "updated_at": 1,
        "claim": 0,
        "revision": 0,
        "takeovers": 0,
        "suspension": 0,
    }
    if status in (RunStatus.QUEUED, RunStatus.RUNNING):
        row["due_at"] = 1
    if status is RunStatus.RUNNING:
        row["claim_token"] = uuid7()
    if status is RunStatus.AWAITING_APPROVAL:
        row |= {"turn": b"x", "turn_digest": "d"}
    if status is RunStatus.UNCERTAIN:
        row |= FENCED | {"reason": "raised"}
    if status in TERMINAL or status is RunStatus.DEAD_LETTER:
        row["reason"] = "answered"
    return row | values


@pytest.mark.parametrize("status", RunStatus)
def test_legal_rows_are_legal(store: SqlStore, status: RunStatus) -> None:
    with store.engine.begin() as connection:
        connection.execute(sa.insert(tables.run), _row(status))


@pytest.mark.promise("P9")
@pytest.mark.parametrize("status", sorted(set(RunStatus) - {RunStatus.RUNNING, RunStatus.UNCERTAIN}))
def test_fence_stands_in_no_row_that_is_handed_out_waits_or_has_ended(store: SqlStore, status: RunStatus) -> None:
    with pytest.raises(IntegrityError, match="byline_run_fence_stands"), store.engine.begin() as connection:
        connection.execute(sa.insert(tables.run), _row(status, **FENCED))


@pytest.mark.promise("P9")
def test_fence_with_a_known_outcome_stands_in_a_queued_row_only(store: SqlStore) -> None:
    known = FENCED | {"fence_verdict": "landed"}
    with store.engine.begin() as connection:
        connection.execute(sa.insert(tables.run), _row(RunStatus.QUEUED, **known))
    for status in set(RunStatus) - {RunStatus.RUNNING, RunStatus.QUEUED}:
        with pytest.raises(IntegrityError), store.engine.begin() as connection:
            connection.execute(sa.insert(tables.run), _row(status, **known))


@pytest.mark.parametrize(
    "row",
    [
        _row(RunStatus.QUEUED, status="paused"),
        _row(RunStatus.RUNNING, **FENCED | {"fence_tool": None}),
        _row(RunStatus.RUNNING, **FENCED | {"fence_effect": "read_only"}),
        _row(RunStatus.RUNNING, **FENCED | {"fence_attempt": 0}),
        _row(RunStatus.RUNNING, fence_verdict="landed"),
        _row(RunStatus.RUNNING, **FENCED | {"fence_verdict": "perhaps"}),
        _row(RunStatus.RUNNING, claim_token=None),
        _row(RunStatus.RUNNING, due_at=None),
        _row(RunStatus.QUEUED, claim_token=uuid7()),
        _row(RunStatus.QUEUED, due_at=None),
        _row(RunStatus.UNCERTAIN, **dict.fromkeys(FENCED)),
        _row(RunStatus.UNCERTAIN, due_at=1),
        _row(RunStatus.AWAITING_APPROVAL, turn=None),
        _row(RunStatus.COMPLETED, reason=None),
        _row(RunStatus.CANCELLED, turn=b"x"),
        _row(RunStatus.FAILED, output=b"x"),
        _row(RunStatus.FAILED, due_at=1),
    ],
)
def test_illegal_rows_are_impossible(store: SqlStore, row: dict[str, object]) -> None:
    with pytest.raises(IntegrityError), store.engine.begin() as connection:
        connection.execute(sa.insert(tables.run), row)


@pytest.mark.promise("P3")
def test_nothing_but_created_and_updated_is_written_down(store: SqlStore) -> None:
    run = _row(RunStatus.QUEUED)
    write: dict[str, object] = {
        "run_id": run["id"],
        "kind": "write",
        "at": 1,
        "payload": {},
        "record_table": "pages",
        "record_uid": "1",
    }
    with store.engine.begin() as connection:
        connection.execute(sa.insert(tables.run), run)
        connection.execute(sa.insert(tables.step), write | {"write_kind": "created"})
    for wrong in (
        {"write_kind": "deleted"},
        {"write_kind": None},
        {"write_kind": "created", "kind": "tool"},
        {"write_kind": "created", "record_uid": None},
    ):
        with pytest.raises(IntegrityError), store.engine.begin() as connection:
            connection.execute(sa.insert(tables.step), write | wrong)


# The table of moves stands once in the code.


def test_every_move_of_the_store_is_a_legal_one() -> None:
    for source in RunStatus:
        for target in RunStatus:
            if target in MOVES[source]:
                compiled = moving(source, target).compile(dialect=sqlite.dialect())
                assert compiled.params["status"] == target.value
                assert source.value in compiled.params.values()
            else:
                with pytest.raises(StoreError):
                    moving(source, target)


def test_status_is_written_by_moves_only() -> None:
    """A status is set where a run is created, and in `moving`: no other statement names the column to set it."""
    writers: list[str] = []
    for path in sorted(STORE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "values":
                writers += [path.name for word in node.keywords if word.arg == "status"]
    assert writers == ["moves.py"]
    assert inspect.getsource(moves).count("status=target.value") == 1


# A million settled runs slow nothing down: every list is a range of an index.


def test_lists_are_ranges_of_indexes(store: SqlStore) -> None:
    statements: dict[str, Any] = {}

    def note(_c: object, _k: object, statement: str, parameters: object, _x: object, many: bool) -> None:
        statements[statement] = parameters[0] if many and isinstance(parameters, list) else parameters

    event.listen(store.engine, "before_cursor_execute", note)
    run_id = uuid7()
    store.create(NewRun(run_id=run_id, agent="a", actor=EDITOR, messages=(), dedupe_key="k"), lease=None)
    claimed = store.claim(run_id, lease=9, takeovers=1)
    assert claimed is not None
    segment = Segment(store, claimed.claim, 0)
    segment.advance(Progress(steps=(NewStep(StepKind.WRITE, uuid7(), target=PAGE),)))
    store.beat([claimed.claim], lease=9)
    store.claimable(9, agents=["a", "b"])
    store.expire(9, ttls={"a": 5})
    for status in (None, RunStatus.QUEUED):
        for agent in (None, "a"):
            store.list_runs(status=status, agent=agent, after=None, limit=9)
    store.list_steps(run_id, after=0, limit=9)
    for after in (None, "1-5"):
        for since in (None, datetime(2026, 1, 1, tzinfo=UTC)):
            for table, record in ((None, None), ("pages", None), (None, RecordReference("pages", 1))):
                store.writes(after=after, table=table, record=record, since=since, limit=9)
    store.late_reports(conflicts_only=True, limit=9)
    store.cancel(run_id, "8")
    uncertain, fence = Stage(store, store, FakeClock()).uncertain()
    store.report_late(LateReport(report_id=uuid7(), claim=uncertain.claim, fence=fence, target=PAGE))
    event.remove(store.engine, "before_cursor_execute", note)

    plans: dict[str, str] = {}
    connection = sqlite3.connect(str(store.engine.url.database))
    for statement, parameters in statements.items():
        if statement.split()[0] in ("SELECT", "UPDATE", "DELETE"):
            steps = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans[statement] = " / ".join(step[3] for step in steps)
    connection.close()
    assert len(plans) > 25
    for statement, plan in plans.items():
        assert "SCAN" not in plan, f"{plan}: {statement}"
        assert "TEMP B-TREE" not in plan or "byline_decision" in plan, f"{plan}: {statement}"
    feeds = [plan for statement, plan in plans.items() if "write_kind IS NOT NULL" in statement]
    assert feeds
    assert all("byline_write_" in plan for plan in feeds), feeds


@pytest.mark.promise("P19")
def test_a_step_costs_the_same_however_long_the_run_is(store: SqlStore) -> None:
    statements: list[str] = []

    def note(_c: object, _k: object, statement: str, _p: object, _x: object, _m: object) -> None:
        statements.append(statement.split()[0])

    segment = Stage(store, store, FakeClock()).started()
    event.listen(store.engine, "before_cursor_execute", note)
    for _ in range(50):
        statements.clear()
        segment.advance(Progress(messages=(UserMessage("x"),), steps=(NewStep(StepKind.TOOL), NewStep(StepKind.MODEL))))
        assert statements == ["BEGIN", "UPDATE", "SELECT", "INSERT", "INSERT"]  # the SELECT: which key may seal
    event.remove(store.engine, "before_cursor_execute", note)


def test_the_database_s_clock_is_the_time() -> None:
    store = SqlStore("sqlite://", keys=KEYS)
    store.open()
    run_id = Stage(store, store, FakeClock()).started().run_id
    drift = datetime.now(UTC) - store.get(run_id).created_at
    assert abs(drift.total_seconds()) < 5
    store.close()


@pytest.mark.promise("P23")
def test_nothing_said_is_in_the_file_in_the_open(store: SqlStore, tmp_path: Path) -> None:
    stage = Stage(store, store, FakeClock())
    turn = stage.waiting()
    stage.claimed(stage.queued()).advance(Progress(steps=(NewStep(StepKind.MODEL, detail="secret detail"),)))
    store.close()
    data = (tmp_path / "byline.db").read_bytes()
    for said in (b"Describe page", b"secret detail", b"page_id", b"Old"):
        assert said not in data
    store.open()
    store.cancel(turn.run_id, "8")
    with store.engine.connect() as connection:
        left = sa.select(sa.func.count()).select_from(tables.message).where(tables.message.c.run_id == turn.run_id)
        assert connection.execute(left).scalar() == 0
