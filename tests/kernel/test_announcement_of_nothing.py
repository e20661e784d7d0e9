"""The event means that a write succeeded: what failed, was rolled back or changed nothing is not announced."""

from collections.abc import Callable

import pytest

from byline import (
    Decision,
    RunStatus,
    StepKind,
    ToolContext,
    ToolEffect,
    ToolError,
    ToolResult,
    WriteKind,
    tool,
)
from byline.models.scripted import Turn
from byline.testing import ScriptedModel, call
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import ENTRIES, Entry, executed, start_and_approve, waiting
from tests.kernel.writers import PAGE, WRITE, WRITES, writer
from tests.unit.hearing import Ears


class IntegrityError(Exception):
    """As a database driver raises it."""


def raise_tool_error(context: ToolContext) -> ToolResult:
    raise ToolError("This page cannot be changed.")


def raise_not_written(context: ToolContext) -> ToolResult:
    raise IntegrityError("unique")


def return_error(context: ToolContext) -> ToolResult:
    return ToolResult.error("This page cannot be changed.")


def find_it_unchanged(context: ToolContext) -> ToolResult:
    return ToolResult.unchanged("It is so already.", PAGE, WriteKind.UPDATED)


NOTHING = [
    pytest.param(raise_tool_error, "This page cannot be changed.", True, id="ToolError"),
    pytest.param(raise_not_written, "IntegrityError: nothing was written", True, id="not_written"),
    pytest.param(return_error, "This page cannot be changed.", True, id="error result"),
    pytest.param(find_it_unchanged, "It is so already.", False, id="unchanged"),
]


@pytest.mark.promise("P10")
@pytest.mark.report(33, 34, 35)
@pytest.mark.parametrize("end, told, is_error", NOTHING)
@pytest.mark.parametrize("effect", WRITES)
async def test_a_call_that_wrote_nothing_is_not_announced_and_the_model_is_told(
    host: Host, effect: ToolEffect, end: Callable[[ToolContext], ToolResult], told: str, is_error: bool
) -> None:
    ears, model = Ears(), ScriptedModel([[WRITE], "Done."])
    tools = [writer(host, effect, end, not_written=(IntegrityError,))]
    async with host.runtime(model, tools=tools, listeners=[ears]) as runtime:
        run = await start_and_approve(runtime)

        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
        assert ears.heard == []
        assert await runtime.writes() == []
        assert host.executions() == 1
        assert StepKind.WRITE not in {step.kind for step in await runtime.list_steps(run.run_id)}
        answer = model.requests[-1].messages[-1]
        assert answer.role == "tool"
        assert (answer.text, answer.is_error) == (told, is_error)


@pytest.mark.promise("P10")
@pytest.mark.report(33)
@pytest.mark.parametrize("entry", ENTRIES)
async def test_a_write_that_was_rolled_back_is_not_announced(host: Host, entry: Entry) -> None:
    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def write(context: ToolContext, text: str) -> ToolResult:
        """Write, and roll back."""
        host.count(context, "write")
        with host.connect() as database:
            database.execute("insert into element (page_id, text) values (42, ?)", (text,))
            raise ToolError("An editor has the page open.")

    ears = Ears()
    async with executed(host, entry, [[WRITE], "Done."], tools=[write], listeners=[ears]) as (_, run):
        assert run.status is RunStatus.COMPLETED
        assert (host.executions(), host.elements()) == (1, [])
        assert ears.heard == []


@pytest.mark.promise("P10")
async def test_after_a_tool_error_the_model_may_try_again(host: Host) -> None:
    """A second call, with a decision and an idempotency key of its own."""
    keys: list[str] = []

    def end(context: ToolContext) -> ToolResult:
        keys.append(context.idempotency_key)
        if len(keys) == 1:
            raise ToolError("Busy.")
        return ToolResult.text("Written.").with_write_target(PAGE, WriteKind.UPDATED)

    ears = Ears()
    tools = [writer(host, ToolEffect.NON_IDEMPOTENT_WRITE, end)]
    async with host.runtime([[WRITE], [WRITE], "Done."], tools=tools, listeners=[ears]) as runtime:
        run = await start_and_approve(runtime)
        assert run.status is RunStatus.AWAITING_APPROVAL
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)

        assert run.status is RunStatus.COMPLETED
        assert len(ears.heard) == 1
        assert len(set(keys)) == 2


@pytest.mark.report(34)
async def test_what_was_refused_or_not_valid_is_not_announced(host: Host) -> None:
    ears = Ears()
    invalid = call("set_description", page_id="the first one", description="")
    turns: list[Turn] = [
        [invalid],
        [call("delete_page", page_id=42)],
        [call("add_element", page_id=42, text="x")],
        "Done.",
    ]
    async with host.runtime(turns, listeners=[ears]) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.deny(waiting(run), "No."), actor=BOB)

        assert run.status is RunStatus.COMPLETED
        assert ears.heard == []
        assert host.executions() == 0
