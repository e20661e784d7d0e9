"""Approvals that have expired: settled in one transaction, with a reason of their own, and nothing left hanging."""

import sqlite3
from contextlib import suppress

import pytest

from byline import ApprovalExpired, Decision, RunFinished, RunStatus, StepKind, StoreUnavailable, TerminationReason
from byline.models.scripted import Turn
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import Clock, store_of, waiting
from tests.kernel.silence import Silence
from tests.kernel.stopping import ADD, READ, SET, kinds, outcomes

TURNS: list[Turn] = [[SET, READ, ADD], "Done."]
TTL = 60.0


@pytest.mark.promise("P21", "P13", "P23")
@pytest.mark.report(15, 18)
async def test_the_run_ends_and_says_why(host: Host) -> None:
    """It does not look like a denial, every call has a result, and what was sealed for it is gone."""
    clock = Clock()
    async with host.runtime(TURNS, store=store_of(host, clock), agent={"approval_ttl": TTL}) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        digest = waiting(run)
        assert (await runtime.recover()).expired == ()
        clock.now += TTL
        with pytest.raises(ApprovalExpired):
            await runtime.decide(run.run_id, Decision.approve(digest), actor=BOB)
        (listed,) = await runtime.list_runs(status=RunStatus.AWAITING_APPROVAL)
        assert listed.run_id == run.run_id

        recovery = await runtime.recover()
        assert (recovery.expired, recovery.executed, dict(recovery.skipped)) == ((run.run_id,), (), {})
        run = await runtime.get_run(run.run_id)
        assert (run.status, run.reason, run.pending) == (RunStatus.FAILED, TerminationReason.APPROVAL_EXPIRED, None)
        expired = [(name, "expired") for name in ("set_description", "read_page", "add_element")]
        assert await outcomes(runtime, run.run_id) == expired
        assert (await kinds(runtime, run.run_id))[-1] is StepKind.SETTLED
        with pytest.raises(RunFinished):
            await runtime.decide(run.run_id, Decision.approve(digest), actor=BOB)
        assert (await runtime.recover()).expired == ()
    assert (host.executions(), host.heard()) == (0, [])
    with sqlite3.connect(host.path.parent / "byline.db") as database:
        assert database.execute("select count(*) from byline_message").fetchone() == (0,)
        assert database.execute("select count(*) from byline_run where turn is not null").fetchone() == (0,)
    database.close()


@pytest.mark.promise("P21", "P16")
@pytest.mark.report(15)
@pytest.mark.parametrize("commits", [0, 1, 2])
async def test_in_one_transaction(host: Host, commits: int) -> None:
    """However many commits succeed before the store falls silent: they have all expired, or none has."""
    clock = Clock()
    store = store_of(host, clock)
    silence = Silence(store)
    async with host.runtime(TURNS, store=store, agent={"approval_ttl": TTL}) as runtime:
        runs = [await runtime.run("editor", "Please do.", actor=ALICE) for _ in range(3)]
        clock.now += TTL
        made = 0

        def fails() -> bool:
            nonlocal made
            made += 1
            return made > commits

        silence.fails = fails
        with suppress(StoreUnavailable):
            await runtime.recover()
        silence.end()
        stood = [(await runtime.get_run(run.run_id)).status for run in runs]
        assert stood == [RunStatus.FAILED if commits else RunStatus.AWAITING_APPROVAL] * 3
        await runtime.recover()
        for run in runs:
            ended = await runtime.get_run(run.run_id)
            assert ended.reason is TerminationReason.APPROVAL_EXPIRED
            assert (await kinds(runtime, run.run_id)).count(StepKind.SETTLED) == 1
            assert len(await outcomes(runtime, run.run_id)) == 3


@pytest.mark.promise("P21", "P16")
@pytest.mark.report(15)
async def test_when_only_the_answer_to_its_commit_is_lost(host: Host) -> None:
    clock = Clock()
    store = store_of(host, clock)
    silence = Silence(store, lost="answer")
    async with host.runtime(TURNS, store=store, agent={"approval_ttl": TTL}) as runtime:
        runs = {(await runtime.run("editor", "Please do.", actor=ALICE)).run_id for _ in range(3)}
        clock.now += TTL
        silence.begin(1)
        assert set((await runtime.recover()).expired) == runs
        for run_id in runs:
            assert (await kinds(runtime, run_id)).count(StepKind.SETTLED) == 1


@pytest.mark.promise("P21")
@pytest.mark.report(15)
async def test_what_has_been_released_expires_no_more(host: Host) -> None:
    """Its time is up while it waits for a worker: the decision was in time."""
    clock = Clock()
    store = store_of(host, clock)
    async with host.runtime([[SET], "Done."], store=store, agent={"approval_ttl": TTL}, execution="queued") as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        run = await runtime.execute(run.run_id)
        await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        clock.now += 10 * TTL
        recovery = await runtime.recover()
        assert (recovery.expired, recovery.executed) == ((), (run.run_id,))
        assert (await runtime.get_run(run.run_id)).status is RunStatus.COMPLETED
        assert host.executions() == 1
