"""OpenAI's chat completions: `POST /v1/chat/completions`."""

from typing import Any

from byline import ModelAnswer, ModelCall
from examples.model_server.exchange import Transcript, text_of


def read(body: dict[str, Any]) -> tuple[Transcript, list[str]]:
    """Read a request: what was said, and which tools are on offer."""
    transcript = Transcript()
    for message in body["messages"]:
        match message["role"]:
            case "user":
                transcript.person(text_of(message["content"]))
            case "assistant":
                calls = [
                    ModelCall(call["function"]["name"], call["function"]["arguments"], call["id"])
                    for call in message.get("tool_calls") or ()
                ]
                transcript.model(text_of(message.get("content")), calls)
            case "tool":
                transcript.plain_result(message["tool_call_id"], text_of(message["content"]))
            case _:
                pass
    return transcript, [tool["function"]["name"] for tool in body.get("tools") or ()]


def write(answer: ModelAnswer, transcript: Transcript, model: str) -> dict[str, Any]:
    """Write an answer."""
    calls = [
        {
            "id": transcript.id_of(number),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for number, call in enumerate(answer.calls)
    ]
    message = {"role": "assistant", "content": answer.text or None, **({"tool_calls": calls} if calls else {})}
    return {
        "id": "chatcmpl-local",
        "object": "chat.completion",
        "created": 1_764_500_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }
