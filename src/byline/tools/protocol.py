"""What a tool is to Byline, whoever makes it."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from pydantic import JsonValue

from byline.errors import ConfigurationError
from byline.records import RecordReference, WriteKind
from byline.tools.context import ToolContext
from byline.tools.effect import ToolEffect
from byline.tools.result import ToolResult, WriteTarget

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a tool declares.

    Attributes:
        name: 1 to 64 letters, digits, `_` or `-`: what every provider accepts.
        description: what the model reads about it.
        parameters: JSON schema (draft 2020-12) of the object of its arguments.
        effect: what running it does to the world.
        timeout: seconds one attempt may take, or None.
        asks_approval: the tool wants a person's approval although it need not. A write needs it anyway.

    Raises:
        ConfigurationError: no effect is declared, no provider would accept the name, or the timeout is not a
            positive finite number of seconds.
    """

    name: str
    description: str
    parameters: Mapping[str, JsonValue]
    effect: ToolEffect
    timeout: float | None = None
    asks_approval: bool = False

    def __post_init__(self) -> None:
        if type(self.name) is not str or not _NAME.fullmatch(self.name):
            raise ConfigurationError(f"a tool's name is 1 to 64 letters, digits, _ or -, not {self.name!r}")
        if not isinstance(self.effect, ToolEffect):
            raise ConfigurationError(
                f"tool {self.name!r} declares no effect: @tool(effect=ToolEffect.…) says what it does"
            )
        if self.timeout is not None and not (type(self.timeout) in (int, float) and 0 < self.timeout < math.inf):
            raise ConfigurationError(f"tool {self.name!r}: a timeout is a positive number of seconds, or None")
        if not isinstance(self.asks_approval, bool):
            raise ConfigurationError(f"tool {self.name!r}: whether it asks for approval is True or False")


@dataclass(frozen=True, slots=True)
class Landed:
    """The call landed: this is the record it wrote, and how.

    Raises:
        ToolContractBroken: the record is no RecordReference, or the kind no WriteKind.
    """

    record: RecordReference
    kind: WriteKind

    def __post_init__(self) -> None:
        object.__setattr__(self, "record", WriteTarget(self.record, self.kind).record)


@dataclass(frozen=True, slots=True)
class NotLanded:
    """The call has not landed so far. Its write may still be on its way."""


Verification: TypeAlias = Landed | NotLanded | None
"""What `check_landed` found; None: it cannot tell."""


class Tool(Protocol):
    """A tool. `@tool` makes one of a function; other makers implement this."""

    @property
    def spec(self) -> ToolSpec:
        """What the tool declares."""
        ...

    def validate(self, arguments: str) -> dict[str, JsonValue]:
        """Read a model's JSON text and return the one normalised object that is shown, digested and executed.

        Validating the JSON of what it returned returns an equal object.

        Raises:
            InvalidArguments: the text is no JSON object or does not fit the schema.
        """
        ...

    async def execute(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> ToolResult:
        """Run the call. A write is committed when this returns.

        While work of a cancelled call still goes on (on a thread, say), this does not return.

        Raises:
            ToolError: nothing was written. Any other exception leaves the outcome of a write unknown.
        """
        ...

    async def make_preview(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> Sequence[str]:
        """Say, for the approver, what the call would do. Writes nothing."""
        ...

    @property
    def verifies(self) -> bool:
        """Whether `check_landed` can ever tell."""
        ...

    async def check_landed(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> Verification:
        """Look, without writing, whether this call landed."""
        ...
