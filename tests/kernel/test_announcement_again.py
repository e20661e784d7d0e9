"""An announcement may come twice, with equal events; a write that must not be repeated never does (P8)."""

import asyncio
from uuid import UUID

import pytest

from byline import (
    AfterAiRecordWrittenEvent,
    Reconciliation,
    RecordReference,
    RunStatus,
    StoreUnavailable,
    ToolEffect,
    WriteKind,
)
from byline.models.scripted import Turn
from byline.testing import call
from tests.host import BOB, Host
from tests.kernel.entries import Clock, left_queued, start_and_approve, store_of, unknown, until
from tests.kernel.silence import Silence
from tests.kernel.writers import PAGE, TURNS, WRITE, WRITES, writer
from tests.unit.hearing import Ears, failing_listener


async def announced_but_not_stored(host: Host, effect: ToolEffect, clock: Clock, ears: Ears) -> UUID:
    """A segment that ends after the announcement: the store is gone when the result is to be stored."""
    run_id = await left_queued(host, TURNS, clock, tools=[writer(host, effect)])
    store = store_of(host, clock)
    silence = Silence(store)

    def and_then_silence(_event: AfterAiRecordWrittenEvent) -> None:
        silence.begin()

    tools = [writer(host, effect)]
    runtime = host.runtime(TURNS, store=store, tools=tools, listeners=[ears, and_then_silence], grace=0.1)
    async with runtime:
        executing = asyncio.create_task(runtime.execute(run_id))
        await until(lambda: silence.refused > 0)
    (failed,) = await asyncio.gather(executing, return_exceptions=True)
    assert isinstance(failed, StoreUnavailable | asyncio.CancelledError)
    assert len(ears.heard) == host.executions() == 1
    clock.let_leases_expire()
    return run_id


@pytest.mark.promise("P8")
async def test_an_idempotent_write_that_runs_again_is_announced_again_with_an_equal_event(host: Host) -> None:
    clock, ears = Clock(), Ears()
    run_id = await announced_but_not_stored(host, ToolEffect.IDEMPOTENT_WRITE, clock, ears)

    tools = [writer(host, ToolEffect.IDEMPOTENT_WRITE)]
    async with host.runtime(TURNS, store=store_of(host, clock), tools=tools, listeners=[ears]) as runtime:
        run = await runtime.execute(run_id)

        assert run.status is RunStatus.COMPLETED
        assert host.executions() == 2
        assert ears.heard == [AfterAiRecordWrittenEvent(run_id, PAGE, WriteKind.UPDATED)] * 2
        assert len({(event.correlation_id, event.record) for event in ears.heard}) == 1
        assert len(await runtime.writes()) == 1


@pytest.mark.promise("P8", "P9")
async def test_a_non_idempotent_write_is_announced_again_by_a_verdict_and_never_repeated(host: Host) -> None:
    clock, ears = Clock(), Ears()
    run_id = await announced_but_not_stored(host, ToolEffect.NON_IDEMPOTENT_WRITE, clock, ears)

    tools = [writer(host, ToolEffect.NON_IDEMPOTENT_WRITE)]
    async with host.runtime(TURNS, store=store_of(host, clock), tools=tools, listeners=[ears]) as runtime:
        run = await runtime.execute(run_id)
        landed = Reconciliation.landed(unknown(run).digest, PAGE, WriteKind.UPDATED)
        assert len(ears.heard) == 1
        run = await runtime.reconcile(run_id, landed, actor=BOB)

        assert run.status is RunStatus.COMPLETED
        assert host.executions() == 1
        assert ears.heard == [AfterAiRecordWrittenEvent(run_id, PAGE, WriteKind.UPDATED)] * 2
        assert len(await runtime.writes()) == 1


@pytest.mark.promise("P8")
@pytest.mark.parametrize("effect", WRITES)
async def test_a_listener_that_failed_is_not_told_again_and_catches_up_from_the_feed(
    host: Host, effect: ToolEffect
) -> None:
    told: list[AfterAiRecordWrittenEvent] = []
    fail, ears = failing_listener(ValueError("down")), Ears()

    def label(event: AfterAiRecordWrittenEvent) -> None:
        told.append(event)
        fail(event)

    tools = [writer(host, effect), *host.tools()]
    turns: list[Turn] = [[call("set_description", page_id=41, description="x"), WRITE], "Done."]
    async with host.runtime(turns, tools=tools, listeners=[label, ears]) as runtime:
        await start_and_approve(runtime)
    async with host.runtime(turns, tools=tools, listeners=[label, ears], recover=True) as runtime:
        await runtime.recover()
        assert len(told) == 2
        assert told == ears.heard
        facts = await runtime.writes()
        assert [AfterAiRecordWrittenEvent(f.correlation_id, f.record, f.kind) for f in facts] == told
        rest = await runtime.writes(after=facts[0].cursor)
        assert [fact.record for fact in rest] == [PAGE]
        assert await runtime.writes(after=facts[1].cursor) == []
        assert [fact.record for fact in await runtime.writes_of(RecordReference("pages", 41))] == [told[0].record]
