"""A segment that cannot go on, for want of a key or of a reader, releases its run unspent, and says why."""

import logging

import pytest

from byline import (
    AgentRuntime,
    Decision,
    NativeUnreadable,
    Run,
    RunStatus,
    ToolContext,
    ToolEffect,
    ToolResult,
)
from byline.models.messages import ModelRequest
from byline.store.sealing import KeyRing
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel, call
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import Clock
from tests.kernel.writers import writer, written
from tests.keys.program import SCRIPT

OLD, NEW = KeyRing({"old": b"1" * 32}, "old"), KeyRing({"new": b"2" * 32}, "new")
BOTH = KeyRing({**OLD.keys, **NEW.keys}, "old")
UNREADABLE = NativeUnreadable("an answer of version 3 cannot be read")


def store_of(host: Host, ring: KeyRing, clock: Clock | None = None) -> SqlStore:
    return SqlStore(f"sqlite:///{host.path.parent / 'byline.db'}", keys=ring, clock=clock)


async def approved(runtime: AgentRuntime) -> Run:
    """A run whose write has been approved; it is queued where the runtime only queues."""
    run = await runtime.run("editor", "See to page 42.", actor=ALICE)
    if run.pending is None:
        run = await runtime.execute(run.run_id)
    assert run.pending is not None, run.problem
    return await runtime.decide(run.run_id, Decision.approve(run.pending.digest), actor=BOB)


def finish_rotation(store: SqlStore) -> None:
    """Leave a worker that has only the old key behind."""
    store.keys.activate("new")
    store.keys.reseal()
    store.keys.drop("old")


