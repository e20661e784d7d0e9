"""An open runtime: its threads, and the executions that belong to it and not to their callers."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Coroutine, Generator
from typing import TypeVar
from uuid import UUID

from byline.runtime.heartbeat import Heartbeat
from byline.runtime.segment import Segment, Stop
from byline.runtime.store_threads import StoreThreads

T = TypeVar("T")

CANCEL_PATIENCE = 5.0
"""Seconds that `cancel` waits for a segment to end; it is cancelled in the store already."""
ABORT_PATIENCE = 5.0
"""Seconds that the store gets, past the grace, to take in what was broken off."""

_log = logging.getLogger(__name__)


class Opened:
    """What exists only while a runtime is open, on one event loop."""

    def __init__(self, threads: StoreThreads, heartbeat: Heartbeat) -> None:
        self.event_loop = asyncio.get_running_loop()
        self.process = os.getpid()
        self.threads = threads
        self.heartbeat = heartbeat
        self.closing = asyncio.Event()
        self.woken = asyncio.Event()  # a run may be due
        self._watchers: dict[UUID, set[asyncio.Event]] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._segments: dict[asyncio.Task[object], tuple[UUID, Segment]] = {}
        self._patient: dict[asyncio.Task[object], tuple[UUID, asyncio.Event]] = {}
        self._unwanted: set[asyncio.Task[object]] = set()

    def spawn(self, work: Coroutine[object, object, T]) -> "asyncio.Task[T]":
        """Run something that belongs to the runtime. Closing waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def spawn_unwatched(self, work: Coroutine[object, object, object]) -> None:
        """Run something that nobody waits for: its failure is logged."""
        self.spawn(work).add_done_callback(_log_failure)

    def _ended(self, task: "asyncio.Task[object]") -> None:
        self._tasks.discard(task)
        self._unwanted.discard(task)

    @contextlib.contextmanager
    def executing(self, segment: Segment, run_id: UUID) -> Generator[None, None, None]:
        """Know the segment that the current task executes, so that it can be asked to stop."""
        task = asyncio.current_task()
        assert task is not None
        self._segments[task] = (run_id, segment)
        if self.closing.is_set() or task in self._unwanted:
            segment.stop(Stop.HAND_BACK)
        try:
            yield
        finally:
            del self._segments[task]

    @contextlib.contextmanager
    def patient(self, run_id: UUID) -> Generator[asyncio.Event, None, None]:
        """Let the current task wait between two segments of a run.

        The event is set once it is to wait no longer: the runtime closes, the run is cancelled here, or its caller has
        gone.
        """
        task = asyncio.current_task()
        assert task is not None
        enough = asyncio.Event()
        self._patient[task] = (run_id, enough)
        if self.closing.is_set() or task in self._unwanted:
            enough.set()
        try:
            yield enough
        finally:
            del self._patient[task]

    def hand_back(self, task: "asyncio.Task[object]") -> None:
        """Let an execution whose caller has gone finish its step, and hand its run back."""
        self._unwanted.add(task)
        task.add_done_callback(_log_failure)
        if task in self._segments:
            self._segments[task][1].stop(Stop.HAND_BACK)
        if task in self._patient:
            self._patient[task][1].set()

    async def cancel(self, run_id: UUID) -> None:
        """Tell the segment that executes a run here that it is cancelled, and wait for it unless it is in a write.

        Whoever waits here for the run to be due again waits no longer.
        """
        for waited_for, enough in self._patient.values():
            if waited_for == run_id:
                enough.set()
        for task, (executed, segment) in list(self._segments.items()):
            if executed == run_id:
                segment.stop(Stop.CANCEL)
                if not segment.writing and task is not asyncio.current_task():
                    await asyncio.wait({task}, timeout=CANCEL_PATIENCE)  # a model may not obey at once

    @contextlib.contextmanager
    def watched(self, run_id: UUID) -> Generator[asyncio.Event, None, None]:
        """Give who waits for steps of a run an event that is set when some may have been stored here."""
        woken = asyncio.Event()
        watchers = self._watchers.setdefault(run_id, set())
        watchers.add(woken)
        try:
            yield woken
        finally:
            watchers.discard(woken)
            if not watchers:
                del self._watchers[run_id]

    def stepped(self, run_id: UUID) -> None:
        """Wake who watches a run: steps of it may have been stored, or it may have ended."""
        for woken in self._watchers.get(run_id, ()):
            woken.set()

    async def close(self, grace: float) -> None:
        """Finish the steps in flight and hand their runs back; after the grace, break off what still runs."""
        for run_id in self._watchers:
            self.stepped(run_id)
        self.closing.set()
        self.woken.set()
        for _, enough in self._patient.values():
            enough.set()
        for why in (Stop.HAND_BACK, Stop.ABORT):
            for _, segment in list(self._segments.values()):
                segment.stop(why)
            if self._tasks:
                patience = grace if why is Stop.HAND_BACK else max(grace, ABORT_PATIENCE)
                await asyncio.wait(set(self._tasks), timeout=patience)
        for task in list(self._tasks):
            _log.error("Something of the runtime did not end in time", extra={"action": "not_ended"})
            task.cancel()


async def comes_within(seconds: float, event: asyncio.Event) -> bool:
    """Wait for an event for so long and no longer, and say whether it came.

    Not with `asyncio.wait_for`: on Python 3.11 it loses a cancellation that meets the event.
    """
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _log_failure(task: "asyncio.Task[object]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("An execution that nobody waited for failed", exc_info=error, extra={"action": "execution_failed"})
