"""Each write that landed is announced, from one place, with three facts, before its step is stored."""

import pytest

from byline import (
    AfterAiRecordWrittenEvent,
    Reconciliation,
    RecordReference,
    RunStatus,
    StepKind,
    ToolContext,
    ToolEffect,
    ToolResult,
    WriteKind,
)
from byline.testing import call
from tests.host import BOB, Host
from tests.kernel.entries import ENTRIES, Entry, executed, start_and_approve, unknown
from tests.kernel.writers import PAGE, TURNS, WRITE, WRITES, writer
from tests.unit.hearing import Ears

SET = call("set_description", page_id=42, description="Who we are.")
ADD = call("add_element", page_id=42, text="Come in.")
ELEMENT = RecordReference("elements", 1)


def raise_after_the_commit(context: ToolContext) -> ToolResult:
    raise RuntimeError("the host has committed")


@pytest.mark.promise("P1", "P2", "P3", "P8")
@pytest.mark.parametrize("entry", ENTRIES)
async def test_each_write_is_announced_once_with_three_facts(host: Host, entry: Entry) -> None:
    ears = Ears()

    async with executed(host, entry, [[SET, ADD], "Done."], listeners=[ears]) as (runtime, run):
        assert run.status is RunStatus.COMPLETED
        assert ears.heard == [
            AfterAiRecordWrittenEvent(run.run_id, PAGE, WriteKind.UPDATED),
            AfterAiRecordWrittenEvent(run.run_id, ELEMENT, WriteKind.CREATED),
        ]
        assert host.executions() == 2
        facts = await runtime.writes()
        assert [AfterAiRecordWrittenEvent(f.correlation_id, f.record, f.kind) for f in facts] == ears.heard


@pytest.mark.promise("P3")
@pytest.mark.parametrize("kind", WriteKind)
@pytest.mark.parametrize("effect", WRITES)
async def test_the_kind_is_the_tools_word_and_not_its_effect(host: Host, effect: ToolEffect, kind: WriteKind) -> None:
    """Moving an element is an idempotent update, attaching a file a creation that must not be repeated."""

    def end(context: ToolContext) -> ToolResult:
        return ToolResult.text("Written.").with_write_target(PAGE, kind)

    async with host.runtime(TURNS, tools=[writer(host, effect, end)]) as runtime:
        await start_and_approve(runtime)
        assert host.heard() == [("pages:42", kind.value)]
        assert [fact.kind for fact in await runtime.writes()] == [kind]


@pytest.mark.promise("P5")
@pytest.mark.parametrize("entry", ENTRIES)
async def test_a_listener_reads_the_new_row_and_the_trace_does_not_have_it_yet(host: Host, entry: Entry) -> None:
    seen: list[tuple[str, list[str], set[StepKind]]] = []

    def on_thread(event: AfterAiRecordWrittenEvent) -> None:
        rows = host.elements()  # on a connection of its own
        with host.runtime([]).sync as reader:
            steps = reader.list_steps(event.correlation_id)
        seen.append(("thread", rows, {step.kind for step in steps}))

    async def on_loop(event: AfterAiRecordWrittenEvent) -> None:
        async with host.runtime([]) as reader:
            steps = await reader.list_steps(event.correlation_id)
        seen.append(("loop", host.elements(), {step.kind for step in steps}))

    listeners = [on_thread, on_loop]
    async with executed(host, entry, [[ADD], "Done."], listeners=listeners, listener_timeout=30) as (runtime, run):
        before = {StepKind.MODEL, StepKind.SUSPENDED}
        assert sorted(seen) == [("loop", ["Come in."], before), ("thread", ["Come in."], before)]
        after = {step.kind for step in await runtime.list_steps(run.run_id)}
        assert after >= {StepKind.TOOL, StepKind.WRITE}


@pytest.mark.promise("P1", "P8")
@pytest.mark.parametrize("effect", WRITES)
async def test_a_write_that_a_person_says_landed_is_announced_and_not_executed(host: Host, effect: ToolEffect) -> None:
    ears = Ears()
    tools = [writer(host, effect, raise_after_the_commit)]
    async with host.runtime([[WRITE], "Done."], tools=tools, listeners=[ears]) as runtime:
        run = await start_and_approve(runtime)
        executions, digest = host.executions(), unknown(run).digest
        assert ears.heard == []

        run = await runtime.reconcile(run.run_id, Reconciliation.landed(digest, PAGE, WriteKind.UPDATED), actor=BOB)

        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
        assert ears.heard == [AfterAiRecordWrittenEvent(run.run_id, PAGE, WriteKind.UPDATED)]
        assert host.executions() == executions
        assert [fact.record for fact in await runtime.writes()] == [PAGE]


@pytest.mark.promise("P1")
@pytest.mark.parametrize("effect", WRITES)
async def test_a_write_that_a_person_says_did_not_land_is_neither_announced_nor_executed(
    host: Host, effect: ToolEffect
) -> None:
    ears = Ears()
    tools = [writer(host, effect, raise_after_the_commit)]
    async with host.runtime([[WRITE], "Done."], tools=tools, listeners=[ears]) as runtime:
        run = await start_and_approve(runtime)
        executions = host.executions()

        run = await runtime.reconcile(run.run_id, Reconciliation.leave_it(unknown(run).digest), actor=BOB)

        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
        assert ears.heard == []
        assert host.executions() == executions
        assert await runtime.writes() == []
