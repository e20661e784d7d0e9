"""A tool to try things on, and the call it is given."""

import uuid
from collections.abc import Awaitable, Mapping

from pydantic import JsonValue

from byline.actors import AiActorContext
from byline.records import RecordReference, WriteKind
from byline.tools import FunctionTool, ToolContext, ToolEffect, ToolResult, tool

SECRET = "hunter2"
PAGE = RecordReference("pages", 42)
CONTEXT = ToolContext(None, AiActorContext.user("7"), uuid.uuid4(), 1, 0, None, None)
ARGUMENTS: Mapping[str, JsonValue] = {"page_id": 42, "note": "new"}

reading = tool(effect=ToolEffect.READ_ONLY)
writing = tool(effect=ToolEffect.IDEMPOTENT_WRITE)


def make() -> FunctionTool[[int, str], Awaitable[ToolResult]]:
    @writing
    async def annotate(context: ToolContext, page_id: int, note: str) -> ToolResult:
        """Annotate one page."""
        return ToolResult.text(f"{context.actor.id} wrote {note}").with_write_target(
            RecordReference("pages", page_id), WriteKind.UPDATED
        )

    return annotate  # type: ignore[return-value]  # pyright: ignore[reportReturnType] - no type spells names
