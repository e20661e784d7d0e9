"""The dispatching line contains any dispatcher, a host's own too (P6)."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import cast

import pytest

from byline import AfterAiRecordWrittenEvent, AgentRuntime, ConfigurationError, EventDispatcher, Listener, RunStatus
from byline.models.scripted import Turn
from byline.testing import RecordingDispatcher, call
from tests.host import Host
from tests.kernel.entries import ENTRIES, Entry, executed, start_and_approve
from tests.unit.hearing import FAILURES, Ears, Stubborn, failing_async_listener, failing_listener, host as behaving

TURNS: list[Turn] = [[call("add_element", page_id=42, text="Come in.")], "Done."]


async def hang(event: AfterAiRecordWrittenEvent) -> None:
    await asyncio.Event().wait()


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
@pytest.mark.parametrize("way", ["obedient", "stubborn"])
async def test_one_that_hangs_is_given_up_within_the_listener_timeout(
    host: Host, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn = Stubborn()
    listener: Listener = hang if way == "obedient" else stubborn
    async with host.runtime(TURNS, dispatcher=behaving(listener), listener_timeout=0.2) as runtime:
        began = time.monotonic()
        run = await start_and_approve(runtime)
        # With the default of 5 s it would take longer than that; the run itself takes a fraction of a second.
        assert time.monotonic() - began < 5
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)
        stubborn.let_go.set()

    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert vars(record)["action"] == "dispatcher_late"


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
    with pytest.raises(ConfigurationError, match="positive"):
        if told == "dispatcher":
            host.runtime(TURNS, dispatcher=RecordingDispatcher(), listener_timeout=timeout)
        else:
            host.runtime(TURNS, listeners=[Ears()] if told == "listeners" else [], listener_timeout=timeout)
