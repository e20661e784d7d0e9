"""Telemetry in bad company: exporters that block, providers that come late, a fork."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from byline import RunStatus, Telemetry
from byline.models.scripted import Turn
from byline.testing import call
from tests.host import Host
from tests.kernel.entries import start_and_approve

TURNS: list[Turn] = [[call("read_page", page_id=42)], [call("set_description", page_id=42, description="x")], "Done."]


class Blocked(SpanExporter):
    """An exporter whose collector does not answer."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.freed = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.reached.set()
        self.freed.wait(60)
        return SpanExportResult.FAILURE


async def test_an_exporter_that_blocks_holds_up_no_run(host: Host) -> None:
    blocked, tracers = Blocked(), TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(blocked, max_queue_size=4, max_export_batch_size=1))
    try:
        async with asyncio.timeout(30), host.runtime(TURNS, telemetry=Telemetry(tracer_provider=tracers)) as runtime:
            for _ in range(3):  # more spans than the queue holds
                assert (await start_and_approve(runtime)).status is RunStatus.COMPLETED
        assert await asyncio.to_thread(blocked.reached.wait, 20)
        assert len(host.heard()) == 3
    finally:
        blocked.freed.set()
        tracers.shutdown()


LATE = """
import asyncio, sys
from pathlib import Path
from opentelemetry import metrics, trace
from byline import Telemetry
from tests.host import ALICE, Host

async def main():
    host = Host(Path(sys.argv[1]))
    async with host.runtime(["Done.", "Done."], telemetry=Telemetry()) as runtime:
        await runtime.run("editor", "Please do.", actor=ALICE)
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
        trace.set_tracer_provider(TracerProvider())
        trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
        metrics.set_meter_provider(MeterProvider([reader]))
        await runtime.run("editor", "Please do.", actor=ALICE)
        print(*[span.name for span in exporter.get_finished_spans()], sep=",")
        (resource,) = reader.get_metrics_data().resource_metrics
        print(*sorted(metric.name for scope in resource.scope_metrics for metric in scope.metrics), sep=",")
asyncio.run(main())
"""


def printed(code: str, folder: Path, *options: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", *options, "-c", code, str(folder / "host.db")],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_provider_that_is_set_later_is_spoken_to_from_then_on(tmp_path: Path) -> None:
    spans, metrics = printed(LATE, tmp_path)
    assert spans == "chat,invoke_agent editor"
    assert metrics.split(",") == [
        "byline.runs",
        "gen_ai.client.operation.duration",
        "gen_ai.invoke_agent.duration",
    ]


FORK = """
import asyncio, os, sys
from pathlib import Path
from tests.host import Host
from tests.kernel.collecting import Collected

async def main():
    collected = Collected()
    async with Host(Path(sys.argv[1])).runtime(["Done."], telemetry=collected.telemetry):
        print(len(collected.points("byline.runs")), flush=True)
        child = os.fork()
        if not child:
            print(len(collected.points("byline.runs")), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(len(collected.points("byline.runs")), flush=True)
asyncio.run(main())
"""


def test_a_forked_child_asks_not_its_parents_store(tmp_path: Path) -> None:
    """Its connections are the parent's: both would read each other's answers."""
    assert printed(FORK, tmp_path, "-W", "ignore::DeprecationWarning") == ["6", "0", "6"]
