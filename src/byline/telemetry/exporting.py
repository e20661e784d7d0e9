"""Where OpenTelemetry is spoken to: the spans, the histograms and counters, and what contains their failures."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib.metadata import version
from types import TracebackType
from typing import Final, Self, TypeAlias

from opentelemetry import metrics, trace
from pydantic import JsonValue

from byline.models.messages import AssistantMessage
from byline.privacy import PrivacyLevel, redact
from byline.records import RecordReference, WriteKind
from byline.telemetry.census import Census
from byline.telemetry.content import as_message
from byline.telemetry.failing import Contained
from byline.telemetry.observing import Observation, Observed

Value: TypeAlias = str | int

_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS: Final = tuple(4**n for n in range(14))
_DURATIONS: Final = {
    "chat": "gen_ai.client.operation.duration",
    "invoke_agent": "gen_ai.invoke_agent.duration",
    "execute_tool": "gen_ai.execute_tool.duration",
}
_OF_METRICS: Final = frozenset(
    {
        "gen_ai.operation.name",
        "gen_ai.agent.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.tool.name",
        "byline.run.status",
        "error.type",
    }
)
"""The attributes of a span that its metrics have as well: those of few values."""


class Exporter:
    """One tracer and one meter of OpenTelemetry. Nothing that they raise leaves it."""

    def __init__(
        self,
        tracers: trace.TracerProvider | None,
        meters: metrics.MeterProvider | None,
        *,
        content: bool,
    ) -> None:
        self._content = content
        self.contained = Contained()
        released = version("byline")
        self.tracer = trace.get_tracer("byline", released, tracers)
        meter = metrics.get_meter("byline", released, meters)
        self.durations = {
            operation: meter.create_histogram(
                name, "s", f"How long {operation} took.", explicit_bucket_boundaries_advisory=_SECONDS
            )
            for operation, name in _DURATIONS.items()
        }
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self.lease_losses = meter.create_counter(
            "byline.lease.losses", "{loss}", "Segments that stopped since another may execute their run."
        )
        self._listener_failures = meter.create_counter(
            "byline.listener.failures", "{failure}", "Listeners that failed, came late, or were skipped."
        )
        self.census = Census(meter, self.contained)

    def span(self, run: Observed, operation: str, of: str | None, attributes: Mapping[str, Value]) -> Observation:
        """Observe something that a run does; it begins when the span is entered."""
        return _Span(self, run, operation, of, attributes)

    def listener_failed(self, listener: str, outcome: str) -> None:
        """Count a listener that was not told, or not in time, or that raised."""
        with self.contained:
            self._listener_failures.add(1, {"byline.listener": listener, "byline.listener.outcome": outcome})

    def shown(self, level: PrivacyLevel) -> Callable[[str], str] | None:
        """What a text of a run at this level is sent through before it is exported; None: it is not."""
        if not self._content or not level.keeps_content:
            return None
        return str if level is PrivacyLevel.FULL else redact


class _Span(Observation):
    """One span, and the histogram of its duration."""

    def __init__(
        self, exporter: Exporter, run: Observed, operation: str, of: str | None, attributes: Mapping[str, Value]
    ) -> None:
        self._exporter = exporter
        self._run = run
        self._operation = operation
        self._name = operation if of is None else f"{operation} {of}"
        self._attributes: dict[str, Value] = {"byline.correlation_id": str(run.run_id), **attributes}
        if operation in _DURATIONS:
            self._attributes["gen_ai.operation.name"] = operation
            self._attributes["gen_ai.agent.name"] = run.agent
            self._attributes["gen_ai.conversation.id"] = str(run.run_id)
        self._began = 0.0
        self._span: trace.Span = trace.INVALID_SPAN  # takes all and exports nothing: before it begins, or if it cannot
        self._scope: AbstractContextManager[trace.Span] | None = None

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        with self._exporter.contained:
            scope = self._exporter.tracer.start_as_current_span(
                self._name,
                kind=trace.SpanKind.CLIENT if self._operation == "chat" else trace.SpanKind.INTERNAL,
                attributes=self._attributes,
                record_exception=False,  # what an error says may be content
                set_status_on_exception=False,
            )
            self._span = scope.__enter__()
            self._scope = scope
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace_: TracebackType | None) -> None:
        if error is not None:
            self.failed(type(error).__qualname__)
        with self._exporter.contained:
            if self._operation in self._exporter.durations:
                took = time.monotonic() - self._began
                self._exporter.durations[self._operation].record(took, self._of_metrics())
        with self._exporter.contained:
            if self._scope is not None:
                self._scope.__exit__(None, None, None)

    def say(self, make: Callable[[Callable[[str], str]], Mapping[str, JsonValue]]) -> None:
        with self._exporter.contained:
            if (shown := self._exporter.shown(self._run.level)) is not None:
                for name, value in make(shown).items():
                    self._note({name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)})

    def answered(self, message: AssistantMessage) -> None:
        usage = {"input": message.answer.usage.input_tokens, "output": message.answer.usage.output_tokens}
        for kind, number in usage.items():
            if number:  # else the model does not say
                self._note({f"gen_ai.usage.{kind}_tokens": number})
                with self._exporter.contained:
                    self._exporter.tokens.record(number, {**self._of_metrics(), "gen_ai.token.type": kind})
        self.say(lambda shown: {"gen_ai.output.messages": [as_message(message, shown)]})

    def wrote(self, record: RecordReference, kind: WriteKind) -> None:
        self._note({"byline.record": str(record), "byline.write.kind": kind.value})

    def failed(self, error_type: str) -> None:
        self._note({"error.type": error_type})
        with self._exporter.contained:
            self._span.set_status(trace.StatusCode.ERROR)

    def left(self, status: str, error_type: str | None = None) -> None:
        self._note({"byline.run.status": status})
        if error_type is not None:
            self.failed(error_type)

    def lost(self) -> None:
        self.failed("ClaimLost")
        with self._exporter.contained:
            self._exporter.lease_losses.add(1, {"gen_ai.agent.name": self._run.agent})

    def _note(self, attributes: Mapping[str, Value]) -> None:
        self._attributes.update(attributes)
        with self._exporter.contained:
            for name, value in attributes.items():
                self._span.set_attribute(name, value)

    def _of_metrics(self) -> dict[str, Value]:
        return {name: value for name, value in self._attributes.items() if name in _OF_METRICS}
