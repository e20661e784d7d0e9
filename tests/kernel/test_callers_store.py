"""A caller who goes away while the store works for them: its job is withdrawn, or awaited to its end, never left."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from byline import Decision, Run, RunStatus, StepKind
from byline.models.scripted import Turn
from byline.testing import ScriptedModel
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import until_left, waiting
from tests.kernel.stopping import SET, Hold, kinds

TURNS: list[Turn] = [[SET], "Done."]
SOON = 0.1
"""Seconds after which a job that could begin has begun."""


@asynccontextmanager
async def locked(host: Host) -> AsyncGenerator[None, None]:
    """Another process holds the store's write lock."""
    other = sqlite3.connect(file_of(host), isolation_level=None)
    other.execute("begin immediate")
    try:
        yield
    finally:
        other.execute("rollback")
        other.close()


def file_of(host: Host) -> Path:
    return host.path.parent / "byline.db"


async def leave_soon(asking: Coroutine[object, object, Run]) -> "asyncio.Task[Run]":
    """Ask, wait until the store is at it, and go away."""
    task = asyncio.create_task(asking)
    await asyncio.sleep(SOON)  # nothing tells that a thread waits for a lock
    assert not task.done()
    task.cancel()
    return task


async def is_cancelled(task: "asyncio.Task[Run]") -> None:
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.promise("P16", "P22")
async def test_a_decision_that_has_not_begun_is_withdrawn(host: Host) -> None:
    """Another job is before it: the decision is never stored, and the turn is still to be decided."""
    async with host.runtime(TURNS) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        async with locked(host):
            first = asyncio.create_task(runtime.enqueue("editor", "Another one.", actor=ALICE))
            await asyncio.sleep(SOON)
            task = await leave_soon(runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB))
            await is_cancelled(task)
        assert (await first).status is RunStatus.QUEUED
        run = await runtime.get_run(run.run_id)
        assert run.pending is not None
        assert run.pending.decided == {}
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P16", "P17", "P22")
async def test_a_decision_that_has_begun_is_stored_and_goes_on_later(host: Host) -> None:
    async with host.runtime(TURNS) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        async with locked(host):
            task = await leave_soon(runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB))
            await asyncio.sleep(SOON)
            assert not task.done()
        await is_cancelled(task)
        assert (await runtime.get_run(run.run_id)).status is RunStatus.QUEUED
        assert host.executions() == 0
        assert (await runtime.recover()).executed == (run.run_id,)
        assert (await runtime.get_run(run.run_id)).status is RunStatus.COMPLETED
        assert host.executions() == 1


@pytest.mark.promise("P16", "P22")
async def test_a_run_whose_creation_has_not_begun_is_never_there(host: Host) -> None:
    async with host.runtime(model := ScriptedModel(TURNS)) as runtime:
        async with locked(host):
            first = asyncio.create_task(runtime.enqueue("editor", "Another one.", actor=ALICE))
            await asyncio.sleep(SOON)
            await is_cancelled(await leave_soon(runtime.run("editor", "Please do.", actor=ALICE)))
        assert [run.run_id for run in await runtime.list_runs()] == [(await first).run_id]
        assert model.requests == []


@pytest.mark.promise("P16", "P21", "P22")
async def test_a_run_whose_creation_has_begun_is_handed_back(host: Host) -> None:
    """It was made as one that this process executes, and nobody waits for it: it is not left to its lease."""
    async with host.runtime(model := ScriptedModel(TURNS)) as runtime:
        async with locked(host):
            task = await leave_soon(runtime.run("editor", "Please do.", actor=ALICE))
        await is_cancelled(task)
        (run,) = await runtime.list_runs()
        run = await until_left(runtime, run.run_id, RunStatus.RUNNING)
        assert run.status is RunStatus.QUEUED
        assert await kinds(runtime, run.run_id) == [StepKind.HANDED_BACK]
        assert model.requests == []
        assert (await runtime.recover()).executed == (run.run_id,)
        assert waiting(await runtime.get_run(run.run_id))


@pytest.mark.promise("P16", "P22")
async def test_a_cancel_that_has_begun_is_stored(host: Host) -> None:
    async with host.runtime(TURNS) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        async with locked(host):
            task = await leave_soon(runtime.cancel(run.run_id, actor=ALICE))
        await is_cancelled(task)
        assert (await runtime.get_run(run.run_id)).status is RunStatus.CANCELLED


@pytest.mark.promise("P22", "P9", "P16")
async def test_the_result_of_a_write_is_stored_although_its_caller_has_gone(host: Host) -> None:
    """The caller goes while the result waits for a locked store."""
    hold = Hold()

    async def lock(_event: object) -> None:
        await hold.on_loop()

    async with host.runtime(TURNS, listeners=[lock, host.listen]) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        deciding = asyncio.create_task(runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB))
        await hold.is_reached()
        async with locked(host):
            hold.let_go()
            await asyncio.sleep(SOON)
            assert not deciding.done()
            deciding.cancel()
            async with asyncio.timeout(2):
                with pytest.raises(asyncio.CancelledError):
                    await deciding
        run = await until_left(runtime, run.run_id, RunStatus.RUNNING)
        assert run.status is RunStatus.QUEUED
        assert len(await runtime.writes()) == len(host.heard()) == host.executions() == 1
        assert (await runtime.execute(run.run_id)).status is RunStatus.COMPLETED


@pytest.mark.promise("P22")
async def test_readers_who_go_away_leave_nothing_behind(host: Host) -> None:
    """A hundred of them, and the store still answers."""
    async with host.runtime(TURNS) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        readers = [asyncio.create_task(runtime.get_run(run.run_id)) for _ in range(100)]
        await asyncio.sleep(0)
        for reader in readers:
            reader.cancel()
        ended = await asyncio.gather(*readers, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError | Run) for each in ended)
        assert (await runtime.get_run(run.run_id)).status is RunStatus.AWAITING_APPROVAL
