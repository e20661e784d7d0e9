"""A listener cannot hurt: what it raises is logged, the others are told, and the run goes on (P6)."""

import logging

import pytest

from byline import AgentRuntime, Listener, Run, RunStatus, StepKind
from byline.models.scripted import Turn
from byline.testing import call
from tests.host import Host
from tests.kernel.entries import ENTRIES, Entry, executed
from tests.unit.hearing import FAILURES, AsyncEars, Ears, failing_async_listener, failing_listener

TURNS: list[Turn] = [[call("add_element", page_id=42, text="Come in.")], "Done."]


def errors(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


async def assert_it_went_well(host: Host, runtime: AgentRuntime, run: Run) -> None:
    """The write ran once, is in the trace, and the run was completed."""
    assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
    assert (host.executions(), host.elements()) == (1, ["Come in."])
    kinds = [step.kind for step in await runtime.list_steps(run.run_id)]
    assert kinds.count(StepKind.TOOL) == kinds.count(StepKind.WRITE) == 1


@pytest.mark.promise("P6")
@pytest.mark.report(23, 31, 32)
@pytest.mark.parametrize("entry", ENTRIES)
async def test_failing_listeners_hurt_neither_the_run_nor_the_others(
    host: Host, entry: Entry, caplog: pytest.LogCaptureFixture
) -> None:
    first, last, async_last = Ears(), Ears(), AsyncEars()
    failing = [fail(error()) for error in FAILURES for fail in (failing_listener, failing_async_listener)]
    listeners: list[Listener] = [first, *failing, last, async_last]

    async with executed(host, entry, TURNS, listeners=listeners) as (runtime, run):
        await assert_it_went_well(host, runtime, run)
        assert len(first.heard) == 1
        assert first.heard == last.heard == async_last.heard

    logged = errors(caplog)
    assert len(logged) == len(failing)  # one a failure
    for record, error in zip(sorted(logged, key=_origin), sorted(_expected()), strict=True):
        assert _origin(record) == error
        assert vars(record).items() >= {
            "name": "byline.announcing",
            "action": "listener_failed",
            "correlation_id": str(run.run_id),
            "record": "elements:1",
        }.items()  # fmt: skip
        assert record.exc_info is not None
        assert record.exc_info[2] is not None
        assert str(run.run_id) in record.getMessage()
        assert "elements:1" in record.getMessage()
        assert error[0] in record.getMessage()


def _origin(record: logging.LogRecord) -> tuple[str, str]:
    """Which listener failed, by the log, and with what."""
    assert record.exc_info is not None
    assert record.exc_info[0] is not None
    return vars(record)["listener"], record.exc_info[0].__name__


def _expected() -> list[tuple[str, str]]:
    sync = f"tests.unit.hearing.{failing_listener.__name__}.<locals>.listener"
    on_loop = f"tests.unit.hearing.{failing_async_listener.__name__}.<locals>.listener"
    # Python makes a RuntimeError of a StopIteration that leaves a coroutine.
    named = {error: "RuntimeError" if error is StopIteration else error.__name__ for error in FAILURES}
    return [(sync, error.__name__) for error in FAILURES] + [(on_loop, named[error]) for error in FAILURES]
