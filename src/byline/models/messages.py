"""What is said between Byline and a model: the transcript, what a model is asked, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias
from uuid import UUID

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter

from byline.errors import ModelError


@dataclass(frozen=True, slots=True)
class Usage:
    """What one answer cost, in tokens."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One tool call as the model wrote it.

    `arguments` is the model's own JSON text, unread. `provider_id` is the provider's id, which may
    repeat or lack; Byline mints its own id when the answer is stored.
    """

    name: str
    arguments: str = "{}"
    provider_id: str | None = None


@dataclass(frozen=True, slots=True)
class NativePart:
    """The provider's own answer, kept whole so that a resume replays it: opaque, versioned, JSON-able."""

    adapter: str
    version: str
    value: JsonValue


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """One answer of a model: text, tool calls, or both."""

    text: str = ""
    calls: tuple[ModelCall, ...] = ()
    usage: Usage = Usage()
    native: NativePart | None = None


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What a person said."""

    text: str
    role: Literal["user"] = "user"


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A model's answer with the ids that Byline minted for its calls, in their order."""

    answer: ModelAnswer
    call_ids: tuple[UUID, ...] = ()
    role: Literal["assistant"] = "assistant"

    def __post_init__(self) -> None:
        if len(self.call_ids) != len(self.answer.calls):
            raise ValueError("an assistant message has one id for each of its calls")


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The one result of one call, as the model reads it."""

    call_id: UUID
    tool: str
    text: str
    is_error: bool = False
    role: Literal["tool"] = "tool"


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage

_MESSAGE: TypeAdapter[Message] = TypeAdapter(
    Annotated[Message, Field(discriminator="role")], config=ConfigDict(hide_input_in_errors=True)
)


def dump_message(message: Message) -> bytes:
    """Write a message as JSON.

    Raises:
        ModelError: a part of it is not of its type, or JSON cannot hold it. The error does not say what it is.
    """
    try:
        return _MESSAGE.dump_json(message, warnings="error")
    except (ValueError, TypeError, AttributeError, RecursionError):  # whose messages hold what was said
        fault = f"a {type(message).__name__} holds what a transcript cannot"
    # Out here, so that the error has no other as its context.
    raise ModelError(fault)


def load_message(data: bytes) -> Message:
    """Read a message that `dump_message` wrote.

    Raises:
        ValueError: the data is no message. What the error says may hold a word of it.
    """
    return _MESSAGE.validate_json(data)


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as the model sees it. `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a model is asked. With no tools it is to close with words."""

    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[OfferedTool, ...]


class EmptyAnswer(ModelError):
    """The model answered with neither text nor calls."""
