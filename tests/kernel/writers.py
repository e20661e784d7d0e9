"""Writing tools of every behaviour: `write` adds an element of the host, and then ends as a test wants it to."""

import threading
from collections.abc import Awaitable, Callable

from byline import RecordReference, Tool, ToolContext, ToolEffect, ToolMessage, ToolResult, WriteKind, tool
from byline.models.scripted import Turn
from byline.testing import ScriptedModel, call
from tests.host import Host

WRITES = (ToolEffect.IDEMPOTENT_WRITE, ToolEffect.NON_IDEMPOTENT_WRITE)
WRITE = call("write", text="Come in.")
TURNS: list[Turn] = [[WRITE], "Done."]
PAGE = RecordReference("pages", 42)


def written(context: ToolContext) -> ToolResult:
    """Succeed, and name the page."""
    return ToolResult.text("Written.").with_write_target(PAGE, WriteKind.UPDATED)


def unnamed(context: ToolContext) -> ToolResult:
    """Succeed, and name nothing."""
    return ToolResult.text("Written.")


def add(host: Host, context: ToolContext, text: str) -> None:
    """Count the execution, and write: committed when this returns."""
    host.count(context, "write")
    with host.connect() as database:
        database.execute("insert into element (page_id, text) values (42, ?)", (text,))


def writer(
    host: Host,
    effect: ToolEffect,
    end: Callable[[ToolContext], ToolResult] = written,
    *,
    timeout: float | None = 60.0,
    not_written: tuple[type[Exception], ...] = (),
) -> Tool:
    """A sync tool, which writes and then ends so."""

    @tool(effect=effect, timeout=timeout, not_written=not_written)
    def write(context: ToolContext, text: str) -> ToolResult:
        """Write."""
        add(host, context, text)
        return end(context)

    return write


def async_writer(
    host: Host,
    effect: ToolEffect,
    end: Callable[[ToolContext], Awaitable[ToolResult]],
    *,
    timeout: float | None = 60.0,
    not_written: tuple[type[Exception], ...] = (),
) -> Tool:
    """The same, on the event loop."""

    @tool(effect=effect, timeout=timeout, not_written=not_written)
    async def write(context: ToolContext, text: str) -> ToolResult:
        """Write."""
        add(host, context, text)
        return await end(context)

    return write


class Held:
    """How a sync tool ends that hangs until it is let go."""

    def __init__(self, end: Callable[[ToolContext], ToolResult] = written) -> None:
        self.end = end
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def __call__(self, context: ToolContext) -> ToolResult:
        self.begun.set()
        assert self.let_go.wait(40), "nobody let the tool go"
        return self.end(context)


def last_result(model: ScriptedModel) -> ToolMessage:
    """What the model was told of the call that ended last, when it was asked last."""
    said = model.requests[-1].messages[-1]
    assert isinstance(said, ToolMessage)
    return said
