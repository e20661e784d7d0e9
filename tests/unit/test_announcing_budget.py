import asyncio
import gc
import logging
import subprocess
import sys
import threading
from collections.abc import Awaitable, Iterator

import pytest

from byline.announcing import (
    AfterAiRecordWrittenEvent,
    Listener,
    ListenerDispatcher,
    contained,
)
from tests.unit.hearing import (
    EVENT,
    RUN,
    SHORT,
    AsyncEars,
    Ears,
    Hung,
    Release,
    Stubborn,
    actions,
    dispatch_until_heard,
    failing_listener,
    host,
)


@pytest.fixture
def release() -> Iterator[Release]:
    """What a hung listener waits for; it is let go when the test has ended."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.promise("P6")
async def test_the_budget_is_of_the_dispatch_and_a_hung_listener_costs_the_others_nothing(
    release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang(event: AfterAiRecordWrittenEvent) -> None:
        await asyncio.Event().wait()

    loop, ears, async_ears = asyncio.get_running_loop(), Ears(), AsyncEars()
    listeners: list[Listener] = [Hung(release) for _ in range(20)]
    start = loop.time()

    await ListenerDispatcher([*listeners, hang, ears, async_ears], timeout=0.2).dispatch(EVENT)

    assert 0.2 <= loop.time() - start < 10 * 0.2
    assert ears.heard == async_ears.heard == [EVENT]
    assert actions(caplog) == ["listener_late"] * 21
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
    assert caplog.messages[-1] == (
        f"Listener {vars(caplog.records[-1])['listener']} did not finish in time and was given up: "
        f"run {RUN} wrote pages:42 (updated)"
    )


@pytest.mark.promise("P6")
async def test_a_late_async_listener_is_cancelled_and_told_of_the_next_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cancelled: list[AfterAiRecordWrittenEvent] = []

    async def hang(event: AfterAiRecordWrittenEvent) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(event)
            raise

    dispatcher = ListenerDispatcher([hang], timeout=SHORT)
    await dispatcher.dispatch(EVENT)
    await dispatcher.dispatch(EVENT)
    await asyncio.sleep(0)

    assert cancelled == [EVENT, EVENT]
    assert actions(caplog) == ["listener_late"] * 2


@pytest.mark.promise("P6")
async def test_a_listener_is_skipped_while_an_abandoned_thread_of_it_runs(
    release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    hung, ears = Hung(release), Ears()
    dispatcher = ListenerDispatcher([hung, ears], timeout=SHORT)

    await dispatcher.dispatch(EVENT)
    dispatcher._timeout = 3600  # to be skipped takes no time
    await dispatcher.dispatch(EVENT)

    assert actions(caplog) == ["listener_late", "listener_skipped"]
    assert caplog.records[-1].levelno == logging.ERROR
    assert len(hung.threads) == 1
    assert hung.threads[0].daemon
    assert len(ears.heard) == 2

    release.set()
    await dispatch_until_heard(dispatcher, lambda: len(hung.threads))


@pytest.mark.promise("P6")
async def test_a_listener_is_skipped_while_it_swallows_its_cancellation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stubborn = Stubborn()
    dispatcher = ListenerDispatcher([stubborn], timeout=SHORT)

    await dispatcher.dispatch(EVENT)
    dispatcher._timeout = 3600
    await dispatcher.dispatch(EVENT)
    await dispatcher.dispatch(EVENT)
    assert stubborn.heard == [EVENT]

    stubborn.let_go.set()
    await stubborn.ended.wait()
    await dispatcher.dispatch(EVENT)

    assert actions(caplog) == ["listener_late", "listener_skipped", "listener_skipped"]
    assert stubborn.heard == [EVENT, EVENT]


@pytest.mark.promise("P6")
@pytest.mark.report(31)
async def test_what_a_late_listener_raises_in_the_end_does_not_vanish(
    release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    ended = asyncio.Event()

    def on_thread(event: AfterAiRecordWrittenEvent) -> None:
        release.wait()
        raise ValueError("thread")

    async def on_loop(event: AfterAiRecordWrittenEvent) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
            raise ValueError("cleanup")

    dispatcher = ListenerDispatcher([on_thread, on_loop], timeout=SHORT)
    await dispatcher.dispatch(EVENT)
    release.set()
    await ended.wait()
    while len(caplog.records) < 4:  # noqa: ASYNC110 - a thread sets no asyncio.Event
        await asyncio.sleep(0.001)

    assert sorted(map(str, actions(caplog))) == ["listener_failed"] * 2 + ["listener_late"] * 2


@pytest.mark.promise("P6")
async def test_a_coroutine_that_comes_too_late_is_closed(release: Release) -> None:
    begun = asyncio.Event()
    returned = threading.Event()

    async def begin() -> None:
        begun.set()

    def late(event: AfterAiRecordWrittenEvent) -> Awaitable[None]:
        release.wait()
        returned.set()
        return begin()  # unawaited it would be a warning, and so an error

    dispatcher = ListenerDispatcher([late], timeout=SHORT)
    await dispatcher.dispatch(EVENT)
    release.set()
    returned.wait()
    await asyncio.sleep(0)

    assert not begun.is_set()


@pytest.mark.promise("P6")
async def test_a_second_run_may_tell_a_listener_that_is_in_time(release: Release) -> None:
    together = threading.Barrier(2)

    def listener(event: AfterAiRecordWrittenEvent) -> None:
        together.wait()

    dispatcher = ListenerDispatcher([listener], timeout=60)

    await asyncio.gather(dispatcher.dispatch(EVENT), dispatcher.dispatch(EVENT))


@pytest.mark.promise("P6")
async def test_loops_in_several_threads_share_what_is_known_of_a_listener(
    release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    hung = Hung(release)
    dispatcher = ListenerDispatcher([hung], timeout=SHORT)

    await asyncio.to_thread(asyncio.run, dispatcher.dispatch(EVENT))
    assert actions(caplog) == ["listener_late"]
    await dispatcher.dispatch(EVENT)
    await asyncio.to_thread(asyncio.run, dispatcher.dispatch(EVENT))

    assert actions(caplog) == ["listener_late", "listener_skipped", "listener_skipped"]
    assert len(hung.threads) == 1
    release.set()
    await dispatch_until_heard(dispatcher, lambda: len(hung.threads))


@pytest.mark.promise("P6")
async def test_many_loops_at_once_lose_no_call(caplog: pytest.LogCaptureFixture) -> None:
    ears, async_ears = Ears(), AsyncEars()
    dispatcher = ListenerDispatcher([ears, failing_listener(ValueError("x")), async_ears], timeout=60)

    async def dispatch_many() -> None:
        for _ in range(20):
            await dispatcher.dispatch(EVENT)

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, dispatch_many()) for _ in range(4)))

    assert len(ears.heard) == len(async_ears.heard) == len(actions(caplog)) == 80


@pytest.mark.promise("P6")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_call_that_was_left_on_a_closed_loop_blocks_no_other(caplog: pytest.LogCaptureFixture) -> None:
    stubborn = Stubborn()
    dispatcher = ListenerDispatcher([stubborn], timeout=SHORT)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(dispatcher.dispatch(EVENT))
    loop.close()

    stubborn.let_go = asyncio.Event()
    stubborn.let_go.set()
    asyncio.run(dispatcher.dispatch(EVENT))

    assert stubborn.heard == [EVENT, EVENT]
    assert actions(caplog) == ["listener_late"]
    gc.collect()  # asyncio logs that the task on the closed loop was destroyed: here, not in another test


@pytest.mark.promise("P6")
def test_a_hung_listener_holds_up_no_exit() -> None:
    code = """
