"""What goes through the whole store leaves it to others in between: SQLite has one lock, and who waits for it polls."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise

import pytest
from sqlalchemy import Engine, event

from byline import Purged
from byline.runtime import retention
from byline.store.keys import Resealed
from tests.host import ALICE, Host
from tests.kernel.entries import store_of

BATCH_TAKES = 0.05
RUNS = 6


@contextmanager
def slow_batches(engine: Engine, slow: str) -> Generator[list[tuple[float, float]]]:
    """Each statement of this kind takes long. Yields when each transaction took the lock, and when it let go."""
    locked: list[tuple[float, float]] = []
    began = 0.0

    def execute(_c: object, _cursor: object, statement: str, *_: object) -> None:
        nonlocal began
        if statement == "BEGIN IMMEDIATE":
            began = time.monotonic()
        if statement.startswith(slow):
            time.sleep(BATCH_TAKES)

    def commit(_: object) -> None:
        locked.append((began, time.monotonic()))

    event.listen(engine, "before_cursor_execute", execute)
    event.listen(engine, "commit", commit)
    yield locked
    event.remove(engine, "before_cursor_execute", execute)
    event.remove(engine, "commit", commit)


def check_that_others_come_to_write(locked: list[tuple[float, float]], batches: int) -> None:
    long = [(began, ended) for began, ended in locked if ended - began >= BATCH_TAKES]
    assert len(long) == batches
    for (began, ended), (again, _) in pairwise(long):
        assert again - ended >= ended - began, "the lock is free for as long as it was held"


@pytest.mark.promise("P23")
async def test_a_purge_leaves_the_store_to_others_between_its_batches(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    store = store_of(host)
    async with host.runtime(["Done."] * RUNS, store=store) as runtime:
        for _ in range(RUNS):
            await runtime.run("editor", "Greet.", actor=ALICE)
        with slow_batches(store.engine, "DELETE FROM byline_step") as locked:
            assert await runtime.purge(older_than=timedelta(0)) == Purged(runs=RUNS)
    check_that_others_come_to_write(locked, RUNS // 2)


@pytest.mark.promise("P23")
async def test_a_reseal_leaves_the_store_to_others_between_its_batches(host: Host) -> None:
    store = store_of(host)
    async with host.runtime(["Done."] * RUNS, store=store) as runtime:
        for _ in range(RUNS):
            await runtime.run("editor", "Greet.", actor=ALICE)
        store.keys.activate(store.keys.add().key_id)
        with slow_batches(store.engine, "SELECT byline_key.id") as locked:
            assert store.keys.reseal(batch=2) == Resealed(total=RUNS, done=RUNS)
    check_that_others_come_to_write(locked, RUNS // 2)
