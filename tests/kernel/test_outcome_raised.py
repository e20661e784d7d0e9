"""What a writing tool raises: a ToolError says that it wrote nothing, anything else leaves that unknown (P10)."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from byline import (
    Reconciliation,
    RunStatus,
    StepKind,
    Tool,
    ToolContext,
    ToolEffect,
    ToolError,
    ToolResult,
    UncertaintyReason,
)
from byline.testing import ScriptedModel
from tests.host import ALICE, BOB, Host
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
from tests.kernel.writers import TURNS, WRITES, async_writer, last_result, writer, written
from tests.unit.hearing import Ears

IDEMPOTENT, NON_IDEMPOTENT = WRITES
ERRORS = [ValueError, TimeoutError, asyncio.CancelledError, SystemExit, StopIteration]


class Ends:
    """How a tool ends, attempt by attempt: it raises what is an exception and returns what is not."""

    def __init__(self, *ends: BaseException | ToolResult | None) -> None:
        self._ends: Iterator[BaseException | ToolResult | None] = iter(ends)
        self.attempts: list[int] = []
        self.keys: set[str] = set()

    def __call__(self, context: ToolContext) -> ToolResult:
        self.attempts.append(context.attempt)
        self.keys.add(context.idempotency_key)
        end = next(self._ends)
        if isinstance(end, BaseException):
            raise end
        return written(context) if end is None else end

    async def on_loop(self, context: ToolContext) -> ToolResult:
        await asyncio.sleep(0)
        return self(context)


def on_thread(host: Host, effect: ToolEffect, ends: Ends) -> Tool:
    return writer(host, effect, ends)


def on_loop(host: Host, effect: ToolEffect, ends: Ends) -> Tool:
    return async_writer(host, effect, ends.on_loop)


Make = Callable[[Host, ToolEffect, Ends], Tool]


@pytest.mark.promise("P9", "P10")
@pytest.mark.report(33)
@pytest.mark.parametrize("make", [on_thread, on_loop])
@pytest.mark.parametrize("error", ERRORS)
async def test_a_non_idempotent_write_that_raises_is_uncertain_and_not_repeated(
    host: Host, make: Make, error: type[BaseException]
) -> None:
    ends, ears = Ends(error()), Ears()
    async with host.runtime(TURNS, tools=[make(host, NON_IDEMPOTENT, ends)], listeners=[ears]) as runtime:
        run = await start_and_approve(runtime)

        assert unknown(run).reason is UncertaintyReason.RAISED
        assert (host.executions(), ears.heard) == (1, [])


@pytest.mark.promise("P10")
@pytest.mark.parametrize("make", [on_thread, on_loop])
async def test_an_idempotent_write_that_raises_is_repeated_in_place(host: Host, make: Make) -> None:
    ends, ears = Ends(ConnectionError(), None), Ears()
    async with host.runtime(TURNS, tools=[make(host, IDEMPOTENT, ends)], listeners=[ears]) as runtime:
        run = await start_and_approve(runtime)

        assert run.status is RunStatus.COMPLETED
        assert ends.attempts == [1, 2]
        assert len(ends.keys) == 1
        assert len(ears.heard) == 1
        (step,) = [step for step in await runtime.list_steps(run.run_id) if step.kind is StepKind.TOOL]
        assert (step.payload["attempt"], step.payload["outcome"]) == (2, "succeeded")


@pytest.mark.promise("P9", "P10")
@pytest.mark.parametrize("entry", ENTRIES)
async def test_an_idempotent_write_is_repeated_twice_at_most(host: Host, entry: Entry) -> None:
    ends, ears = Ends(ConnectionError(), ConnectionError(), None), Ears()
    tools = [writer(host, IDEMPOTENT, ends)]
    async with executed(host, entry, TURNS, tools=tools, listeners=[ears]) as (_, run):
        call = unknown(run)
        assert (call.reason, call.fence.attempt) == (UncertaintyReason.RAISED, 2)
        assert ends.attempts == [1, 2]
        assert ears.heard == []


@pytest.mark.promise("P10")
@pytest.mark.report(24)
async def test_a_taken_over_idempotent_write_counts_on(host: Host) -> None:
    """The attempt of the dead segment is one of them; the key stays the call's."""
    clock, ends = Clock(), Ends(ConnectionError(), None)
    tools = [writer(host, IDEMPOTENT, ends)]
    run_id = await left_queued(host, TURNS, clock, tools=tools)
    fence = die_in_write(host, run_id, clock)
    async with host.runtime(TURNS, store=store_of(host, clock), tools=tools) as runtime:
        run = await runtime.execute(run_id)
        assert run.status is RunStatus.COMPLETED
        assert ends.attempts == [2, 3]
        assert ends.keys == {str(fence.call_id)}


