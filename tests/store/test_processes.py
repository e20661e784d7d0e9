"""Processes on one file: what is claimed is claimed once, and what is decided is decided once."""

import multiprocessing
from collections import Counter
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from uuid import UUID

import pytest

from byline.approval.turn import PendingTurn
from byline.errors import AlreadyDecided
from byline.runs.steps import NewStep, StepKind
from byline.store.protocol import Progress
from byline.store.sql import SqlStore
from byline.testing.conformance import FakeClock
from byline.testing.conformance.segments import DONE
from byline.testing.conformance.stage import LEASE, PAGE, Segment, Stage, ruling
from tests.store.sqlite import KEYS, hurry


def _store(path: Path) -> SqlStore:
    store = hurry(SqlStore(f"sqlite:///{path}", keys=KEYS))
    store.open()
    return store


def _work(path: Path, barrier: Barrier, results: "SimpleQueue[list[UUID]]") -> None:
    """Execute whatever can be claimed, until there is nothing left."""
    store = _store(path)
    done: list[UUID] = []
    barrier.wait()
    while found := store.claimable(5, agents=["editor"]):
        for _, run_id in found:
            claimed = store.claim(run_id, lease=LEASE, takeovers=0)
            if claimed is not None:
                segment = Segment(store, claimed.claim, len(claimed.messages))
                segment.advance(Progress(steps=(NewStep(StepKind.WRITE, run_id, target=PAGE),)))
                segment.advance(DONE)
                done.append(run_id)
    results.put(done)
    store.close()


def _decide(
    path: Path,
    barrier: Barrier,
    results: "SimpleQueue[list[UUID]]",
    turns: list[PendingTurn],
) -> None:
    store = _store(path)
    won: list[UUID] = []
    for turn in turns:
        barrier.wait()
        try:
            store.decide(ruling(turn))
            won.append(turn.run_id)
        except AlreadyDecided:
            pass
    results.put(won)
    store.close()


def _together(count: int, target: Callable[..., None], path: Path, *arguments: object) -> list[UUID]:
    spawn = multiprocessing.get_context("spawn")
    results, barrier = spawn.SimpleQueue(), spawn.Barrier(count)
    processes = [spawn.Process(target=target, args=(path, barrier, results, *arguments)) for _ in range(count)]
    for process in processes:
        process.start()
    found = [run_id for _ in processes for run_id in results.get()]
    for process in processes:
        process.join()
    return found


@pytest.mark.promise("P18")
@pytest.mark.report(42)
def test_eight_processes_execute_a_hundred_runs_once_each(tmp_path: Path) -> None:
    path = tmp_path / "byline.db"
    store = _store(path)
    stage = Stage(store, store, FakeClock())
    runs = [stage.queued() for _ in range(100)]
    assert Counter(_together(8, _work, path)) == Counter(runs)
    assert len(store.writes(after=None, table=None, record=None, since=None, limit=999)) == 100
    store.close()


@pytest.mark.promise("P13")
@pytest.mark.report(21)
def test_two_processes_decide_two_hundred_turns_once_each(tmp_path: Path) -> None:
    path = tmp_path / "byline.db"
    store = _store(path)
    stage = Stage(store, store, FakeClock())
    turns = [stage.waiting() for _ in range(200)]
    assert Counter(_together(2, _decide, path, turns)) == Counter(turn.run_id for turn in turns)
    store.close()
