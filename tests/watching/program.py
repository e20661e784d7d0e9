"""The application of these tests' workers: a run of many reads, one of which waits until the test says so."""

import os
import time
from pathlib import Path

from byline import Agent, AgentRuntime, ToolContext, ToolEffect, ToolResult, tool
from byline.models.scripted import Turn
from byline.testing import ScriptedModel, allow_all, call

PAGES = 12
HELD = 6
"""The page whose read waits."""
LEASE = 1.5
SCRIPT: list[Turn] = [*([call("read_page", page_id=page)] for page in range(PAGES)), "Read."]


@tool(effect=ToolEffect.READ_ONLY)
def read_page(context: ToolContext, page_id: int) -> ToolResult:
    """Read a page."""
    folder = Path(os.environ["WATCHED_FOLDER"])
    if page_id == HELD:
        (folder / f"held-{context.claim}").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
    return ToolResult.text(f"Page {page_id}.")


def made(store: str) -> AgentRuntime:
    """A runtime over a store."""
    return AgentRuntime(
        store=store,
        agents=[Agent(name="reader", model=ScriptedModel(SCRIPT), tools=[read_page])],
        authority=allow_all,
        execution="queued",
        lease=LEASE,
        beat=LEASE / 3,
    )


def runtime() -> AgentRuntime:
    """The runtime of a worker."""
    return made(os.environ["WATCHED_STORE"])
