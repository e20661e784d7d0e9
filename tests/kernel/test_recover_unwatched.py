"""Runs that nobody executes: who takes them up, and who does not."""

import asyncio

import pytest

from byline import AgentRuntime, Decision, ModelError, RunStatus, TerminationReason
from byline.models.scripted import Turn
from byline.testing import ScriptedModel
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import Clock, die_after_claim, left_queued, store_of, until_left, waiting
from tests.kernel.stopping import SET, Hold

TURNS: list[Turn] = [[SET], "Done."]


@pytest.mark.promise("P17", "P21")
@pytest.mark.report(44)
async def test_to_look_is_not_to_execute(host: Host) -> None:
    """To open a runtime takes nothing up, and neither does reading: a page that lists runs must not write."""
    clock = Clock()
    run_id = await left_queued(host, TURNS, clock)
    async with host.runtime(model := ScriptedModel(TURNS), store=store_of(host, clock)) as runtime:
        before = await runtime.get_run(run_id)
        assert [run.run_id for run in await runtime.list_runs()] == [run_id]
        await runtime.list_steps(run_id)
        await runtime.writes()
        await runtime.late_reports()
        await asyncio.sleep(0)
        assert await runtime.get_run(run_id) == before
    assert (host.executions(), model.requests) == (0, [])


@pytest.mark.promise("P17", "P21")
@pytest.mark.parametrize("left", ["queued", "claimed"])
async def test_a_runtime_that_recovers_finds_it(host: Host, left: str) -> None:
    """Nobody woke it up: the wake-up was lost, or who had it is dead."""
    clock = Clock()
    run_id = await left_queued(host, TURNS, clock)
    if left == "claimed":
        die_after_claim(host, run_id, clock)
    runtime = host.runtime(TURNS, store=store_of(host, clock), recover=True, beat=0.05)
    async with runtime:
        await until_left(runtime, run_id, RunStatus.QUEUED if left == "queued" else RunStatus.RUNNING)
        run = await until_left(runtime, run_id, RunStatus.RUNNING)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)
        later = await runtime.enqueue("editor", "And this.", actor=ALICE)  # it goes on to look
        await until_left(runtime, later.run_id, RunStatus.QUEUED)
        assert waiting(await until_left(runtime, later.run_id, RunStatus.RUNNING))


@pytest.mark.promise("P17", "P18")
@pytest.mark.report(44)
async def test_what_is_executed_is_left_alone(host: Host) -> None:
    """By a recovery, and by a wake-up that comes late or twice."""
    hold = Hold()
    async with host.runtime(model := ScriptedModel([hold.then("Done.")])) as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        executing = asyncio.create_task(runtime.execute(run.run_id))
        await hold.is_reached()
        async with host.runtime(model) as other:
            for each in (runtime, other):
                assert (await each.recover()).executed == ()
                assert (await each.execute(run.run_id)).status is RunStatus.RUNNING
        hold.let_go()
        assert (await executing).output == "Done."
        assert (await runtime.execute(run.run_id)).output == "Done."
        assert len(model.requests) == 1


@pytest.mark.promise("P17")
async def test_a_wake_up_finds_a_run_as_it_stands(host: Host) -> None:
    """It carries an id and nothing else: what waits goes on waiting, what has ended has ended."""
    async with host.runtime(model := ScriptedModel(TURNS)) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        assert await runtime.execute(run.run_id) == run
        assert (await runtime.recover()).executed == ()
        assert (host.executions(), len(model.requests)) == (0, 1)
        run = await runtime.decide(run.run_id, Decision.deny(waiting(run)), actor=BOB)
        assert await runtime.execute(str(run.run_id)) == run
        assert (host.executions(), len(model.requests)) == (0, 2)


@pytest.mark.promise("P21", "P17")
async def test_a_dead_letter_says_why_and_is_retried_when_somebody_says_so(host: Host) -> None:
    """Nobody else takes it up; once retried it goes on, and its finished calls are not run again."""
    turns: list[Turn] = [[SET], ModelError("no right")]
    async with host.runtime(turns) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert (run.status, run.reason) == (RunStatus.DEAD_LETTER, TerminationReason.NOT_RETRYABLE)
        assert (await runtime.recover()).executed == ()
        assert (await runtime.execute(run.run_id)).status is RunStatus.DEAD_LETTER
        assert [each.run_id for each in await runtime.list_runs(status=RunStatus.DEAD_LETTER)] == [run.run_id]

    async with host.runtime(TURNS, execution="queued") as runtime:
        assert (await runtime.retry(run.run_id)).status is RunStatus.QUEUED
        assert (await runtime.recover()).executed == (run.run_id,)
        ended = await runtime.get_run(run.run_id)
        assert (ended.status, ended.output) == (RunStatus.COMPLETED, "Done.")
        assert host.executions() == 1


@pytest.mark.promise("P21")
@pytest.mark.report(26, 27)
async def test_what_this_process_cannot_execute_is_named(host: Host) -> None:
    clock = Clock()
    run_id = await left_queued(host, TURNS, clock)
    async with AgentRuntime(store=store_of(host, clock), agents=[], authority=host.people) as other:
        assert (await other.recover()).executed == ()
        run = await other.execute(run_id)
        assert run.status is RunStatus.QUEUED
        assert "editor" in str(run.problem)
        assert await other.list_runs(status=RunStatus.QUEUED) == [run]
    async with host.runtime(TURNS, store=store_of(host, clock)) as runtime:
        assert (await runtime.recover()).executed == (run_id,)
        assert (await runtime.get_run(run_id)).status is RunStatus.COMPLETED
