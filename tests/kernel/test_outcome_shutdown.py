"""Past its grace, a closing runtime breaks off what runs: a write in flight becomes uncertain (P9)."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Literal

import pytest

from byline import (
    Reconciliation,
    RunStatus,
    StepKind,
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    UncertaintyReason,
    WriteKind,
)
from tests.host import BOB, Host
from tests.kernel.entries import start_and_approve, unknown, until
from tests.kernel.writers import PAGE, TURNS, WRITES, Held, async_writer, writer, written
from tests.unit.hearing import Ears

GRACE = 0.1


class Hanging:
    """How a tool ends that hangs until it is let go: on a thread, on the loop, or there without obeying its cancel."""

    def __init__(self, way: Literal["thread", "obedient", "stubborn"]) -> None:
        self.way = way
        self.held = Held()
        self.begun = self.held.begun
        self.let_go = asyncio.Event()

    def tool(self, host: Host, effect: ToolEffect) -> Tool:
        return writer(host, effect, self.held) if self.way == "thread" else async_writer(host, effect, self.on_loop)

    async def on_loop(self, context: ToolContext) -> ToolResult:
        self.begun.set()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                if self.way == "obedient":
                    raise
        return written(context)

    def release(self) -> None:
        self.held.let_go.set()
        self.let_go.set()


@pytest.mark.promise("P9")
@pytest.mark.report(28)
@pytest.mark.parametrize("way", ["thread", "obedient", "stubborn"])
@pytest.mark.parametrize("effect", WRITES)
async def test_a_write_that_ends_within_the_grace_is_recorded_and_its_run_handed_back(
    host: Host, effect: ToolEffect, way: Literal["thread", "obedient", "stubborn"]
) -> None:
    hanging = Hanging(way)
    tools = [hanging.tool(host, effect)]
    async with host.runtime(TURNS, tools=tools, grace=30) as runtime:
        deciding = asyncio.create_task(start_and_approve(runtime))
        await until(hanging.begun.is_set)
        asyncio.get_running_loop().call_later(0.05, hanging.release)  # while the runtime closes
    await asyncio.wait({deciding})

    async with host.runtime(TURNS, tools=tools) as runtime:
        (run,) = await runtime.list_runs()
        assert run.status is RunStatus.QUEUED
        kinds = [step.kind for step in await runtime.list_steps(run.run_id)]
        assert kinds[-3:] == [StepKind.TOOL, StepKind.WRITE, StepKind.HANDED_BACK]
        run = await runtime.execute(run.run_id)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)
        assert host.heard() == [("pages:42", "updated")]


async def closed_in_a_write(host: Host, tools: Sequence[Tool], begun: threading.Event) -> None:
    """Start a run, and close its runtime while it writes, with a grace that is too short."""
    async with host.runtime(TURNS, tools=tools, grace=GRACE) as runtime:
        deciding = asyncio.create_task(start_and_approve(runtime))
        await until(begun.is_set)
    await asyncio.wait({deciding})


@pytest.mark.promise("P9")
@pytest.mark.report(28)
@pytest.mark.parametrize("way", ["thread", "obedient", "stubborn"])
@pytest.mark.parametrize("effect", WRITES)
async def test_a_write_that_outlasts_the_grace_is_uncertain(
    host: Host, effect: ToolEffect, way: Literal["thread", "obedient", "stubborn"]
) -> None:
    ears, hanging = Ears(), Hanging(way)
    tools = [hanging.tool(host, effect)]
    try:
        await closed_in_a_write(host, tools, hanging.begun)

        async with host.runtime(TURNS, tools=tools, listeners=[ears]) as runtime:
            (run,) = await runtime.list_runs()
            call = unknown(await runtime.execute(run.run_id))
            assert call.reason is UncertaintyReason.INTERRUPTED
            assert StepKind.HANDED_BACK not in {step.kind for step in await runtime.list_steps(run.run_id)}
            assert (host.executions(), ears.heard) == (1, [])
            landed = Reconciliation.landed(call.digest, PAGE, WriteKind.UPDATED)
            run = await runtime.reconcile(run.run_id, landed, actor=BOB)
            assert run.status is RunStatus.COMPLETED
            assert (host.executions(), len(ears.heard)) == (1, 1)
    finally:
        hanging.release()
