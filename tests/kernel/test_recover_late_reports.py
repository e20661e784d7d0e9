"""A segment that lost its run comes back from its write: before anybody knows that the call is uncertain, and after."""

import asyncio
from uuid import UUID

import pytest

from byline import AgentRuntime, Decision, Reconciliation, Run, RunStatus, ToolEffect, WriteKind
from byline.store.protocol import BecomeUncertain, Change, Claim
from byline.store.sql import SqlStore
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import LEASE, Clock, store_of, unknown, until, waiting
from tests.kernel.stopping import Hold, outcomes
from tests.kernel.writers import PAGE, TURNS, WRITES, writer

ONCE = ToolEffect.NON_IDEMPOTENT_WRITE


class Slow(SqlStore):
    """A store that takes its time to say that a run is uncertain."""

    hold: Hold = Hold()  # each test gives its own

    def advance(self, claim: Claim, change: Change, *, at: int, revision: int) -> bool:
        """Store what a segment did."""
        if isinstance(change, BecomeUncertain):
            self.hold.wait()
        return super().advance(claim, change, at=at, revision=revision)


async def in_a_write(runtime: AgentRuntime, hold: Hold, clock: Clock) -> tuple[UUID, "asyncio.Task[Run]"]:
    """A run whose segment is in a write, and whose lease has ended."""
    run = await runtime.run("editor", "Please do.", actor=ALICE)
    deciding = asyncio.create_task(runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB))
    await hold.is_reached()
    clock.let_leases_expire()
    return run.run_id, deciding


async def is_settled_by_the_report(host: Host, runtime: AgentRuntime, run: Run) -> None:
    """It is known that the call landed: the run goes on, and the write is not repeated."""
    assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
    assert await outcomes(runtime, run.run_id) == [("write", "succeeded")]
    (report,) = await runtime.late_reports()
    assert (report.settled, report.conflict) == (True, False)
    assert host.executions() == 1
    assert host.heard() == [("pages:42", "updated")] * 2  # when it landed, and on the word of the report


@pytest.mark.promise("P9", "P18", "P20")
@pytest.mark.report(45)
async def test_after_it_has_become_uncertain(host: Host) -> None:
    hold, clock = Hold(), Clock()
    tools = [writer(host, ONCE, hold.end)]
    first = host.runtime(TURNS, store=store_of(host, clock), tools=tools)
    second = host.runtime(TURNS, store=store_of(host, clock), tools=tools)
    async with first, second:
        run_id, deciding = await in_a_write(first, hold, clock)
        unknown(await second.execute(run_id))
        hold.let_go()
        assert (await deciding).status is RunStatus.QUEUED
        await is_settled_by_the_report(host, second, await second.execute(run_id))


@pytest.mark.promise("P9", "P18", "P20")
@pytest.mark.report(45)
async def test_before_it_has_become_uncertain(host: Host) -> None:
    """The run is taken over, and the report comes in between: nobody is asked what is known already."""
    hold, clock = Hold(), Clock()
    tools = [writer(host, ONCE, hold.end)]
    slow = Slow(store_of(host).engine.url.render_as_string(), clock=clock)
    slow.hold = Hold()
    first = host.runtime(TURNS, store=store_of(host, clock), tools=tools)
    second = host.runtime(TURNS, store=slow, tools=tools)
    async with first, second:
        run_id, deciding = await in_a_write(first, hold, clock)
        executing = asyncio.create_task(second.execute(run_id))
        await slow.hold.is_reached()
        hold.let_go()
        assert (await deciding).status is RunStatus.RUNNING
        assert [report.settled for report in await first.late_reports()] == [False]
        slow.hold.let_go()
        await is_settled_by_the_report(host, second, await executing)


@pytest.mark.promise("P9", "P18", "P21")
@pytest.mark.parametrize("effect", WRITES)
async def test_before_its_takeovers_are_spent(host: Host, effect: ToolEffect) -> None:
    """Whoever took it over has died as well; the report came meanwhile, and the run is given up on only after it."""
    hold, clock = Hold(), Clock()
    tools = [writer(host, effect, hold.end)]
    store = store_of(host, clock)
    first = host.runtime(TURNS, store=store, tools=tools)
    third = host.runtime(TURNS, store=store_of(host, clock), tools=tools, max_takeovers=1)
    async with first, third:
        run_id, deciding = await in_a_write(first, hold, clock)
        assert store.claim(run_id, lease=LEASE, takeovers=1) is not None
        hold.let_go()
        assert (await deciding).status is RunStatus.RUNNING
        clock.let_leases_expire()
        await is_settled_by_the_report(host, third, await third.execute(run_id))


@pytest.mark.promise("P9", "P14")
@pytest.mark.report(45)
async def test_against_what_was_said_meanwhile(host: Host) -> None:
    """A person said that it did not land, and had it run again: the report is listed as a conflict, and that is all."""
    hold, clock = Hold(), Clock()
    first = host.runtime(TURNS, store=store_of(host, clock), tools=[writer(host, ONCE, hold.end)])
    second = host.runtime(TURNS, store=store_of(host, clock), tools=[writer(host, ONCE)])
    async with first, second:
        run_id, deciding = await in_a_write(first, hold, clock)
        run = await second.execute(run_id)
        run = await second.reconcile(run_id, Reconciliation.run_again(unknown(run).digest), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 2)
        hold.let_go()
        assert await deciding == run
        (conflict,) = await second.late_reports(conflicts_only=True)
        assert (conflict.claim, conflict.settled) == (Claim(run_id, 2), False)
        assert (conflict.target.record, conflict.target.kind) == (PAGE, WriteKind.UPDATED)
        await until(lambda: len(host.heard()) == 2)
