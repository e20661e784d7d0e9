"""What an agent is: a name, a model, its tools, and the gate's facts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from byline.errors import ConfigurationError
from byline.models.adapter import chat_model
from byline.models.protocol import ChatModel
from byline.privacy import PrivacyLevel
from byline.tools.protocol import Tool

T = TypeVar("T")

MAX_NAME = 64
"""Longest name of an agent, in characters."""
MAX_SECONDS = 100 * 365 * 86_400
"""Longest duration: what comes after it is still a date, and a time that threads can wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An agent: who answers, with which tools, under which rules. Found by its name in every process.

    Attributes:
        name: 1 to 64 characters that print.
        model: who answers: a `ChatModel`, or a name such as `anthropic:claude-sonnet-4-5`.
        tools: what it may call.
        instructions: what the model is told first.
        max_rounds: how many answers may call tools; then the model closes without tools.
        second_approver: the initiator of a run may not release its writes; somebody else must.
        approval_ttl: seconds until a waiting turn expires, or None.
        model_timeout: seconds that one answer of the model may take; then it has failed, and is asked again later.
        privacy: how much of its runs the trace keeps; the runtime's own level holds where that is stricter.

    Raises:
        ConfigurationError: one of these cannot work.
    """

    name: str
    model: ChatModel | str
    tools: Sequence[Tool] = ()
    instructions: str = ""
    max_rounds: int = 20
    second_approver: bool = False
    approval_ttl: float | None = None
    model_timeout: float = 600.0
    privacy: PrivacyLevel = PrivacyLevel.FULL

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isprintable() or not 0 < len(self.name.strip()) <= MAX_NAME:
            raise ConfigurationError(f"an agent's name is 1 to {MAX_NAME} characters that print")
        try:
            chat_model(self.model)
        except ConfigurationError as error:
            raise ConfigurationError(f"agent {self.name}: {error}") from None
        if type(self.max_rounds) is not int or self.max_rounds < 1:
            raise ConfigurationError(f"agent {self.name}: max_rounds is a whole number of at least 1")
        if type(self.second_approver) is not bool:
            raise ConfigurationError(f"agent {self.name}: second_approver is True or False")
        if not isinstance(self.instructions, str):
            raise ConfigurationError(f"agent {self.name}: instructions are a text")
        if self.approval_ttl is not None:
            seconds(f"agent {self.name}: approval_ttl", self.approval_ttl)
        seconds(f"agent {self.name}: model_timeout", self.model_timeout)
        object.__setattr__(self, "privacy", privacy_level(f"agent {self.name}: privacy", self.privacy))
        object.__setattr__(self, "tools", listed(f"agent {self.name}: tools", self.tools))


def listed(name: str, values: Iterable[T]) -> tuple[T, ...]:
    """Read several of something.

    Raises:
        ConfigurationError: it is one of them, or a text.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ConfigurationError(f"{name} is a list, not a {type(values).__name__}")
    return tuple(values)


def privacy_level(name: str, value: object) -> PrivacyLevel:
    """Read a privacy level, also from its name.

    Raises:
        ConfigurationError: it is none. What is no level keeps nothing by guess.
    """
    try:
        return PrivacyLevel(str(value))
    except ValueError:
        raise ConfigurationError(f"{name} is one of {', '.join(PrivacyLevel)}") from None


def seconds(name: str, value: object) -> float:
    """Check a duration.

    Raises:
        ConfigurationError: it is no positive number, or longer than a hundred years.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_SECONDS:
        raise ConfigurationError(f"{name} is a positive number of seconds, at most a hundred years")
    return float(value)
