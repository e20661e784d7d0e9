import asyncio
import functools
import gc
import logging
from collections.abc import Callable
from typing import NoReturn, cast

import pytest

from byline.announcing import (
    AfterAiRecordWrittenEvent,
    EventDispatcher,
    Listener,
    ListenerDispatcher,
    contained,
)
from byline.errors import ConfigurationError
from tests.unit.hearing import (
    EVENT,
    FAILURES,
    RUN,
    SHORT,
    AsyncEars,
    Ears,
    Stubborn,
    actions,
    failing_async_listener,
    failing_listener,
    host,
)


@pytest.mark.promise("P6")
@pytest.mark.report(31, 32)
@pytest.mark.parametrize("fail", [failing_listener, failing_async_listener])
@pytest.mark.parametrize("error", FAILURES)
async def test_one_that_raises_is_logged_once_and_the_others_are_told(
    fail: Callable[[BaseException], Listener], error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    first, last, async_last = Ears(), Ears(), AsyncEars()

    await ListenerDispatcher([first, fail(error()), last, async_last]).dispatch(EVENT)

    assert first.heard == last.heard == async_last.heard == [EVENT]
    (record,) = caplog.records
    name = f"tests.unit.hearing.{fail.__name__}.<locals>.listener"
    assert (record.name, record.levelno) == ("byline.announcing", logging.ERROR)
    assert record.getMessage() == f"Listener {name} failed: run {RUN} wrote pages:42 (updated)"
    assert vars(record).items() >= {
        "action": "listener_failed", "listener": name, "run_id": str(RUN), "correlation_id": str(RUN),
        "record": "pages:42",
    }.items()  # fmt: skip
    assert record.exc_info is not None
    # Python makes a RuntimeError of a StopIteration that leaves a coroutine.
    assert isinstance(record.exc_info[1], error | RuntimeError)
    assert record.exc_info[2] is not None


@pytest.mark.promise("P6")
@pytest.mark.report(31)
async def test_each_failure_is_one_record(caplog: pytest.LogCaptureFixture) -> None:
    listeners = [failing_listener(ValueError("1")), failing_async_listener(ValueError("2"))]
    dispatcher = ListenerDispatcher([*listeners, Ears()])

    await dispatcher.dispatch(EVENT)
    await dispatcher.dispatch(EVENT)

    assert actions(caplog) == ["listener_failed"] * 4


@pytest.mark.promise("P6")
async def test_an_awaitable_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    fail = failing_async_listener(ValueError("x"))

    await ListenerDispatcher([lambda event: fail(event)]).dispatch(EVENT)

    assert actions(caplog) == ["listener_failed"]


@pytest.mark.promise("P6")
async def test_an_async_listener_that_cancels_its_own_task_hurts_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def listener(event: AfterAiRecordWrittenEvent) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    await ListenerDispatcher([listener]).dispatch(EVENT)

    assert actions(caplog) == ["listener_failed"]


class Secretive:
    def __call__(self, event: AfterAiRecordWrittenEvent) -> NoReturn:
        raise ValueError

    def __repr__(self) -> str:
        return "Secretive(api_key='hunter2')"


@pytest.mark.promise("P6")
async def test_an_object_is_named_by_its_type_and_never_printed(caplog: pytest.LogCaptureFixture) -> None:
    await ListenerDispatcher([Secretive(), functools.partial(Secretive())]).dispatch(EVENT)

    assert {vars(record)["listener"] for record in caplog.records} == {f"{__name__}.Secretive"}
    assert "hunter2" not in caplog.text


@pytest.mark.promise("P6")
async def test_a_log_handler_that_raises_hurts_nobody() -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> NoReturn:
            raise OSError("the disk is full")

    logger, handler, ears = logging.getLogger("byline.announcing"), Broken(), Ears()
    logger.addHandler(handler)
    try:
        await ListenerDispatcher([failing_listener(ValueError("x")), ears]).dispatch(EVENT)
    finally:
        logger.removeHandler(handler)

    assert ears.heard == [EVENT]


@pytest.mark.promise("P6")
@pytest.mark.parametrize("fail", [failing_listener, failing_async_listener])
def test_a_keyboard_interrupt_goes_on(
    fail: Callable[[BaseException], Listener], caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.new_event_loop()
    run = loop.create_task(ListenerDispatcher([fail(KeyboardInterrupt())]).dispatch(EVENT))
    try:
        while not run.done():  # it breaks out of the loop in each task that it passes
            with pytest.raises(KeyboardInterrupt):
                loop.run_until_complete(run)
        assert isinstance(run.exception(), KeyboardInterrupt)
    finally:
        loop.close()

    assert actions(caplog) == []


@pytest.fixture
def no_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byline.announcing._MARGIN", 0.0)


@pytest.mark.promise("P6")
@pytest.mark.parametrize("fail", [failing_listener, failing_async_listener], ids=["called", "awaited"])
@pytest.mark.parametrize("error", FAILURES)
async def test_what_a_hosts_dispatcher_raises_is_logged(
    fail: Callable[[BaseException], Listener], error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    await contained(host(fail(error()))).dispatch(EVENT)

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.getMessage().startswith("Dispatcher tests.unit.hearing.Host.dispatch failed: run ")
    assert actions(caplog) == ["dispatcher_failed"]


@pytest.mark.promise("P6")
async def test_a_hosts_dispatcher_is_called_on_the_loop_and_awaited_if_it_can_be() -> None:
    heard: list[AfterAiRecordWrittenEvent] = []

    async def later(event: AfterAiRecordWrittenEvent) -> None:
        heard.append(event)

    await contained(host(heard.append)).dispatch(EVENT)
    await contained(host(lambda event: asyncio.ensure_future(later(event)))).dispatch(EVENT)

    assert heard == [EVENT, EVENT]


@pytest.mark.promise("P6")
async def test_a_hosts_dispatcher_that_hangs_is_given_up_and_skipped_while_it_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stubborn = Stubborn()
    dispatcher = contained(host(stubborn), timeout=SHORT)

    await dispatcher.dispatch(EVENT)
    await dispatcher.dispatch(EVENT)
    stubborn.let_go.set()
    await stubborn.ended.wait()
    await dispatcher.dispatch(EVENT)

    assert actions(caplog) == ["dispatcher_late", "dispatcher_skipped"]
    assert stubborn.heard == [EVENT, EVENT]


@pytest.mark.promise("P6")
def test_a_keyboard_interrupt_in_a_hosts_dispatcher_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(contained(host(failing_async_listener(KeyboardInterrupt()))).dispatch(EVENT))

    gc.collect()
    assert caplog.records == []  # nor does asyncio report a task whose exception nobody saw


def test_what_contains_itself_is_not_wrapped() -> None:
    own = ListenerDispatcher([])
    hosts = contained(host(Ears()))

    assert contained(own) is own
    assert contained(hosts) is hosts


def test_what_is_no_dispatcher_is_found_at_construction() -> None:
    with pytest.raises(ConfigurationError, match="Ears is no event dispatcher"):
        contained(cast("EventDispatcher", cast("object", Ears())))
