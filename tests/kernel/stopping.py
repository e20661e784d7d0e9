"""Places where a tool, a model or a preview stops until it is let go, and who cancels a run meanwhile."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from byline import AgentRuntime, ModelRequest, Run, StepKind, ToolContext, ToolResult
from byline.models.scripted import Reply, Turn
from byline.testing import ScriptedModel, call
from tests.host import ALICE, Host
from tests.kernel.entries import store_of
from tests.kernel.writers import written

SET = call("set_description", page_id=42, description="Who we are.")
ADD = call("add_element", page_id=42, text="Come in.")
READ = call("read_page", page_id=42)

Whence = Literal["here", "elsewhere"]
WHENCE: tuple[Whence, ...] = ("here", "elsewhere")
"""Who asks for a cancel: the runtime that executes the run, or another one on the same file, as of another process."""


@dataclass(slots=True)
class Hold:
    """Where somebody stops until they are let go."""

    reached: threading.Event = field(default_factory=threading.Event)
    freed: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Stop here, on a thread."""
        self.reached.set()
        assert self.freed.wait(20), "nobody let go"

    async def on_loop(self) -> None:
        """Stop here, on the event loop; a cancellation ends it."""
        self.reached.set()
        async with asyncio.timeout(20):
            while not self.freed.is_set():  # noqa: ASYNC110 - whoever lets go may be on another thread
                await asyncio.sleep(0.002)

    async def is_reached(self) -> None:
        """Wait until somebody stops here."""
        assert await asyncio.to_thread(self.reached.wait, 20), "nobody came here"

    def let_go(self) -> None:
        self.freed.set()

    def end(self, context: ToolContext) -> ToolResult:
        """The end of a sync tool: stop, and then say what was written."""
        self.wait()
        return written(context)

    async def end_on_loop(self, context: ToolContext) -> ToolResult:
        """The end of an async tool."""
        await self.on_loop()
        return written(context)

    def then(self, reply: Reply) -> Turn:
        """A turn of the model that stops before it answers."""

        async def turn(_request: ModelRequest) -> Reply:
            await self.on_loop()
            return reply

        return turn


@asynccontextmanager
async def whoever(host: Host, runtime: AgentRuntime, whence: Whence) -> AsyncGenerator[AgentRuntime, None]:
    """The runtime that a cancel is asked of."""
    if whence == "here":
        yield runtime
    else:
        async with host.runtime(ScriptedModel([]), store=store_of(host)) as other:
            yield other


async def cancel(host: Host, runtime: AgentRuntime, whence: Whence, run_id: UUID) -> Run:
    """Have the run's initiator cancel it."""
    async with whoever(host, runtime, whence) as other, asyncio.timeout(5):  # it waits for no write
        return await other.cancel(run_id, actor=ALICE)


async def outcomes(runtime: AgentRuntime, run_id: UUID) -> list[tuple[str, str]]:
    """The tools of the run's calls, and how each ended, in the order of the trace."""
    steps = await runtime.list_steps(run_id)
    return [(str(step.payload["tool"]), str(step.payload["outcome"])) for step in steps if step.kind is StepKind.TOOL]


async def kinds(runtime: AgentRuntime, run_id: UUID) -> list[StepKind]:
    """What the trace of a run records, in order."""
    return [step.kind for step in await runtime.list_steps(run_id)]