@pytest.mark.promise("P9", "P10")
@pytest.mark.parametrize("says", [ToolError("No."), ToolResult.error("No.")], ids=["ToolError", "error result"])
async def test_a_tool_error_on_a_repeat_does_not_say_that_nothing_was_written(
    host: Host, says: ToolError | ToolResult
) -> None:
    """The attempt before it may have landed (docs/adr/0002)."""
    ends, ears = Ends(ConnectionError(), says), Ears()
    async with host.runtime(TURNS, tools=[writer(host, IDEMPOTENT, ends)], listeners=[ears]) as runtime:
        run = await start_and_approve(runtime)

        assert unknown(run).reason is UncertaintyReason.RAISED
        assert (ends.attempts, ears.heard) == ([1, 2], [])


@pytest.mark.promise("P9", "P10")
async def test_nor_does_it_after_a_segment_has_died_in_the_write(host: Host) -> None:
    clock, ends = Clock(), Ends(ToolError("No."))
    tools = [writer(host, IDEMPOTENT, ends)]
    run_id = await left_queued(host, TURNS, clock, tools=tools)
    die_in_write(host, run_id, clock)
    async with host.runtime(TURNS, store=store_of(host, clock), tools=tools) as runtime:
        call = unknown(await runtime.execute(run_id))
        assert (call.reason, call.fence.attempt) == (UncertaintyReason.INTERRUPTED, 2)


@pytest.mark.promise("P10")
@pytest.mark.parametrize("effect", WRITES)
async def test_after_a_word_that_it_did_not_land_a_tool_error_ends_the_call(host: Host, effect: ToolEffect) -> None:
    """Then the earlier attempts are known (docs/adr/0002). The key is the call's, the attempt counts on."""
    earlier = [ConnectionError()] * (2 if effect is IDEMPOTENT else 1)
    ends, ears, model = Ends(*earlier, ToolError("Busy.")), Ears(), ScriptedModel(TURNS)
    async with host.runtime(model, tools=[writer(host, effect, ends)], listeners=[ears]) as runtime:
        call = unknown(await start_and_approve(runtime))
        run = await runtime.reconcile(call.run_id, Reconciliation.run_again(call.digest), actor=BOB)

        assert run.status is RunStatus.COMPLETED
        assert ends.attempts == [*range(1, len(earlier) + 2)]
        assert len(ends.keys) == 1
        assert ears.heard == []
        assert last_result(model).text == "Busy."


@pytest.mark.promise("P10")
async def test_a_read_that_raises_tells_the_model_and_names_no_content(host: Host) -> None:
    ends, model = Ends(ValueError("a secret")), ScriptedModel(TURNS)
    async with host.runtime(model, tools=[writer(host, ToolEffect.READ_ONLY, ends)]) as runtime:
        run = await runtime.run("editor", "Please look.", actor=ALICE)
        assert run.status is RunStatus.COMPLETED
        assert last_result(model).text == "The tool failed: ValueError."
        assert ends.attempts == [1]
