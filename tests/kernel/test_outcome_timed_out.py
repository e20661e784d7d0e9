"""A deadline that passed leaves a write's outcome unknown; what still runs is never repeated beside itself (P10)."""

import asyncio
import time
from typing import Literal

import pytest

from byline import (
    AgentRuntime,
    Reconciliation,
    Run,
    RunStatus,
    ToolContext,
    ToolEffect,
    ToolError,
    ToolResult,
    UncertaintyReason,
)
from byline.testing import ScriptedModel
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import start_and_approve, unknown, until, until_left
from tests.kernel.writers import PAGE, TURNS, WRITES, Held, async_writer, last_result, writer, written
from tests.unit.hearing import Ears

IDEMPOTENT, NON_IDEMPOTENT = WRITES
TIMEOUT = 0.3


class Slow:
    """How an async tool ends that hangs in its first attempt, and what it does about its cancellation."""

    def __init__(self, when_cancelled: Literal["obey", "swallow", "succeed", "say nothing was written"]) -> None:
        self.when_cancelled = when_cancelled
        self.attempts: list[int] = []
        self.let_go = asyncio.Event()

    async def __call__(self, context: ToolContext) -> ToolResult:
        self.attempts.append(context.attempt)
        while context.attempt == 1 and not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                if self.when_cancelled == "obey":
                    raise
                if self.when_cancelled == "say nothing was written":
                    raise ToolError("Rolled back.") from None
                if self.when_cancelled == "succeed":
                    break
        return written(context)


@pytest.mark.promise("P9", "P10")
async def test_a_non_idempotent_write_that_is_late_is_uncertain_and_not_repeated(host: Host) -> None:
    slow, ears = Slow("obey"), Ears()
    tools = [async_writer(host, NON_IDEMPOTENT, slow, timeout=TIMEOUT)]
    async with host.runtime(TURNS, tools=tools, listeners=[ears]) as runtime:
        assert unknown(await start_and_approve(runtime)).reason is UncertaintyReason.TIMED_OUT
        assert (host.executions(), ears.heard) == (1, [])


@pytest.mark.promise("P10")
async def test_an_idempotent_write_that_is_late_is_repeated_once_it_has_ended(host: Host) -> None:
    slow, ears = Slow("obey"), Ears()
    tools = [async_writer(host, IDEMPOTENT, slow, timeout=TIMEOUT)]
    async with host.runtime(TURNS, tools=tools, listeners=[ears]) as runtime:
        run = await start_and_approve(runtime)
        assert run.status is RunStatus.COMPLETED
        assert slow.attempts == [1, 2]
        assert len(ears.heard) == 1


@pytest.mark.promise("P10")
@pytest.mark.parametrize("effect", WRITES)
async def test_a_write_that_succeeds_although_it_was_cancelled_has_succeeded(host: Host, effect: ToolEffect) -> None:
    slow, ears = Slow("succeed"), Ears()
    tools = [async_writer(host, effect, slow, timeout=TIMEOUT)]
    async with host.runtime(TURNS, tools=tools, listeners=[ears]) as runtime:
        run = await start_and_approve(runtime)
        assert run.status is RunStatus.COMPLETED
        assert (slow.attempts, len(ears.heard)) == ([1], 1)


@pytest.mark.promise("P10")
@pytest.mark.parametrize("effect", WRITES)
async def test_a_write_that_rolls_back_when_it_is_late_wrote_nothing(host: Host, effect: ToolEffect) -> None:
    slow, ears, model = Slow("say nothing was written"), Ears(), ScriptedModel(TURNS)
    tools = [async_writer(host, effect, slow, timeout=TIMEOUT)]
    async with host.runtime(model, tools=tools, listeners=[ears]) as runtime:
        run = await start_and_approve(runtime)
        assert run.status is RunStatus.COMPLETED
        assert (slow.attempts, ears.heard) == ([1], [])
        assert last_result(model).text == "Rolled back."


async def left_behind(runtime: AgentRuntime) -> Run:
    """A run whose write was given up while something of it still runs."""
    run = await start_and_approve(runtime)
    assert unknown(run).reason is UncertaintyReason.TIMED_OUT
    return run


