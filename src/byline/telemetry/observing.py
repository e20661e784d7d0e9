"""What is observed: the segments of runs, and in them questions to models, tool calls and announcements.

What a segment executes finds the run that is observed through a context variable, as OpenTelemetry finds parent spans:
so loop and listeners need no reference to it, and what no runtime with telemetry executes is not observed.
"""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from uuid import UUID

from pydantic import JsonValue

from byline.models.messages import AssistantMessage, ModelRequest
from byline.models.protocol import ChatModel
from byline.privacy import PrivacyLevel
from byline.records import RecordReference, WriteKind
from byline.telemetry.content import as_message

if TYPE_CHECKING:
    from byline.telemetry.exporting import Exporter


@dataclass(frozen=True, slots=True)
class Observed:
    """The run whose segment is observed, and who is told of it."""

    exporter: "Exporter"
    run_id: UUID
    agent: str
    level: PrivacyLevel


_observed: ContextVar[Observed | None] = ContextVar("byline_observed", default=None)


class Observation:
    """Something that happens, as a context manager around it. This one is observed by nobody."""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        """End."""

    def say(self, make: Callable[[Callable[[str], str]], Mapping[str, JsonValue]]) -> None:
        """Tell content, if it may be told; `make` is given what each text is to be sent through."""

    def answered(self, message: AssistantMessage) -> None:
        """The model answered."""

    def wrote(self, record: RecordReference, kind: WriteKind) -> None:
        """The tool wrote a record."""

    def failed(self, error_type: str) -> None:
        """It ended in an error, of this type, that was not raised."""

    def left(self, status: str, error_type: str | None = None) -> None:
        """The segment left its run in this status."""

    def lost(self) -> None:
        """The segment lost its run to another."""


UNOBSERVED: Final = Observation()


@contextmanager
def observe_segment(
    exporter: "Exporter | None", *, run_id: UUID, agent: str, level: PrivacyLevel
) -> Generator[Observation]:
    """Observe one segment of a run, and all that happens in it.

    Without an exporter it is hidden: a tool of a run that is observed may have another runtime execute it.
    """
    run = None if exporter is None else Observed(exporter, run_id, agent, level)
    outer = _observed.set(run)
    try:
        with UNOBSERVED if run is None else run.exporter.span(run, "invoke_agent", agent, {}) as observed:
            yield observed
    finally:
        _observed.reset(outer)


def observe_chat(model: ChatModel, request: ModelRequest) -> Observation:
    """Observe one question to a model."""
    if (run := _steps_observed()) is None:
        return UNOBSERVED
    # A model names itself, as `PydanticAiModel` does, or is called by its type.
    provider, name = getattr(model, "provider_name", None), getattr(model, "model_name", None)
    attributes = {"gen_ai.provider.name": provider if isinstance(provider, str) else type(model).__name__}
    if isinstance(name, str):
        attributes["gen_ai.request.model"] = name
    span = run.exporter.span(run, "chat", attributes.get("gen_ai.request.model"), attributes)
    span.say(
        lambda shown: {
            "gen_ai.system_instructions": [{"type": "text", "content": shown(request.instructions)}],
            "gen_ai.input.messages": [as_message(message, shown) for message in request.messages],
        }
    )
    return span


def observe_tool(
    tool: str, call_id: UUID, effect: str, attempt: int, arguments: Mapping[str, JsonValue]
) -> Observation:
    """Observe one attempt of a tool call, the announcement of what it wrote included."""
    if (run := _steps_observed()) is None:
        return UNOBSERVED
    attributes: dict[str, str | int] = {
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": str(call_id),
        "gen_ai.tool.type": "function",
        "byline.tool.effect": effect,
        "byline.tool.attempt": attempt,
    }
    span = run.exporter.span(run, "execute_tool", tool, attributes)
    span.say(lambda shown: {"gen_ai.tool.call.arguments": shown(json.dumps(dict(arguments), ensure_ascii=False))})
    return span


def observe_announcement(record: RecordReference, kind: WriteKind) -> Observation:
    """Observe how a write is announced that a person, or the tool itself, found to have landed."""
    if (run := _steps_observed()) is None:
        return UNOBSERVED
    span = run.exporter.span(run, "announce", None, {})
    span.wrote(record, kind)
    return span


def count_listener_failure(listener: str, outcome: str) -> None:
    """Count a listener that failed, came late or was skipped, if the run it was to hear of is observed."""
    if (run := _observed.get()) is not None:
        run.exporter.listener_failed(listener, outcome)


def _steps_observed() -> Observed | None:
    """The run that is observed here, unless nothing of its steps may be told."""
    run = _observed.get()
    return None if run is None or run.level is PrivacyLevel.NONE else run
