"""A sync tool that hangs: its run ends as promised, and no later run waits for it (P9, P10)."""

import asyncio

import pytest

from byline import RunStatus, Tool, ToolContext, ToolEffect, ToolResult, UncertaintyReason, tool
from byline.models.scripted import Turn
from byline.testing import call
from tests.host import Host
from tests.kernel.entries import start_and_approve, unknown
from tests.kernel.writers import Held, add, written

TIMEOUT = 1.0
HANG: Turn = [call("hang", text="x")]
WRITE: Turn = [call("write", text="x")]


@pytest.mark.promise("P9", "P10")
async def test_later_runs_do_not_wait_for_a_tool_that_hangs(host: Host) -> None:
    """Of five later runs, one at least must not have waited. More hang than any pool has threads."""
    held = Held()

    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, timeout=TIMEOUT)
    def hang(context: ToolContext, text: str) -> ToolResult:
        """Hang."""
        return held(context)

    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, timeout=5)
    def write(context: ToolContext, text: str) -> ToolResult:
        """Write."""
        add(host, context, text)
        return written(context)

    tools: list[Tool] = [hang, write]
    clock, durations = asyncio.get_running_loop().time, list[float]()
    try:
        async with host.runtime([HANG, "Done."], tools=tools) as hanging:
            stuck = await asyncio.gather(*(start_and_approve(hanging) for _ in range(40)))
            assert {unknown(run).reason for run in stuck} == {UncertaintyReason.TIMED_OUT}
            async with host.runtime([WRITE, "Done."], tools=tools) as runtime:
                for _ in range(5):
                    began = clock()
                    run = await start_and_approve(runtime)
                    durations.append(clock() - began)
                    assert run.status is RunStatus.COMPLETED
        assert min(durations) < TIMEOUT
    finally:
        held.let_go.set()
