"""A writer names its record and what happened to it; a read-only tool that names one has lied (P10)."""

from collections.abc import Callable
from typing import cast

import pytest

from byline import (
    RecordReference,
    RunStatus,
    StepKind,
    ToolContext,
    ToolEffect,
    ToolResult,
    UncertaintyReason,
    WriteKind,
    tool,
)
from byline.testing import ScriptedModel
from tests.host import Host
from tests.kernel.entries import (
    ENTRIES,
    Clock,
    Entry,
    die_in_write,
    executed,
    left_queued,
    start_and_approve,
    store_of,
    unknown,
)
from tests.kernel.writers import PAGE, TURNS, last_result, writer
from tests.unit.hearing import Ears

NO_KIND = cast("WriteKind", cast("object", None))


def without_a_kind(context: ToolContext) -> ToolResult:
    return ToolResult.text("Written.").with_write_target(PAGE, NO_KIND)


def unchanged_without_a_kind(context: ToolContext) -> ToolResult:
    return ToolResult.unchanged("As it was.", PAGE, NO_KIND)


def without_a_record(context: ToolContext) -> ToolResult:
    return ToolResult.text("Written.").with_write_target(
        cast("RecordReference", cast("object", "pages:42")), WriteKind.UPDATED
    )


def no_result(context: ToolContext) -> ToolResult:
    return cast("ToolResult", cast("object", "Written."))


@pytest.mark.promise("P10")
@pytest.mark.parametrize("end", [without_a_kind, unchanged_without_a_kind, without_a_record, no_result])
async def test_a_target_that_is_none_leaves_the_write_uncertain(
    host: Host, end: Callable[[ToolContext], ToolResult]
) -> None:
    """It has written, and says nothing that could be announced."""
    ears, tools = Ears(), [writer(host, ToolEffect.NON_IDEMPOTENT_WRITE, end)]
    async with host.runtime(TURNS, tools=tools, listeners=[ears]) as runtime:
        assert unknown(await start_and_approve(runtime)).reason is UncertaintyReason.RAISED
        assert (host.executions(), ears.heard) == (1, [])


def unchanged(context: ToolContext) -> ToolResult:
    return ToolResult.unchanged("It is so already.", PAGE, WriteKind.UPDATED)


@pytest.mark.promise("P10")
@pytest.mark.report(35)
@pytest.mark.parametrize("entry", ENTRIES)
async def test_what_is_unchanged_at_the_first_attempt_is_not_announced(host: Host, entry: Entry) -> None:
    ears = Ears()
    tools = [writer(host, ToolEffect.IDEMPOTENT_WRITE, unchanged)]
    async with executed(host, entry, TURNS, tools=tools, listeners=[ears]) as (runtime, run):
        assert run.status is RunStatus.COMPLETED
        assert (ears.heard, await runtime.writes()) == ([], [])
        steps = await runtime.list_steps(run.run_id)
        assert [step.payload["outcome"] for step in steps if step.kind is StepKind.TOOL] == ["unchanged"]


@pytest.mark.promise("P10")
@pytest.mark.report(35)
async def test_what_is_unchanged_after_a_fenced_attempt_is_announced(host: Host) -> None:
    """The attempt before it may have written; a tool that compares before it writes cannot know."""
    clock, ears, attempts = Clock(), Ears(), list[int]()

    def end(context: ToolContext) -> ToolResult:
        attempts.append(context.attempt)
        return unchanged(context)

    tools = [writer(host, ToolEffect.IDEMPOTENT_WRITE, end)]
    run_id = await left_queued(host, TURNS, clock, tools=tools)
    die_in_write(host, run_id, clock)
    async with host.runtime(TURNS, store=store_of(host, clock), tools=tools, listeners=[ears]) as runtime:
        run = await runtime.execute(run_id)
        assert run.status is RunStatus.COMPLETED
        assert attempts == [2]
        assert [(str(event.record), event.kind) for event in ears.heard] == [("pages:42", WriteKind.UPDATED)]
        assert [fact.record for fact in await runtime.writes()] == [PAGE]


@pytest.mark.promise("P10")
@pytest.mark.report(35)
async def test_a_compare_before_write_that_runs_again_in_place_is_announced(host: Host) -> None:
    """It wrote, and then raised: the second attempt finds the record as it should be."""
    ears = Ears()

    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def write(context: ToolContext, text: str) -> ToolResult:
        """Write, if it is not so already."""
        host.count(context, "write")
        with host.connect() as database:
            sql = "update page set description = ? where id = 42 and description <> ?"
            changed = database.execute(sql, (text, text)).rowcount
        if not changed:
            return unchanged(context)
        raise ConnectionError("the answer was lost")

    async with host.runtime(TURNS, tools=[write], listeners=[ears]) as runtime:
        run = await start_and_approve(runtime)
        assert run.status is RunStatus.COMPLETED
        assert (host.executions(), host.description()) == (2, "Come in.")
        assert [str(event.record) for event in ears.heard] == ["pages:42"]


@pytest.mark.promise("P10")
@pytest.mark.parametrize("entry", ENTRIES)
async def test_the_target_survives_the_bounding_of_the_text(host: Host, entry: Entry) -> None:
    def end(context: ToolContext) -> ToolResult:
        return ToolResult.text("ü" * 5_000_000).with_write_target(PAGE, WriteKind.CREATED)

    ears, model = Ears(), ScriptedModel(TURNS)
    tools = [writer(host, ToolEffect.NON_IDEMPOTENT_WRITE, end)]
    async with executed(host, entry, model, tools=tools, listeners=[ears]) as (runtime, run):
        assert run.status is RunStatus.COMPLETED
        assert [(event.record, event.kind) for event in ears.heard] == [(PAGE, WriteKind.CREATED)]
        assert [(fact.record, fact.kind) for fact in await runtime.writes()] == [(PAGE, WriteKind.CREATED)]
        told = last_result(model).text
        assert isinstance(told, str)
        assert len(told.encode()) <= 50_000
        assert told.startswith("üüü")


@pytest.mark.promise("P10")
async def test_a_write_is_a_step_of_its_own_kind(host: Host) -> None:
    """So it stays when a trace's details are deleted: it has none."""
    async with host.runtime(TURNS, tools=[writer(host, ToolEffect.IDEMPOTENT_WRITE)]) as runtime:
        run = await start_and_approve(runtime)
        told, write = [s for s in await runtime.list_steps(run.run_id) if s.kind in (StepKind.TOOL, StepKind.WRITE)]
        assert (told.kind, told.target) == (StepKind.TOOL, None)
        assert write.kind is StepKind.WRITE
        assert write.target is not None
        assert (write.target.record, write.target.kind) == (PAGE, WriteKind.UPDATED)
        assert write.call_id == told.call_id
        assert (dict(write.payload), write.detail) == ({}, None)
