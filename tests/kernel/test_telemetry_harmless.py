"""Telemetry that fails hurts nobody, and what is not used is not imported."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from opentelemetry.context import Context
from opentelemetry.metrics import Meter, MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.trace import Tracer
from opentelemetry.trace import TracerProvider as AnyTracerProvider

from byline import AfterAiRecordWrittenEvent, RunStatus, Telemetry
from byline.models.scripted import Turn
from byline.testing import call
from tests.host import Host
from tests.kernel.entries import start_and_approve

TURNS: list[Turn] = [[call("read_page", page_id=42)], [call("set_description", page_id=42, description="x")], "Done."]

WORSE: list[BaseException] = [OSError("swordfish"), SystemExit("swordfish")]


class FailingProcessor(SpanProcessor):
    def __init__(self, error: BaseException, *, at: str) -> None:
        self._error, self._at = error, at

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if self._at == "start":
            raise self._error

    def on_end(self, span: ReadableSpan) -> None:
        if self._at == "end":
            raise self._error


class Broken:
    """Anything of an SDK: whatever it is asked, it raises, but for making what is made beforehand."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Callable[..., "Broken"]:
        def answer(*_: object, **__: object) -> Broken:
            if name.startswith(("create_", "get_")):
                return self
            raise self._error

        return answer


class BrokenTracers(AnyTracerProvider):
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def get_tracer(self, *_: object, **__: object) -> Tracer:
        broken: object = Broken(self._error)
        assert isinstance(broken, object)
        return broken  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


class BrokenMeters(MeterProvider):
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def get_meter(self, *_: object, **__: object) -> Meter:
        return Broken(self._error)  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


def fail(event: AfterAiRecordWrittenEvent) -> None:
    """A listener whose failure is counted."""
    raise OSError


def failing(at: str) -> Callable[[BaseException], AnyTracerProvider]:
    def make(error: BaseException) -> AnyTracerProvider:
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(FailingProcessor(error, at=at))
        return tracers

    return make


SDKS: Mapping[str, Callable[[BaseException], AnyTracerProvider]] = {
    "a tracer that raises": BrokenTracers,
    "a processor that raises at a span's start": failing("start"),
    "a processor that raises at a span's end": failing("end"),
}


@pytest.mark.promise("P6", "P9", "P23")
@pytest.mark.report(23)
@pytest.mark.parametrize("error", WORSE, ids=repr)
@pytest.mark.parametrize("sdk", SDKS)
async def test_an_sdk_that_raises_hurts_no_run(
    host: Host, sdk: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = Telemetry(tracer_provider=SDKS[sdk](error), meter_provider=BrokenMeters(error))
    listeners = [fail, host.listen]
    async with host.runtime(TURNS, listeners=listeners, telemetry=telemetry) as runtime:
        run = await start_and_approve(runtime)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
        assert [fact.correlation_id for fact in await runtime.writes()] == [run.run_id]
    assert (host.executions("set_description"), host.heard()) == (1, [("pages:42", "updated")])
    heard = [record for record in caplog.records if vars(record).get("action") == "listener_failed"]
    assert [vars(record)["run_id"] for record in heard] == [str(run.run_id)]
    warned = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [vars(record)["action"] for record in warned] == ["telemetry_failed"]  # and not for each span
    assert "swordfish" not in caplog.text


def printed(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


LOADED = "import json, sys; print(json.dumps([name for name in sys.modules if name.startswith('opentelemetry')]))"


@pytest.mark.promise("P25")
@pytest.mark.parametrize(
    "code",
    [
        "import byline; byline.Telemetry()",
        "import byline.runtime.runtime, byline.store.sql, byline.loop",
        "import sys; from byline.cli.app import main; sys.argv = ['byline', '--help']\n"
        "try: main()\nexcept SystemExit: pass",
    ],
)
def test_opentelemetry_is_not_imported_before_it_is_used(code: str) -> None:
    assert json.loads(printed(f"{code}\n{LOADED}").splitlines()[-1]) == []


RUN = """
import asyncio, sys
from pathlib import Path
from tests.host import ALICE, Host
async def main():
    async with Host(Path(sys.argv[1])).runtime(["Done."]) as runtime:
        print((await runtime.run("editor", "Please do.", actor=ALICE)).status)
asyncio.run(main())
"""


def test_a_run_without_telemetry_imports_none(tmp_path: Path) -> None:
    status, loaded = printed(RUN + LOADED, str(tmp_path / "host.db")).splitlines()
    assert status == "completed"
    assert json.loads(loaded) == []


WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from byline import Agent, AgentRuntime, ConfigurationError, Telemetry
from byline.testing import ScriptedModel
try:
    AgentRuntime(store="sqlite://", agents=[Agent(name="editor", model=ScriptedModel([]))], telemetry=Telemetry())
except ConfigurationError as error:
    print(error)
"""


def test_without_opentelemetry_it_says_what_to_install() -> None:
    assert printed(WITHOUT).strip() == "telemetry needs the extra byline[telemetry]"


def test_with_the_api_alone_nothing_is_exported_and_nothing_fails(tmp_path: Path) -> None:
    code = RUN.replace('(["Done."])', '(["Done."], telemetry=Telemetry())').replace(
        "import asyncio", "from byline import Telemetry\nimport asyncio", 1
    )
    loaded = "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    assert printed(code + loaded, str(tmp_path / "host.db")).splitlines() == ["completed", "[]"]
