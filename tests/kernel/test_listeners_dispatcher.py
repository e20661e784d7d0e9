"""The dispatching line contains any dispatcher, a host's own too (P6)."""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

import pytest

from byline import AfterAiRecordWrittenEvent, ConfigurationError, EventDispatcher, Listener, RunStatus
from byline.models.scripted import Turn
from byline.testing import RecordingDispatcher, call
from tests.host import Host, Settings
from tests.kernel.entries import ENTRIES, Entry, executed, start_and_approve
from tests.unit.hearing import FAILURES, Ears, Stubborn, failing_async_listener, failing_listener
from tests.unit.hearing import host as behaving

ADD = call("add_element", page_id=42, text="Come in.")
TURNS: list[Turn] = [[ADD], "Done."]


class Slow:
    """A dispatcher that takes three seconds."""

    def __init__(self) -> None:
        self.told = self.done = 0

    async def dispatch(self, event: AfterAiRecordWrittenEvent, /) -> None:
        self.told += 1
        await asyncio.sleep(3)
        self.done += 1


@pytest.mark.promise("P6")
@pytest.mark.parametrize("entry", ENTRIES)
async def test_a_hosts_own_dispatcher_is_told(host: Host, entry: Entry) -> None:
    recording = RecordingDispatcher()
    async with executed(host, entry, TURNS, dispatcher=recording) as (_, run):
        assert run.status is RunStatus.COMPLETED
        assert [event.correlation_id for event in recording.events] == [run.run_id]


@pytest.mark.promise("P6")
@pytest.mark.report(23, 31)
@pytest.mark.parametrize("fail", [failing_listener, failing_async_listener], ids=["called", "awaited"])
@pytest.mark.parametrize("error", FAILURES)
async def test_one_that_raises_hurts_no_run(
    host: Host,
    fail: Callable[[BaseException], Listener],
    error: type[BaseException],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with host.runtime(TURNS, dispatcher=behaving(fail(error()))) as runtime:
        run = await start_and_approve(runtime)
        assert (run.status, run.output, host.executions()) == (RunStatus.COMPLETED, "Done.", 1)

    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert vars(record)["action"] == "dispatcher_failed"
    assert vars(record)["correlation_id"] == str(run.run_id)
    assert record.exc_info is not None
    assert record.exc_info[2] is not None


@pytest.mark.promise("P6")
async def test_one_that_returns_nothing_to_await_is_told_as_well(host: Host) -> None:
    ears = Ears()
    async with host.runtime(TURNS, dispatcher=behaving(ears)) as runtime:
        run = await start_and_approve(runtime)
        assert (run.status, len(ears.heard)) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P6")
@pytest.mark.parametrize("entry", ENTRIES)
async def test_one_that_is_late_is_given_up_at_the_listener_timeout(
    host: Host, entry: Entry, caplog: pytest.LogCaptureFixture
) -> None:
    """Not at the default one, in which it would have been in time."""
    slow = Slow()
    async with executed(host, entry, TURNS, dispatcher=slow, listener_timeout=0.1) as (_, run):
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)
        assert (slow.told, slow.done) == (1, 0)

    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert vars(record)["action"] == "dispatcher_late"


@pytest.mark.promise("P6")
async def test_one_that_swallows_its_cancellation_is_skipped_while_it_runs(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn = Stubborn()
    turns: list[Turn] = [[ADD, ADD], "Done."]
    try:
        async with host.runtime(turns, dispatcher=behaving(stubborn), listener_timeout=0.1) as runtime:
            run = await start_and_approve(runtime)
            assert (run.status, host.executions()) == (RunStatus.COMPLETED, 2)
    finally:
        stubborn.let_go.set()
    assert [vars(record)["action"] for record in caplog.records if record.levelno >= logging.ERROR] == [
        "dispatcher_late",
        "dispatcher_skipped",
    ]


@pytest.mark.promise("P6")
def test_what_is_no_dispatcher_is_found_at_construction(host: Host) -> None:
    with pytest.raises(ConfigurationError, match="no event dispatcher"):
        host.runtime(TURNS, dispatcher=cast("EventDispatcher", object()))
    with pytest.raises(ConfigurationError, match="not both"):
        host.runtime(TURNS, dispatcher=RecordingDispatcher(), listeners=[Ears()])


@pytest.mark.promise("P6")
@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), True])
@pytest.mark.parametrize("told", ["nobody", "listeners", "dispatcher"])
def test_a_wrong_listener_timeout_is_found_at_construction(host: Host, timeout: float, told: str) -> None:
    settings = Settings(listeners=[Ears()] if told == "listeners" else [])
    if told == "dispatcher":
        settings = Settings(dispatcher=RecordingDispatcher())
    settings["listener_timeout"] = timeout
    with pytest.raises(ConfigurationError, match="positive"):
        host.runtime(TURNS, **settings)
