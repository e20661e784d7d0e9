"""What the tests of the adapter share: a site of two tools, scripts of raw replies, and the three protocols."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from byline import (
    Agent,
    AgentRuntime,
    AiActorContext,
    Backoff,
    ChatModel,
    Grant,
    RecordReference,
    ToolContext,
    ToolEffect,
    ToolError,
    ToolResult,
    WriteKind,
    tool,
)
from byline.testing import allow_all
from examples.model_server.messages import signature
from examples.model_server.server import Recorded, Respond, message_response

ALICE = AiActorContext.user("7")
BOB = AiActorContext.user("8", grants={Grant.APPROVE})


@tool(effect=ToolEffect.READ_ONLY)
def read_page(context: ToolContext, page_id: int, note: str = "") -> ToolResult:
    """Read a page.

    Args:
        page_id: The page.
    """
    if page_id == 404:
        raise ToolError("There is no such page.")
    return ToolResult.text(f"This is page {page_id}.")


@tool(effect=ToolEffect.IDEMPOTENT_WRITE)
def describe_page(context: ToolContext, page_id: int, description: str) -> ToolResult:
    """Set the description of a page."""
    return ToolResult.text(f"Page {page_id} is described.").with_write_target(
        RecordReference("pages", page_id), WriteKind.UPDATED
    )


def runtime(
    store: Path | str, model: ChatModel | str, *, model_timeout: float = 600.0, max_model_failures: int = 0
) -> AgentRuntime:
    """A runtime with one agent, `editor`, whose model is asked again as often as a test says, after a moment."""
    editor = Agent(
        name="editor",
        model=model,
        tools=[read_page, describe_page],
        instructions="Plain words.",
        max_rounds=4,
        model_timeout=model_timeout,
    )
    url = store if isinstance(store, str) else f"sqlite:///{store}"
    return AgentRuntime(
        store=url,
        agents=[editor],
        authority=allow_all,
        max_model_failures=max_model_failures,
        backoff=Backoff(first=0.01, longest=0.01),
    )


# -- replies


@dataclass(frozen=True)
class Turn:
    """What a provider says in one answer. A call is its id, its tool, and its arguments as text."""

    text: str | None = None
    calls: Sequence[tuple[str, str, str]] = ()
    thinking: str | None = None


def chat_body(turn: Turn) -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": name, "arguments": a}} for i, name, a in turn.calls]
    message = {"role": "assistant", "content": turn.text, **({"tool_calls": calls} if calls else {})}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_764_500_000,
        "model": "local",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }


def messages_body(turn: Turn) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if turn.thinking is not None:
        content.append({"type": "thinking", "thinking": turn.thinking, "signature": signature(turn.thinking) + "+/=="})
        content.append(
            {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rA=="}
        )
    if turn.text is not None:
        content.append({"type": "text", "text": turn.text})
    content += [{"type": "tool_use", "id": i, "name": name, "input": json.loads(a)} for i, name, a in turn.calls]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "local",
        "content": content,
        "stop_reason": "tool_use" if turn.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 7},
    }


def responses_body(turn: Turn) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if turn.thinking is not None:
        summary = [{"type": "summary_text", "text": turn.thinking}]
        sealed = signature(turn.thinking) + "+/=="
        output.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": sealed})
    if turn.text is not None:
        content: list[dict[str, Any]] = [{"type": "output_text", "text": turn.text, "annotations": []}]
        output.append(
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
        )
    output += [
        {"type": "function_call", "id": f"fc_{n}", "call_id": i, "name": name, "arguments": a, "status": "completed"}
        for n, (i, name, a) in enumerate(turn.calls)
    ]
    usage = {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 18,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_764_500_000,
        "model": "local",
        "status": "completed",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "output": output,
        "usage": usage,
    }


BODIES: dict[str, Callable[[Turn], dict[str, Any]]] = {
    "/v1/chat/completions": chat_body,
    "/v1/messages": messages_body,
    "/v1/responses": responses_body,
}


def playing(turns: Iterable[Turn | Response]) -> Respond:
    """Answer each request with the next turn, in the protocol in which it came."""
    left = iter(turns)

    def respond(request: Recorded) -> Response:
        turn = next(left)
        if isinstance(turn, Response):
            return turn
        body = BODIES[request.path](turn)
        if request.path == "/v1/messages":
            return message_response(body, stream=bool(request.body.get("stream")))
        return JSONResponse(body)

    return respond


def always(response: Response) -> Respond:
    return lambda _request: response


class BrokenOff(Response):
    """Promises more than it sends, and the connection is closed in the middle of the body."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"id": "half an ans'})


def silent(asked: Callable[[], object] = bool, left: Callable[[], object] = bool) -> Respond:
    """Never answer; say that somebody asked, and when they have gone. Both are called on the server's thread."""

    async def respond(request: Recorded) -> Response:
        asked()
        await request.gone()
        left()
        return Response()

    return respond


# -- what went back


def assistant_messages(request: Recorded) -> list[Any]:
    """What the request says that the assistant said, as the provider reads it: one entry an answer."""
    if request.path == "/v1/responses":
        answers: list[Any] = []
        spoken: list[dict[str, Any]] = []
        for item in request.body["input"]:
            if item.get("role") == "user" or item.get("type") == "function_call_output":
                if spoken:
                    answers.append(spoken)
                spoken = []
            else:
                spoken.append(item)
        return [*answers, spoken] if spoken else answers
    return [message for message in request.body["messages"] if message["role"] == "assistant"]


def as_sent(path: str, turn: Turn) -> object:
    """An answer as it is to come back: without the envelope that a provider does not take back."""
    body = BODIES[path](turn)
    match path:
        case "/v1/chat/completions":
            return body["choices"][0]["message"]
        case "/v1/messages":
            return {"role": "assistant", "content": body["content"]}
        case _:  # whether a call is "completed" is not a thing to tell a provider
            return [
                {k: v for k, v in item.items() if (item["type"], k) != ("function_call", "status")}
                for item in body["output"]
            ]


def tool_results(request: Recorded) -> list[tuple[str, str]]:
    """The results that the request holds: the call's id, and the text."""
    match request.path:
        case "/v1/chat/completions":
            said = [m for m in request.body["messages"] if m["role"] == "tool"]
            return [(m["tool_call_id"], m["content"]) for m in said]
        case "/v1/messages":
            blocks = [b for m in request.body["messages"] if m["role"] == "user" for b in m["content"]]
            results = [b for b in blocks if b["type"] == "tool_result"]
            return [(b["tool_use_id"], "".join(t["text"] for t in b["content"])) for b in results]
        case _:
            items = [i for i in request.body["input"] if i.get("type") == "function_call_output"]
            return [(i["call_id"], i["output"]) for i in items]


async def until(gone: Awaitable[object], seconds: float = 10.0) -> None:
    """Wait for something that must happen."""
    await asyncio.wait_for(gone, seconds)
