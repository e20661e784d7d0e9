"""Listeners and dispatchers of every behaviour, for the tests of announcing."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import cast
from uuid import UUID

import pytest

from byline.announcing import (
    AfterAiRecordWrittenEvent,
    EventDispatcher,
    Listener,
)
from byline.records import RecordReference, WriteKind

RUN = UUID("0190f3a4-0000-7000-8000-000000000001")
EVENT = AfterAiRecordWrittenEvent(RUN, RecordReference("pages", 42), WriteKind.UPDATED)
SHORT = 0.05
"""A budget that a test means to use up; where nothing is to be late, the default is far away."""

Release = threading.Event


class Ears:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[AfterAiRecordWrittenEvent] = []

    def __call__(self, event: AfterAiRecordWrittenEvent) -> None:
        self.heard.append(event)


class AsyncEars:
    """The same, on the loop."""

    def __init__(self) -> None:
        self.heard: list[AfterAiRecordWrittenEvent] = []

    async def __call__(self, event: AfterAiRecordWrittenEvent) -> None:
        self.heard.append(event)


class Stubborn:
    """An async listener that swallows its cancellation until it is let go, and then hears."""

    def __init__(self) -> None:
        self.heard: list[AfterAiRecordWrittenEvent] = []
        self.let_go = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, event: AfterAiRecordWrittenEvent) -> None:
        self.heard.append(event)
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        self.ended.set()


class Hung:
    """A sync listener that hangs until it is let go; `threads` is where its calls run."""

    def __init__(self, release: Release) -> None:
        self.release = release
        self.threads: list[threading.Thread] = []

    def __call__(self, event: AfterAiRecordWrittenEvent) -> None:
        self.threads.append(threading.current_thread())
        self.release.wait()


class Host:
    """A host's own dispatcher, of any behaviour."""

    def __init__(self, behaviour: Listener) -> None:
        self.behaviour = behaviour

    def dispatch(self, event: AfterAiRecordWrittenEvent, /) -> Awaitable[None] | None:
        return self.behaviour(event)


def host(behaviour: Listener) -> EventDispatcher:
    return cast("EventDispatcher", cast("object", Host(behaviour)))


def actions(caplog: pytest.LogCaptureFixture) -> list[object]:
    return [vars(record)["action"] for record in caplog.records if record.name == "byline.announcing"]


async def dispatch_until_heard(dispatcher: EventDispatcher, calls: Callable[[], int]) -> None:
    """An abandoned thread that was let go ends a moment later; dispatch until the listener is told again."""
    before = calls()
    while calls() == before:
        await dispatcher.dispatch(EVENT)
        await asyncio.sleep(0.001)


FAILURES = [ValueError, asyncio.CancelledError, SystemExit, StopIteration, GeneratorExit]


def failing_listener(error: BaseException) -> Listener:
    def listener(event: AfterAiRecordWrittenEvent) -> None:
        raise error

    return listener


def failing_async_listener(error: BaseException) -> Listener:
    async def listener(event: AfterAiRecordWrittenEvent) -> None:
        await asyncio.sleep(0)
        raise error

    return listener
