"""What a host makes, and hands to its runtimes."""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from byline.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from byline.telemetry.exporting import Exporter


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """What runtimes tell OpenTelemetry of their runs: `AgentRuntime(…, telemetry=Telemetry())`.

    Several runtimes of a process may have the same; the metrics that are read from the store are then of the one that
    was opened last. Without an SDK nothing is exported. Nothing that an SDK raises reaches a run: the first failure is
    logged at WARNING, further ones at DEBUG (`telemetry_failed`).
    """

    tracer_provider: "TracerProvider | None" = None
    """Where spans go; None: OpenTelemetry's global one, also if that is set later."""
    meter_provider: "MeterProvider | None" = None
    """Where metrics go; likewise."""
    content: bool = False
    """Export what was said too: prompts, answers, arguments, results. The stricter of this and the run's privacy level
    holds: only runs at `full` are exported as they are, those at `redacted` redacted, and others without content. At
    the level `none`, a run has its `invoke_agent` spans and no others."""


def exporter_of(telemetry: Telemetry | None) -> "Exporter | None":
    """What a runtime tells of its runs.

    Raises:
        ConfigurationError: it was given something else, or OpenTelemetry is not installed.
    """
    if telemetry is None:
        return None
    if not isinstance(telemetry, Telemetry):
        raise ConfigurationError("telemetry is a Telemetry")
    return _exporter(telemetry)


@cache  # a meter warns of an instrument that is made twice, and exports it twice
def _exporter(telemetry: Telemetry) -> "Exporter":
    try:
        from byline.telemetry.exporting import Exporter
    except ModuleNotFoundError:
        raise ConfigurationError("telemetry needs the extra byline[telemetry]") from None
    return Exporter(telemetry.tracer_provider, telemetry.meter_provider, content=telemetry.content)
