"""OpenAI's responses: `POST /v1/responses`."""

from typing import Any

from byline import ModelAnswer, ModelCall
from examples.model_server.exchange import Transcript, text_of


def read(body: dict[str, Any]) -> tuple[Transcript, list[str]]:
    """Read a request: what was said, and which tools are on offer."""
    transcript = Transcript()
    asked: Any = body["input"]
    items: list[dict[str, Any]] = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    calls: list[ModelCall] = []
    for place, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call":
            calls.append(ModelCall(item["name"], item["arguments"], item["call_id"]))
            if [following.get("type") for following in items[place + 1 : place + 2]] != ["function_call"]:
                transcript.model("", calls)
                calls = []
        elif kind == "function_call_output":
            transcript.plain_result(item["call_id"], text_of(item["output"]))
        elif kind == "message" and item["role"] == "user":
            transcript.person(text_of(item["content"]))
        elif kind == "message" and item["role"] == "assistant":
            transcript.model(text_of(item["content"]), [])
    return transcript, [tool["name"] for tool in body.get("tools") or ()]


def write(answer: ModelAnswer, transcript: Transcript, model: str) -> dict[str, Any]:
    """Write an answer: words or calls."""
    output: list[dict[str, Any]] = []
    for number, call in enumerate(answer.calls):
        call_id = transcript.id_of(number)
        item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": call.name}
        output.append({**item, "arguments": call.arguments, "status": "completed"})
    if not answer.calls:
        content: list[dict[str, Any]] = [{"type": "output_text", "text": answer.text, "annotations": []}]
        message = {"type": "message", "id": "msg_local", "role": "assistant", "status": "completed"}
        output.append({**message, "content": content})
    return {
        "id": "resp_local",
        "object": "response",
        "created_at": 1_764_500_000,
        "model": model,
        "status": "completed",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "output": output,
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 120,
        },
    }
