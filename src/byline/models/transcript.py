"""What can be read off a transcript, and what is done to an answer before it becomes part of one."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal
from uuid import UUID

from byline.errors import InvalidIdentifier, ModelError
from byline.models.messages import (
    AssistantMessage,
    Message,
    ModelAnswer,
    ModelCall,
    NativePart,
    ToolMessage,
    Usage,
    UserMessage,
)

MAX_NAME = 128
"""Longest name of a called tool that is kept, in characters: no tool has a longer one."""


def open_calls(messages: Sequence[Message]) -> AssistantMessage | None:
    """Return the last answer if a call of it has no result yet."""
    answered: set[UUID] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.call_id)
        else:
            is_open = isinstance(message, AssistantMessage) and not answered.issuperset(message.call_ids)
            return message if is_open and isinstance(message, AssistantMessage) else None
    return None


def unanswered(messages: Sequence[Message]) -> dict[UUID, str]:
    """Return the calls of the last answer that have no result yet, with the names of their tools."""
    message = open_calls(messages)
    if message is None:
        return {}
    answered = {said.call_id for said in messages if isinstance(said, ToolMessage)}
    names = zip(message.call_ids, (call.name for call in message.answer.calls), strict=True)
    return {call_id: name for call_id, name in names if call_id not in answered}


def rounds_since_prompt(messages: Sequence[Message]) -> int:
    """How often the model has answered since the person last spoke."""
    rounds = 0
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            break
        rounds += isinstance(message, AssistantMessage)
    return rounds


def storable(answer: ModelAnswer) -> ModelAnswer:
    """Make an answer's texts valid Unicode. A lone surrogate in arguments becomes its escape, and is refused.

    Raises:
        ModelError: the model's adapter made an answer that cannot be stored. The message says where, never what.
    """
    calls: list[ModelCall] = []
    for number, call in enumerate(answer.calls):
        where = f"calls[{number}]"
        if not isinstance(call, ModelCall):
            raise ModelError(f"the model's adapter made {where} of a {type(call).__name__}, not a ModelCall")
        provider_id = None if call.provider_id is None else _text(call.provider_id, f"{where}.provider_id")
        name = _text(call.name, f"{where}.name")[:MAX_NAME]
        arguments = _text(call.arguments, f"{where}.arguments", "backslashreplace")
        calls.append(ModelCall(name, arguments, provider_id))
    if not isinstance(answer.usage, Usage) or any(type(count) is not int for count in _counts(answer.usage)):
        raise ModelError("the model's adapter made a usage that is not two whole numbers")
    if answer.native is not None:
        _check_native(answer.native)
    return replace(answer, text=_text(answer.text, "text"), calls=tuple(calls))


def storable_history(messages: Iterable[object]) -> tuple[Message, ...]:
    """Check what was said before a run, and make its texts valid Unicode.

    Raises:
        InvalidIdentifier: something of it is no message, or cannot be stored.
    """
    history: list[Message] = []
    for number, message in enumerate(messages):
        try:
            match message:
                case UserMessage():
                    history.append(UserMessage(_text(message.text, "text")))
                case AssistantMessage():
                    history.append(replace(message, answer=storable(message.answer)))
                case ToolMessage():
                    said = _text(message.text, "text")
                    history.append(replace(message, tool=_text(message.tool, "tool")[:MAX_NAME], text=said))
                case _:
                    raise InvalidIdentifier(f"history[{number}] is a {type(message).__name__}, and no message")
        except ModelError as error:
            raise InvalidIdentifier(f"history[{number}] cannot be stored: {error}") from None
    return tuple(history)


def _text(text: object, where: str, errors: Literal["replace", "backslashreplace"] = "replace") -> str:
    if not isinstance(text, str):
        raise ModelError(f"the model's adapter made {where} a {type(text).__name__}, not a str")
    return text.encode("utf-8", errors).decode()


def _counts(usage: Usage) -> tuple[object, object]:
    return usage.input_tokens, usage.output_tokens


def _check_native(native: NativePart) -> None:
    """Find what JSON would change or refuse before it is stored: a native part is replayed equal as a JSON value."""
    try:
        json.dumps([native.adapter, native.version, native.value], allow_nan=False, ensure_ascii=False).encode()
    except (AttributeError, TypeError, ValueError, RecursionError):
        raise ModelError("the model's adapter made a native part that JSON cannot hold") from None
