"""What runs do, told to OpenTelemetry: spans and metrics, with its names for generative AI where they fit.

`observing` is what the rest of Byline calls. It imports nothing of OpenTelemetry: `exporting` does, and is imported
when a runtime is given a `Telemetry`.
"""

from byline.telemetry.observing import (
    UNOBSERVED,
    Observation,
    count_listener_failure,
    observe_announcement,
    observe_chat,
    observe_segment,
    observe_tool,
)
from byline.telemetry.telemetry import Telemetry, exporter_of

__all__ = [
    "UNOBSERVED",
    "Observation",
    "Telemetry",
    "count_listener_failure",
    "exporter_of",
    "observe_announcement",
    "observe_chat",
    "observe_segment",
    "observe_tool",
]
