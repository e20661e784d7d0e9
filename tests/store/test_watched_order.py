"""What a watcher counts on, at each store: positions come to be seen in their order, and an end with its last step."""

import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import event

from byline.records import RecordReference, WriteKind
from byline.runs.status import RunStatus, TerminationReason
from byline.runs.steps import NewStep, Step, StepKind
from byline.store.protocol import LateReport, Progress, Settle
from byline.store.sql import SqlStore
from byline.testing.conformance import StoreCase
from byline.testing.conformance.stage import Stage
from byline.tools.result import WriteTarget
from tests.store.commits import sql
from tests.store.servers import OnMariadb, OnPostgresql, OnServer
from tests.store.sqlite import SqliteFile

TARGET = WriteTarget(RecordReference("pages", 42), WriteKind.UPDATED)
CASES: dict[str, type[StoreCase]] = {"sqlite": SqliteFile, "postgresql": OnPostgresql, "mariadb": OnMariadb}


@pytest.fixture(params=sorted(CASES))
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """A stage on each database."""
    case = CASES[request.param]()
    if isinstance(case, SqliteFile):
        case.folder = tmp_path
    if isinstance(case, OnServer):
        type(case).url = request.getfixturevalue(request.param)
    with case.new_stage() as stage:
        yield stage


@contextmanager
def held_before_commit(store: SqlStore) -> Generator[tuple[threading.Event, threading.Event]]:
    """Hold the store's next COMMIT: an event that it is reached, and one that lets it go."""
    reached, let_go = threading.Event(), threading.Event()

    def hold(_connection: object) -> None:
        reached.set()
        assert let_go.wait(20)

    event.listen(store.engine, "commit", hold)
    try:
        yield reached, let_go
    finally:
        let_go.set()
        event.remove(store.engine, "commit", hold)


@pytest.mark.promise("P19", "P21")
def test_a_delayed_commit_is_passed_by_no_watcher(stage: Stage) -> None:
    """Two write steps of one run at once, and the first to take a position is the last to commit."""
    zombie, fence = stage.fenced()
    stage.clock.pass_by(61)
    taken = stage.peer.claim(zombie.run_id, lease=60, takeovers=3)
    assert taken is not None
    late = LateReport(report_id=uuid4(), claim=zombie.claim, fence=fence, target=TARGET)
    told: list[Step] = []

    def look() -> int:
        trace = stage.peer.trace(zombie.run_id, after=told[-1].position if told else 0, limit=100)
        told.extend(trace.steps)
        return len(trace.steps)

    before = look()
    with ThreadPoolExecutor(2) as pool:
        with held_before_commit(sql(stage.store)) as (reached, let_go):
            reporting = pool.submit(stage.store.report_late, late)
            assert reached.wait(20)
            going_on = pool.submit(
                stage.peer.advance,
                taken.claim,
                Progress(steps=(NewStep(StepKind.MODEL),)),
                at=len(taken.messages),
                revision=0,
            )
            waited = threading.Event()
            going_on.add_done_callback(lambda _: waited.set())
            waited.wait(0.3)  # it may not overtake; if it does, what it stored is seen now
            look()
            let_go.set()
            reporting.result(20)
        going_on.result(20)
    look()
    assert told == stage.store.list_steps(zombie.run_id, after=0, limit=100)
    assert [step.kind for step in told[before:]] == [StepKind.WRITE, StepKind.MODEL]


@pytest.mark.promise("P19", "P21")
def test_an_end_is_seen_with_its_last_step(stage: Stage) -> None:
    """It is stored between the two questions that a look asks."""
    segment = stage.started()
    ended = threading.Event()

    def end(*_: object) -> None:
        if not ended.is_set():
            ended.set()
            settled = NewStep(StepKind.SETTLED, payload={"status": "completed"})
            settle = Settle(
                status=RunStatus.COMPLETED, reason=TerminationReason.ANSWERED, output=None, steps=(settled,)
            )
            segment.advance(settle)

    watcher = sql(stage.peer)
    event.listen(watcher.engine, "after_cursor_execute", end)
    told: list[Step] = []
    over = False
    while not over:
        trace = stage.peer.trace(segment.run_id, after=told[-1].position if told else 0, limit=100)
        told.extend(trace.steps)
        over = trace.ended
    assert ended.is_set()
    assert told == stage.store.list_steps(segment.run_id, after=0, limit=100)
    assert [step.kind for step in told] == [StepKind.SETTLED]