import asyncio, threading, uuid
from byline.announcing import AfterAiRecordWrittenEvent, ListenerDispatcher
from byline.records import RecordReference, WriteKind
event = AfterAiRecordWrittenEvent(uuid.uuid4(), RecordReference("pages", 42), WriteKind.CREATED)
asyncio.run(ListenerDispatcher([lambda event: threading.Event().wait()], timeout=0.05).dispatch(event))
"""

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, timeout=30, capture_output=True, text=True
    )

    assert "did not finish in time" in done.stderr  # without a log configuration, errors go to stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.promise("P6")
async def test_a_cancelled_run_is_cancelled_at_once_and_its_listeners_go_on(
    release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    started, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    heard_on_thread = threading.Event()

    async def on_loop(event: AfterAiRecordWrittenEvent) -> None:
        started.set()
        await go_on.wait()
        ended.set()

    def on_thread(event: AfterAiRecordWrittenEvent) -> None:
        release.wait()
        heard_on_thread.set()

    run = asyncio.create_task(ListenerDispatcher([on_loop, on_thread], timeout=60).dispatch(EVENT))
    await started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    go_on.set()
    release.set()
    await ended.wait()
    await asyncio.to_thread(heard_on_thread.wait)
    assert actions(caplog) == []


@pytest.mark.promise("P6")
async def test_a_cancelled_runs_listeners_are_given_up_when_its_budget_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def hang(event: AfterAiRecordWrittenEvent) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    run = asyncio.create_task(ListenerDispatcher([hang], timeout=0.2).dispatch(EVENT))
    await started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    await cancelled.wait()
    await asyncio.sleep(0)
    assert actions(caplog) == ["listener_late"]


@pytest.mark.promise("P6")
async def test_a_deadline_around_the_run_is_kept() -> None:
    async def hang(event: AfterAiRecordWrittenEvent) -> None:
        await asyncio.Event().wait()

    for dispatcher in (ListenerDispatcher([hang], timeout=2), contained(host(hang), timeout=2)):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SHORT):
                await dispatcher.dispatch(EVENT)