@pytest.mark.promise("P9", "P10")
@pytest.mark.report(28)
@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("effect", WRITES)
async def test_a_write_that_still_runs_is_not_repeated_and_its_late_success_settles_the_run(
    host: Host, effect: ToolEffect, threaded: bool
) -> None:
    ears, held, slow = Ears(), Held(), Slow("swallow")
    on_thread, on_loop = writer(host, effect, held, timeout=TIMEOUT), async_writer(host, effect, slow, timeout=TIMEOUT)
    tools = [on_thread if threaded else on_loop]
    async with host.runtime(TURNS, tools=tools, listeners=[ears]) as runtime:
        run = await left_behind(runtime)
        assert (host.executions(), ears.heard) == (1, [])

        held.let_go.set()
        slow.let_go.set()
        run = await until_left(runtime, run.run_id, RunStatus.UNCERTAIN)
        assert len(ears.heard) == 1

        assert run.status is RunStatus.QUEUED
        (report,) = await runtime.late_reports()
        assert (report.settled, report.conflict, report.target.record) == (True, False, PAGE)
        run = await runtime.execute(run.run_id)
        assert run.status is RunStatus.COMPLETED
        assert host.executions() == 1
        assert {(event.correlation_id, event.record) for event in ears.heard} == {(run.run_id, PAGE)}
        assert [fact.record for fact in await runtime.writes()] == [PAGE]


@pytest.mark.promise("P8", "P10")
async def test_a_late_success_against_a_verdict_is_announced_and_listed_as_a_conflict(host: Host) -> None:
    ears, held = Ears(), Held()
    tools = [writer(host, NON_IDEMPOTENT, held, timeout=TIMEOUT)]
    async with host.runtime(TURNS, tools=tools, listeners=[ears]) as runtime:
        run = await left_behind(runtime)
        run = await runtime.reconcile(run.run_id, Reconciliation.leave_it(unknown(run).digest), actor=BOB)
        assert run.status is RunStatus.COMPLETED

        tasks = len(asyncio.all_tasks())
        held.let_go.set()
        await until(lambda: len(asyncio.all_tasks()) < tasks)

        assert len(ears.heard) == 1
        reports = await runtime.late_reports(conflicts_only=True)
        assert [(report.claim.run_id, report.target.record) for report in reports] == [(run.run_id, PAGE)]
        assert (await runtime.get_run(run.run_id)).status is RunStatus.COMPLETED
        assert host.executions() == 1
        assert [fact.record for fact in await runtime.writes()] == [PAGE]


@pytest.mark.promise("P10")
@pytest.mark.parametrize("effect", WRITES)
async def test_a_late_failure_changes_nothing(host: Host, effect: ToolEffect) -> None:
    def fail(context: ToolContext) -> ToolResult:
        raise ToolError("No.")

    ears, held = Ears(), Held(fail)
    tools = [writer(host, effect, held, timeout=TIMEOUT)]
    async with host.runtime(TURNS, tools=tools, listeners=[ears]) as runtime:
        tasks = len(asyncio.all_tasks())
        run = await left_behind(runtime)
        assert len(asyncio.all_tasks()) > tasks
        held.let_go.set()
        await until(lambda: len(asyncio.all_tasks()) == tasks)
        assert unknown(await runtime.get_run(run.run_id)).reason is UncertaintyReason.TIMED_OUT
        assert (await runtime.late_reports(), ears.heard) == ([], [])


@pytest.mark.promise("P10")
async def test_a_read_that_is_late_tells_the_model(host: Host) -> None:
    slow, model = Slow("obey"), ScriptedModel(TURNS)
    tools = [async_writer(host, ToolEffect.READ_ONLY, slow, timeout=TIMEOUT)]
    async with host.runtime(model, tools=tools) as runtime:
        run = await runtime.run("editor", "Please look.", actor=ALICE)
        assert run.status is RunStatus.COMPLETED
        assert last_result(model).text == "The tool failed: no answer within 0.3 s."
        assert slow.attempts == [1]


@pytest.mark.promise("P10")
async def test_a_tool_knows_its_deadline(host: Host) -> None:
    left: list[float | None] = []

    def end(context: ToolContext) -> ToolResult:
        left.append(context.seconds_left)
        assert context.deadline is not None
        assert context.deadline - time.monotonic() <= 30
        return written(context)

    async with host.runtime(TURNS, tools=[writer(host, IDEMPOTENT, end, timeout=30)]) as runtime:
        assert (await start_and_approve(runtime)).status is RunStatus.COMPLETED
        (seconds,) = left
        assert seconds is not None
        assert 0 < seconds <= 30
