"""What can be read off a transcript, and what is done to an answer before it becomes part of one."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, cast
from uuid import UUID

from pydantic import JsonValue

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
    dump_message,
    load_message,
)

MAX_NAME = 128
"""Longest name of a called tool that is kept, in characters: no tool has a longer one."""
MAX_NATIVE_DEPTH = 128
"""How deep a native part may be nested: what is read back of a stored transcript is read by strict readers."""
MAX_NATIVE_DIGITS = 1_000
"""Longest integer of a native part, in digits."""


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


def in_call_order(messages: Iterable[Message]) -> Iterator[Message]:
    """Order the results of each answer as its calls: they are stored in the order in which they came."""
    places: dict[UUID, int] = {}
    results: list[ToolMessage] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            results.append(message)
            continue
        yield from sorted(results, key=lambda said: places.get(said.call_id, 0))
        results.clear()
        if isinstance(message, AssistantMessage):
            places = {call_id: place for place, call_id in enumerate(message.call_ids)}
        yield message
    yield from sorted(results, key=lambda said: places.get(said.call_id, 0))


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

    What is returned is made of Byline's own types only, and reads back equal from the store.

    Raises:
        ModelError: the model's adapter made an answer that cannot be stored. The message says where, never what.
    """
    if not isinstance(answer, ModelAnswer):
        raise ModelError(f"the model's adapter made a {type(answer).__name__}, not a ModelAnswer")
    if not isinstance(answer.calls, Sequence):
        raise _unfit("calls", answer.calls, "sequence of ModelCalls")
    kept = ModelAnswer(
        text=_text(answer.text, "text"),
        calls=tuple(_call(call, f"calls[{number}]") for number, call in enumerate(answer.calls)),
        usage=_usage(answer.usage),
        native=None if answer.native is None else _native(answer.native),
    )
    _check_reads_back(AssistantMessage(kept, (UUID(int=0),) * len(kept.calls)))
    return kept


def storable_history(messages: Iterable[object]) -> tuple[Message, ...]:
    """Check what was said before a run, and make its texts valid Unicode.

    Raises:
        InvalidIdentifier: something of it is no message, or cannot be stored. It says where, never what.
    """
    if not isinstance(messages, Iterable):
        raise InvalidIdentifier(f"history is a sequence of messages, not a {type(messages).__name__}")
    history: list[Message] = []
    for number, message in enumerate(messages):
        try:
            history.append(_said_before(message))
        except ModelError as error:
            raise InvalidIdentifier(f"history[{number}] cannot be stored: {error}") from None
    return tuple(history)


def _said_before(message: object) -> Message:
    match message:
        case UserMessage():
            kept: Message = UserMessage(_text(message.text, "text"))
        case AssistantMessage():
            ids = (_call_id(call_id, f"call_ids[{number}]") for number, call_id in enumerate(message.call_ids))
            kept = AssistantMessage(storable(message.answer), tuple(ids))
        case ToolMessage():
            if not isinstance(message.is_error, bool):
                raise _unfit("is_error", message.is_error, "bool")
            name, said = _text(message.tool, "tool")[:MAX_NAME], _text(message.text, "text")
            kept = ToolMessage(_call_id(message.call_id, "call_id"), name, said, message.is_error)
        case _:
            raise ModelError(f"it is a {type(message).__name__}, and no message")
    if message.role != kept.role:
        raise ModelError(f"its role is not that of a {type(kept).__name__}")
    _check_reads_back(kept)
    return kept


def _call(call: object, where: str) -> ModelCall:
    if not isinstance(call, ModelCall):
        raise _unfit(where, call, "ModelCall")
    provider_id = None if call.provider_id is None else _text(call.provider_id, f"{where}.provider_id")
    name = _text(call.name, f"{where}.name")[:MAX_NAME]
    return ModelCall(name, _text(call.arguments, f"{where}.arguments", "backslashreplace"), provider_id)


def _call_id(call_id: object, where: str) -> UUID:
    if not isinstance(call_id, UUID):
        raise _unfit(where, call_id, "UUID")
    return call_id


def _text(text: object, where: str, errors: Literal["replace", "backslashreplace"] = "replace") -> str:
    if not isinstance(text, str):
        raise _unfit(where, text, "str")
    return text.encode("utf-8", errors).decode()


def _usage(usage: object) -> Usage:
    """Take two token counts: whole numbers that a database's column, and a reader of the trace, can hold."""
    if isinstance(usage, Usage):
        counts = (usage.input_tokens, usage.output_tokens)
        if all(type(count) is int and 0 <= count < 2**63 for count in counts):
            return Usage(*counts)
    raise ModelError("the model's adapter made a usage that is not two whole numbers of 63 bits")


def _native(native: object) -> NativePart:
    """Take what JSON holds unchanged only: a native part is replayed equal as a JSON value."""
    if not isinstance(native, NativePart):
        raise _unfit("native", native, "NativePart")
    adapter, version = _exact(native.adapter, "native.adapter"), _exact(native.version, "native.version")
    if not isinstance(adapter, str) or not isinstance(version, str):
        raise ModelError("the model's adapter made a native part whose adapter and version are not two texts")
    return NativePart(adapter, version, _exact(native.value, "native.value"))


def _exact(value: object, where: str, depth: int = 0) -> JsonValue:
    """Copy a JSON value. Not by `plain_json`: a provider's NUL or long integer must not end a run."""
    if depth > MAX_NATIVE_DEPTH:
        raise ModelError(f"the model's adapter made {where} nested deeper than {MAX_NATIVE_DEPTH} levels")
    match value:
        case None | bool():
            return value
        case int() if -(10**MAX_NATIVE_DIGITS) < value < 10**MAX_NATIVE_DIGITS:
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case str() if _is_unicode(value):
            return str.__str__(value)
        case list():
            return [_exact(item, where, depth + 1) for item in cast("list[object]", value)]
        case dict():
            items = cast("dict[object, object]", value).items()
            return {_key(key, where): _exact(item, where, depth + 1) for key, item in items}
        case _:
            raise ModelError(f"the model's adapter put into {where} a {type(value).__name__} that JSON cannot hold")


def _key(key: object, where: str) -> str:
    if not isinstance(key, str) or not _is_unicode(key):
        raise ModelError(f"the model's adapter put into {where} a key that JSON cannot hold")
    return str.__str__(key)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_reads_back(message: Message) -> None:
    try:
        equal = load_message(dump_message(message)) == message
    except ValueError:
        equal = False
    if not equal:
        raise ModelError("it does not read back equal from its own JSON")


def _unfit(where: str, value: object, expected: str) -> ModelError:
    return ModelError(f"the model's adapter made {where} a {type(value).__name__}, not a {expected}")
