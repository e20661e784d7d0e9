"""A cancelled run starts nothing more; a write in flight ends, is announced and recorded; every call has a result."""

import asyncio
from collections import Counter

import pytest

from byline import RunStatus, StepKind, TerminationReason, ToolContext, ToolEffect, ToolResult, UncertaintyReason
from byline.models.scripted import Turn
from byline.testing import call
from tests.host import ALICE, Host
from tests.kernel.entries import start_and_approve, unknown, until
from tests.kernel.writers import WRITE, WRITES, Held, async_writer, writer, written
from tests.unit.hearing import Ears

READ = call("read_page", page_id=42)
ADD = call("add_element", page_id=42, text="Never.")
TURNS: list[Turn] = [[WRITE, READ, ADD], "Never said."]


@pytest.mark.promise("P22")
@pytest.mark.report(28, 29)
@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("effect", WRITES)
async def test_a_write_in_flight_ends_and_is_recorded_when_its_run_is_cancelled(
    host: Host, effect: ToolEffect, threaded: bool
) -> None:
    ears, held = Ears(), Held()
    cancelled: list[str] = []

    async def on_loop(context: ToolContext) -> ToolResult:
        held.begun.set()
        try:
            await until(held.let_go.is_set)
        except asyncio.CancelledError:
            cancelled.append(context.idempotency_key)
            raise
        return written(context)

    tool = writer(host, effect, held) if threaded else async_writer(host, effect, on_loop)
    async with host.runtime(TURNS, tools=[tool, *host.tools()], listeners=[ears]) as runtime:
        deciding = asyncio.create_task(start_and_approve(runtime))
        await until(held.begun.is_set)
        (run,) = await runtime.list_runs()

        run = await runtime.cancel(run.run_id, actor=ALICE)
        assert (run.status, run.cancel_requested) == (RunStatus.RUNNING, True)
        assert ears.heard == []
        held.let_go.set()
        run = await deciding

        assert (run.status, run.reason) == (RunStatus.CANCELLED, TerminationReason.CANCELLED)
        assert (host.executions(), cancelled) == (1, [])
        assert [event.correlation_id for event in ears.heard] == [run.run_id]
        assert [fact.correlation_id for fact in await runtime.writes()] == [run.run_id]
        steps = [step for step in await runtime.list_steps(run.run_id) if step.kind is StepKind.TOOL]
        assert [step.payload["outcome"] for step in steps] == ["succeeded", "cancelled", "cancelled"]
        assert set(Counter(step.call_id for step in steps).values()) == {1}


@pytest.mark.promise("P22")
@pytest.mark.report(28)
@pytest.mark.parametrize("threaded", [True, False])
async def test_a_read_in_flight_is_broken_off_and_has_a_result(host: Host, threaded: bool) -> None:
    held = Held(lambda context: ToolResult.text("seen"))

    async def on_loop(context: ToolContext) -> ToolResult:
        held.begun.set()
        await asyncio.Event().wait()
        return ToolResult.text("never")

    effect = ToolEffect.READ_ONLY
    tool = writer(host, effect, held) if threaded else async_writer(host, effect, on_loop)
    try:
        async with host.runtime([[WRITE, WRITE], "Never said."], tools=[tool]) as runtime:
            running = asyncio.create_task(runtime.run("editor", "Please look.", actor=ALICE))
            await until(held.begun.is_set)
            (run,) = await runtime.list_runs()
            run = await runtime.cancel(run.run_id, actor=ALICE)

            assert run.status is RunStatus.CANCELLED
            assert (await running).status is RunStatus.CANCELLED
            steps = [step for step in await runtime.list_steps(run.run_id) if step.kind is StepKind.TOOL]
            assert [step.payload["outcome"] for step in steps] == ["cancelled", "cancelled"]
    finally:
        held.let_go.set()


@pytest.mark.promise("P9", "P22")
@pytest.mark.parametrize("effect", WRITES)
async def test_a_cancel_during_a_write_that_stays_unknown_leaves_it_uncertain(host: Host, effect: ToolEffect) -> None:
    """And an idempotent one is not run again: no call starts after a cancel."""

    def fail(context: ToolContext) -> ToolResult:
        raise ConnectionError

    held = Held(fail)
    async with host.runtime([[WRITE], "Never said."], tools=[writer(host, effect, held)]) as runtime:
        deciding = asyncio.create_task(start_and_approve(runtime))
        await until(held.begun.is_set)
        (run,) = await runtime.list_runs()
        await runtime.cancel(run.run_id, actor=ALICE)
        held.let_go.set()
        run = await deciding

        assert unknown(run).reason in (UncertaintyReason.RAISED, UncertaintyReason.NOT_REPEATABLE)
        assert run.cancel_requested
        assert host.executions() == 1
