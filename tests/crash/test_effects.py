"""What is declared of a tool when it is taken up again, and what stands directly before its effect."""

import asyncio
from collections.abc import Callable

import pytest

from byline import (
    AiActorContext,
    Conversation,
    LoopRun,
    Reconciliation,
    RunStatus,
    Tool,
    Toolbox,
    ToolContext,
    ToolEffect,
    ToolLoop,
    ToolResult,
    UncertaintyReason,
    UserMessage,
    tool,
)
from byline.testing import ScriptedModel, call
from tests.crash.site import ADD, SET, Flavour, Site
from tests.crash.story import announced, killed_at
from tests.crash.tools import add_element, set_description
from tests.crash.workers import Workers
from tests.host import BOB

NON_IDEMPOTENT, IDEMPOTENT = ToolEffect.NON_IDEMPOTENT_WRITE, ToolEffect.IDEMPOTENT_WRITE


@pytest.mark.promise("P9", "P20")
@pytest.mark.report(37)
@pytest.mark.parametrize(
    "flavour, loaded, reason",
    [
        (ADD, [(add_element, IDEMPOTENT)], UncertaintyReason.INTERRUPTED),
        (ADD, [(add_element, ToolEffect.READ_ONLY)], UncertaintyReason.INTERRUPTED),
        (SET, [(set_description, NON_IDEMPOTENT)], UncertaintyReason.INTERRUPTED),
        (SET, [], UncertaintyReason.NOT_REPEATABLE),
    ],
    ids=["less strict now", "a read now", "stricter now", "gone now"],
)
async def test_the_stricter_of_the_fence_and_the_loaded_tool_holds(
    site: Site,
    workers: Workers,
    flavour: Flavour,
    loaded: list[tuple[Callable[[Site, ToolEffect], Tool], ToolEffect]],
    reason: UncertaintyReason,
) -> None:
    run_id = await killed_at("host committed", site, workers, flavour)
    tools = [make(site, effect) for make, effect in loaded]
    async with site.opened([flavour.call], hours=2, tools=tools) as runtime:
        await runtime.recover()
        run = await runtime.get_run(run_id)
        assert (run.status, run.reason) == (RunStatus.UNCERTAIN, reason)
        assert run.uncertain is not None
        assert len(site.ran(flavour.tool)) == 1
        run = await runtime.reconcile(run_id, Reconciliation.leave_it(run.uncertain.digest), actor=BOB)
    assert run.status is RunStatus.COMPLETED
    assert len(site.ran(flavour.tool)) == 1
    assert (site.heard(), await announced(site)) == ([], [])


@pytest.mark.promise("P20")
async def test_a_write_that_is_declared_stricter_now_and_never_started_waits_again(
    site: Site, workers: Workers
) -> None:
    run_id = await killed_at("before fence", site, workers, SET)
    async with site.opened([SET.call], hours=2, tools=[set_description(site, NON_IDEMPOTENT)]) as runtime:
        await runtime.recover()
        run = await runtime.get_run(run_id)
    assert run.status is RunStatus.AWAITING_APPROVAL
    assert run.pending is not None
    assert [waiting.effect for waiting in run.pending.calls] == [NON_IDEMPOTENT]
    assert site.ran(SET.tool) == []


@pytest.mark.promise("P18")
async def test_nothing_comes_between_the_guard_and_the_effect() -> None:
    """The guard looks at the clock: whatever the event loop did in between could take longer than the lease."""
    between: list[str] = []
    seen: list[list[str]] = []

    def guard() -> None:
        asyncio.get_running_loop().call_soon(between.append, "the event loop went round")

    @tool(effect=ToolEffect.READ_ONLY)
    async def look(context: ToolContext) -> ToolResult:
        """Look."""
        seen.append(list(between))
        return ToolResult.text("Seen.")

    steps = ToolLoop(ScriptedModel([[call("look")], "Done."]), Toolbox([look])).drive(
        Conversation(messages=(UserMessage("Look."),)), LoopRun(actor=AiActorContext.user("7"), guard=guard)
    )
    async for _ in steps:
        pass
    assert seen == [[]]
    assert between == ["the event loop went round"]
