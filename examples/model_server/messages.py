"""Anthropic's messages: `POST /v1/messages`, whole or as a stream of events."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from byline import ModelAnswer, ModelCall
from examples.model_server.exchange import Transcript, text_of


def read(body: dict[str, Any]) -> tuple[Transcript, list[str]]:
    """Read a request: what was said, and which tools are on offer."""
    transcript = Transcript()
    for message in body["messages"]:
        content: Any = message["content"]
        blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "assistant":
            calls = [
                ModelCall(block["name"], json.dumps(block["input"]), block["id"])
                for block in blocks
                if block["type"] == "tool_use"
            ]
            transcript.model("".join(block["text"] for block in blocks if block["type"] == "text"), calls)
            continue
        for block in blocks:
            if block["type"] == "tool_result":
                is_error = bool(block.get("is_error"))
                transcript.result(block["tool_use_id"], text_of(block.get("content")), is_error=is_error)
            elif block["type"] == "text":
                transcript.person(block["text"])
    # Tools that may not be called are declared only because the transcript names them.
    closing = body.get("tool_choice") == {"type": "none"}
    return transcript, [] if closing else [tool["name"] for tool in body.get("tools") or ()]


def write(answer: ModelAnswer, transcript: Transcript, model: str) -> dict[str, Any]:
    """Write an answer, with a thought and its seal before its calls."""
    content: list[dict[str, Any]] = []
    if answer.calls:
        thinking = f"Next comes {' and '.join(call.name for call in answer.calls)}."
        content.append({"type": "thinking", "thinking": thinking, "signature": signature(thinking)})
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    content += [
        {"type": "tool_use", "id": transcript.id_of(number), "name": call.name, "input": json.loads(call.arguments)}
        for number, call in enumerate(answer.calls)
    ]
    return {
        "id": "msg_local",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if answer.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 20},
    }


def signature(thinking: str) -> str:
    """What stands for the seal that a provider puts under what its model thought."""
    return hashlib.sha256(thinking.encode()).hexdigest()


def events(message: dict[str, Any]) -> Iterator[str]:
    """Write a message as the events that a stream brings."""
    opening: dict[str, Any] = {
        **message,
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 100, "output_tokens": 1},
    }
    yield _event("message_start", message=opening)
    for index, block in enumerate(message["content"]):
        start: dict[str, Any]
        deltas: list[dict[str, Any]]
        match block["type"]:
            case "thinking":
                start = {"type": "thinking", "thinking": "", "signature": ""}
                deltas = [
                    {"type": "thinking_delta", "thinking": block["thinking"]},
                    {"type": "signature_delta", "signature": block["signature"]},
                ]
            case "tool_use":
                start = {**block, "input": {}}
                deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
            case "text":
                start = {"type": "text", "text": ""}
                deltas = [{"type": "text_delta", "text": block["text"]}]
            case _:
                start, deltas = block, []
        yield _event("content_block_start", index=index, content_block=start)
        yield from (_event("content_block_delta", index=index, delta=delta) for delta in deltas)
        yield _event("content_block_stop", index=index)
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    yield _event("message_delta", delta=ending, usage={"output_tokens": message["usage"]["output_tokens"]})
    yield _event("message_stop")


def _event(kind: str, **data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"
