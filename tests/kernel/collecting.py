"""An OpenTelemetry SDK in memory, and a `Telemetry` that speaks to it and to nothing global."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
    ResourceMetrics,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from byline import Telemetry


class Collected:
    """What one process exports."""

    def __init__(self, *, content: bool = False) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.telemetry = Telemetry(tracer_provider=self.tracers, meter_provider=self.meters, content=content)

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        """The spans that have ended, in that order; those of a name, or whose name begins with it."""
        finished = self._exporter.get_finished_spans()
        return [span for span in finished if name is None or span.name == name or span.name.startswith(f"{name} ")]

    def span(self, name: str) -> ReadableSpan:
        """The only span of a name."""
        (span,) = self.spans(name)
        return span

    def points(self, name: str) -> list[NumberDataPoint | HistogramDataPoint]:
        """What a metric says now."""
        data = self._reader.get_metrics_data()
        resources: Sequence[ResourceMetrics] = () if data is None else data.resource_metrics
        return [
            point
            for resource in resources
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
            if isinstance(point, NumberDataPoint | HistogramDataPoint)
        ]

    def numbers(self, name: str, by: str) -> dict[object, float]:
        """The values of a counter or gauge by one of their attributes."""
        points = self.points(name)
        return {attributes_of(point)[by]: point.value for point in points if isinstance(point, NumberDataPoint)}

    def everything(self) -> str:
        """All that is exported, as text."""
        data = self._reader.get_metrics_data()
        spans = "\n".join(span.to_json(indent=None) for span in self.spans())
        return spans + ("" if data is None else data.to_json())


def attributes_of(exported: ReadableSpan | NumberDataPoint | HistogramDataPoint) -> Mapping[str, object]:
    """The attributes, whatever their types."""
    return {} if exported.attributes is None else {**exported.attributes}


def context_of(span: ReadableSpan) -> SpanContext:
    """The context that every ended span has."""
    context = span.get_span_context()
    assert context is not None
    return context


def parent_of(span: ReadableSpan, spans: list[ReadableSpan]) -> str | None:
    """The name of the span's parent among others; None of a root."""
    if span.parent is None:
        return None
    return {context_of(other).span_id: other.name for other in spans}[span.parent.span_id]


def runs_of(spans: list[ReadableSpan]) -> set[UUID]:
    """The correlation ids of spans."""
    return {UUID(str(attributes_of(span)["byline.correlation_id"])) for span in spans}
