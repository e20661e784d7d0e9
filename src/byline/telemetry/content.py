"""What was said, in the form that OpenTelemetry's conventions have for it."""

from collections.abc import Callable

from pydantic import JsonValue

from byline.models.messages import AssistantMessage, Message, UserMessage


def as_message(message: Message, shown: Callable[[str], str]) -> dict[str, JsonValue]:
    """One message of a conversation, each of its texts as `shown`; of an answer also why it ended."""
    if isinstance(message, UserMessage):
        return {"role": "user", "parts": [{"type": "text", "content": shown(message.text)}]}
    if isinstance(message, AssistantMessage):
        text = message.answer.text
        parts: list[JsonValue] = [{"type": "text", "content": shown(text)}] if text else []
        for call_id, call in zip(message.call_ids, message.answer.calls, strict=True):
            arguments = shown(call.arguments)
            parts.append({"type": "tool_call", "id": str(call_id), "name": call.name, "arguments": arguments})
        return {"role": "assistant", "parts": parts, "finish_reason": "tool_call" if message.call_ids else "stop"}
    answered: JsonValue = {"type": "tool_call_response", "id": str(message.call_id), "response": shown(message.text)}
    return {"role": "tool", "parts": [answered]}