@pytest.mark.promise("P20", "P21")
async def test_an_answer_that_cannot_be_read_leaves_the_run_waiting(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    cannot: list[object] = []

    def model(_: ModelRequest) -> str:
        cannot.append(None)
        raise UNREADABLE

    script = ScriptedModel([SCRIPT[0], model])
    async with host.runtime(script, store=store_of(host, OLD, clock)) as runtime:
        run = await approved(runtime)
        assert (run.status, host.executions()) == (RunStatus.QUEUED, 1)
        assert run.problem is not None
        assert str(UNREADABLE) in run.problem
        assert [each.problem for each in await runtime.list_runs()] == [run.problem]
        assert any(f"Run {run.run_id} is released" in record.getMessage() for record in caplog.records)
        for _ in range(5):
            assert run.run_id not in (await runtime.recover()).executed  # not before the delay
        assert len(cannot) == 1
        for _ in range(5):  # more often than it may be taken over
            clock.now += 121
            assert (await runtime.recover()).executed == (run.run_id,)
        assert (await runtime.get_run(run.run_id)).status is RunStatus.QUEUED
        assert len(cannot) == 6
    async with host.runtime(SCRIPT, store=store_of(host, OLD, clock)) as runtime:  # whose model can read it
        run = await runtime.execute(run.run_id)
        assert (run.status, run.problem, host.executions()) == (RunStatus.COMPLETED, None, 1)


@pytest.mark.promise("P22")
async def test_a_run_that_is_cancelled_is_not_released(host: Host) -> None:
    runtimes: list[AgentRuntime] = []

    async def model(request: ModelRequest) -> str:
        (run,) = await runtimes[0].list_runs()
        store = store_of(host, OLD)
        store.open()
        store.cancel(run.run_id, "8")
        store.close()
        raise UNREADABLE

    async with host.runtime(ScriptedModel([model]), store=store_of(host, OLD)) as runtime:
        runtimes.append(runtime)
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        assert run.status is RunStatus.CANCELLED


@pytest.mark.promise("P22")
async def test_a_run_that_is_cancelled_while_its_key_goes_is_not_released(host: Host) -> None:
    """What the segment stores next finds both: nothing here may seal, and the run is to be cancelled."""

    def model(_: ModelRequest) -> str:
        store = store_of(host, BOTH)
        store.open()
        finish_rotation(store)
        (run,) = store.list_runs(status=None, agent=None, after=None, limit=1)
        store.cancel(run.run_id, "8")
        store.close()
        return "Done."

    async with host.runtime(ScriptedModel([model]), store=store_of(host, OLD)) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        assert run.status is RunStatus.CANCELLED


@pytest.mark.promise("P21", "P23")
async def test_without_its_key_a_queued_run_is_left_alone_and_says_why(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    async with host.runtime(SCRIPT, store=store_of(host, OLD, clock), execution="queued") as runtime:
        run = await approved(runtime)
        assert (run.status, run.problem) == (RunStatus.QUEUED, None)
    async with host.runtime(SCRIPT, store=store_of(host, NEW, clock)) as runtime:
        assert run.run_id in (await runtime.recover()).skipped
        noticed = len(caplog.records)
        for _ in range(20):
            assert not (await runtime.recover()).skipped
        assert len(caplog.records) == noticed  # it is not looked at again and again
    async with host.runtime(SCRIPT, store=store_of(host, OLD, clock)) as runtime:
        [listed] = await runtime.list_runs()
        assert listed.problem is not None
        assert "'old'" in listed.problem
        clock.now += 121
        assert (await runtime.recover()).executed == (run.run_id,)
        run = await runtime.get_run(run.run_id)
        assert (run.status, run.problem) == (RunStatus.COMPLETED, None)


@pytest.mark.promise("P23")
async def test_a_worker_whose_key_is_dropped_under_it_hands_its_run_over(host: Host) -> None:
    """Its key is closed while its model speaks: what it would store next, it cannot seal."""

    def model(_: ModelRequest) -> str:
        store = store_of(host, BOTH)
        store.open()
        finish_rotation(store)
        store.close()
        return "Done."

    async with host.runtime(ScriptedModel([SCRIPT[0], model]), store=store_of(host, OLD)) as runtime:
        run = await approved(runtime)
        assert (run.status, host.executions()) == (RunStatus.QUEUED, 1)
        assert run.problem is not None
        with pytest.raises(Exception, match="no key that is here may seal"):
            await runtime.run("editor", "See to page 43.", actor=ALICE)
    async with host.runtime(SCRIPT, store=store_of(host, NEW)) as runtime:
        run = await runtime.execute(run.run_id)
        assert (run.status, run.output, host.executions()) == (RunStatus.COMPLETED, "Done.", 1)


@pytest.mark.promise("P9", "P23")
@pytest.mark.parametrize("effect", [ToolEffect.IDEMPOTENT_WRITE, ToolEffect.NON_IDEMPOTENT_WRITE])
async def test_a_write_whose_result_cannot_be_sealed_is_announced_and_not_repeated(
    host: Host, effect: ToolEffect
) -> None:
    """What it did is reported without a seal, and settles it: nobody is asked, nothing runs twice."""

    def write(context: ToolContext) -> ToolResult:
        store = store_of(host, BOTH)
        store.open()
        finish_rotation(store)
        store.close()
        return written(context)

    tools = [writer(host, effect, write)]
    script = ScriptedModel([[call("write", text="x")], "Done."])
    async with host.runtime(script, store=store_of(host, OLD), tools=tools) as runtime:
        run = await approved(runtime)
        assert run.status in (RunStatus.QUEUED, RunStatus.UNCERTAIN)
        assert host.executions() == 1
    async with host.runtime(script, store=store_of(host, NEW), tools=tools) as runtime:
        run = await runtime.execute(run.run_id)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)
        assert len({(fact.correlation_id, fact.record) for fact in await runtime.writes()}) == 1


@pytest.mark.promise("P23")
async def test_a_worker_that_lacks_the_active_key_goes_on_with_one_that_is_not_closed(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    """What it seals is readable to all who have its key, and keeps that key from being dropped."""
    async with host.runtime(SCRIPT, store=store_of(host, OLD)) as runtime:
        administrator = store_of(host, BOTH)
        administrator.open()
        administrator.keys.activate("new")
        with caplog.at_level(logging.WARNING):
            run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        assert run.problem is None
        assert sum("'new' is not here" in record.getMessage() for record in caplog.records) == 1
        assert {key.key_id: key.values > 0 for key in administrator.keys.list()} == {"new": False, "old": True}
        with pytest.raises(Exception, match="need the key 'old'"):
            administrator.keys.drop("old")
        administrator.close()
