"""Where the store does not answer, the result of a write is tried again, the tool never (P9)."""

import asyncio
import logging
from typing import Literal

import pytest

from byline import (
    RunStatus,
    StepKind,
    ToolContext,
    ToolEffect,
    ToolResult,
    UncertaintyReason,
)
from tests.host import Host
from tests.kernel.entries import Clock, start_and_approve, store_of, unknown, until
from tests.kernel.silence import Silence
from tests.kernel.writers import PAGE, TURNS, WRITES, unnamed, writer, written
from tests.unit.hearing import Ears

LONG = 8
"""Failed commits in a row: more than one call of the store tries."""


@pytest.mark.promise("P9")
@pytest.mark.report(22)
@pytest.mark.parametrize("lost", ["commit", "answer"])
@pytest.mark.parametrize("effect", WRITES)
async def test_the_result_is_tried_again_and_the_tool_never(
    host: Host, effect: ToolEffect, lost: Literal["commit", "answer"], caplog: pytest.LogCaptureFixture
) -> None:
    ears, store = Ears(), store_of(host)
    silence = Silence(store, lost=lost)

    def end(context: ToolContext) -> ToolResult:
        silence.begin(LONG)
        return written(context)

    async with host.runtime(TURNS, store=store, tools=[writer(host, effect, end)], listeners=[ears]) as runtime:
        run = await start_and_approve(runtime)

        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
        assert host.executions() == 1
        assert [str(event.record) for event in ears.heard] == ["pages:42"]
        kinds = [step.kind for step in await runtime.list_steps(run.run_id)]
        assert kinds.count(StepKind.TOOL) == kinds.count(StepKind.WRITE) == 1
        assert len(await runtime.writes()) == 1
    if lost == "commit":
        assert silence.refused == LONG
        (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert vars(record)["action"] == "result_not_stored"


@pytest.mark.promise("P9")
@pytest.mark.parametrize("effect", WRITES)
async def test_that_a_write_is_uncertain_is_tried_again_too(host: Host, effect: ToolEffect) -> None:
    store = store_of(host)
    silence = Silence(store)

    def end(context: ToolContext) -> ToolResult:
        silence.begin(LONG)
        return unnamed(context)

    async with host.runtime(TURNS, store=store, tools=[writer(host, effect, end)]) as runtime:
        run = await start_and_approve(runtime)

        assert unknown(run).reason is UncertaintyReason.UNNAMED
        assert silence.refused == LONG
        assert host.executions() == 1


@pytest.mark.promise("P9")
async def test_until_the_claim_is_lost_and_then_it_is_reported_late(host: Host) -> None:
    clock, ears, effect = Clock(), Ears(), ToolEffect.NON_IDEMPOTENT_WRITE
    store = store_of(host, clock)
    silence = Silence(store)

    def end(context: ToolContext) -> ToolResult:
        silence.begin()
        return written(context)

    async with host.runtime(TURNS, store=store, tools=[writer(host, effect, end)], listeners=[ears]) as first:
        deciding = asyncio.create_task(start_and_approve(first))
        await until(lambda: silence.refused > 0)
        clock.let_leases_expire()
        async with host.runtime(TURNS, store=store_of(host, clock), tools=[writer(host, effect)]) as second:
            (run,) = await second.list_runs()
            assert unknown(await second.execute(run.run_id)).reason is UncertaintyReason.INTERRUPTED
            silence.end()
            await deciding
            (report,) = await second.late_reports()
            assert (report.settled, report.conflict) == (True, False)
            run = await second.execute(run.run_id)
            assert run.status is RunStatus.COMPLETED
            assert host.executions() == 1
            assert [fact.record for fact in await second.writes()] == [PAGE]
    assert len(ears.heard) == 1  # the second runtime tells its own listener
    assert host.heard() == [("pages:42", "updated")]
