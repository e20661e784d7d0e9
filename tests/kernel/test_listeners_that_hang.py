"""A listener that hangs is given up, logged and skipped; nobody else waits for it, no thread is missing (P6)."""

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from byline import AfterAiRecordWrittenEvent, Listener, RunStatus, StepKind
from byline.models.scripted import Turn
from byline.testing import call
from tests.host import Host
from tests.kernel.entries import ENTRIES, Entry, executed, start_and_approve, until, until_left
from tests.unit.hearing import AsyncEars, Ears, Hung, Release

ADD = call("add_element", page_id=42, text="Come in.")
READ = call("read_page", page_id=42)
TURNS: list[Turn] = [[ADD], "Done."]


@pytest.fixture
def release() -> Iterator[Release]:
    """What a hung listener waits for; it is let go when the test has ended."""
    event = threading.Event()
    yield event
    event.set()


async def hang(event: AfterAiRecordWrittenEvent) -> None:
    await asyncio.Event().wait()


def actions_of_errors(caplog: pytest.LogCaptureFixture) -> list[object]:
    return [vars(record)["action"] for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.promise("P6")
@pytest.mark.parametrize("entry", ENTRIES)
async def test_hung_listeners_are_given_up_and_the_run_goes_on(
    host: Host, entry: Entry, release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    ears, async_ears = Ears(), AsyncEars()
    listeners: list[Listener] = [Hung(release), hang, ears, async_ears]

    async with executed(host, entry, TURNS, listeners=listeners, listener_timeout=0.2) as (runtime, run):
        assert (run.status, run.output, host.executions()) == (RunStatus.COMPLETED, "Done.", 1)
        assert ears.heard == async_ears.heard
        assert [event.correlation_id for event in ears.heard] == [run.run_id]
        assert StepKind.WRITE in {step.kind for step in await runtime.list_steps(run.run_id)}

    assert actions_of_errors(caplog) == ["listener_late", "listener_late"]
    late = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert {vars(record)["listener"] for record in late} == {"tests.unit.hearing.Hung", f"{__name__}.hang"}
    for record in late:
        assert vars(record)["correlation_id"] == str(run.run_id)
        assert vars(record)["record"] == "elements:1"


@pytest.mark.promise("P6")
async def test_the_next_run_is_not_slower(host: Host, release: Release, caplog: pytest.LogCaptureFixture) -> None:
    """The listener that still hangs is skipped. Of five later runs, one at least must not have waited for it."""
    hung, ears, budget = Hung(release), Ears(), 1.0
    clock, durations = asyncio.get_running_loop().time, list[float]()
    async with host.runtime(TURNS, listeners=[hung, ears], listener_timeout=budget) as runtime:
        await start_and_approve(runtime)
        assert actions_of_errors(caplog) == ["listener_late"]
        for _ in range(5):
            began = clock()
            run = await start_and_approve(runtime)
            durations.append(clock() - began)
            assert run.status is RunStatus.COMPLETED

        assert min(durations) < budget
        assert actions_of_errors(caplog) == ["listener_late"] + ["listener_skipped"] * 5
        assert (len(hung.threads), len(ears.heard)) == (1, 6)


@pytest.mark.promise("P6", "P8")
async def test_a_listener_is_told_again_once_its_call_has_ended(
    host: Host, release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the next write: what it was given up for, or skipped with, it is not told again (P8)."""
    told: list[AfterAiRecordWrittenEvent] = []
    ended = threading.Event()

    def listener(event: AfterAiRecordWrittenEvent) -> None:
        told.append(event)
        release.wait()
        ended.set()

    async with host.runtime(TURNS, listeners=[listener], listener_timeout=0.2) as runtime:
        first = await start_and_approve(runtime)
        last = await start_and_approve(runtime)
        release.set()
        async with asyncio.timeout(20):
            while len(told) == 1:  # its thread has yet to end
                last = await start_and_approve(runtime)

        assert [event.correlation_id for event in told] == [first.run_id, last.run_id]
        feed = [fact.correlation_id for fact in await runtime.writes()]
        assert feed.index(first.run_id) == 0
        assert feed[-1] == last.run_id
        assert len(feed) > len(told)


@pytest.mark.promise("P6")
async def test_hung_listeners_take_no_thread_from_tools_store_or_authority(host: Host, release: Release) -> None:
    """More of them than any pool has threads."""
    hung, ears = [Hung(release) for _ in range(64)], Ears()
    turns: list[Turn] = [[ADD, READ], "Done."]
    async with host.runtime(turns, listeners=[*hung, ears], listener_timeout=0.2) as runtime:
        await start_and_approve(runtime)
        assert [len(one.threads) for one in hung] == [1] * 64
        run = await start_and_approve(runtime)

        assert (run.status, len(ears.heard)) == (RunStatus.COMPLETED, 2)
        assert all(thread.is_alive() and thread.daemon for one in hung for thread in one.threads)


@pytest.mark.promise("P6", "P22")
@pytest.mark.report(30)
async def test_a_caller_that_is_cancelled_in_an_announcement_gets_its_cancellation(
    host: Host, release: Release
) -> None:
    """The write has landed: it is recorded, once its listener lets it, and the run is handed back."""
    started = threading.Event()

    def listener(event: AfterAiRecordWrittenEvent) -> None:
        started.set()
        release.wait()

    async with host.runtime(TURNS, listeners=[listener, host.listen], listener_timeout=60) as runtime:
        deciding = asyncio.create_task(start_and_approve(runtime))
        await until(started.is_set)
        deciding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await deciding
        release.set()
        (run,) = await runtime.list_runs()
        run = await until_left(runtime, run.run_id, RunStatus.RUNNING)

        assert run.status is RunStatus.QUEUED
        assert (host.executions(), host.heard()) == (1, [("elements:1", "created")])
        kinds = {step.kind for step in await runtime.list_steps(run.run_id)}
        assert kinds >= {StepKind.WRITE, StepKind.HANDED_BACK}
        run = await runtime.execute(run.run_id)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)
