"""Threads that nothing waits for: the host's own sync code runs on them."""

import asyncio
import itertools
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Final, TypeVar

T = TypeVar("T")

_Job = Callable[[], None]

IDLE_SECONDS: Final = 10.0
"""How long a thread without work is kept for the next job."""


class DaemonThreads:
    """An elastic pool of daemon threads that hold up no exit.

    An idle thread is used again, else a new one is started; there is no upper bound, so that a job that
    hangs takes no thread from another. (`ThreadPoolExecutor` has a bound, and the interpreter joins its
    threads before it ends.) One pool serves event loops in any thread, and a forked child.

    Args:
        name: what the threads are called, followed by a number.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = itertools.count(1)
        self._crew = _Crew()

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run the function on a thread, in a copy of the caller's context.

        It runs to its end whatever happens to the future. When nobody waits any more, since the future was
        cancelled or the loop closed, what it returns or raises is dropped in silence.

        Returns:
            A future of the running loop. It takes any exception, also `SystemExit` and `KeyboardInterrupt`:
            await it where those may be raised, or look at `future.exception()`. A `CancelledError` of the
            function is an exception like any other (`future.cancelled()` is False). `StopIteration`, which no
            future can hold, arrives as the cause of a `RuntimeError`.

        Raises:
            RuntimeError: there is no running event loop, or the system starts no more threads.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = partial(_run, function, copy_context(), loop, future)
        crew = self._crew
        if crew.process != os.getpid():  # a fork copies the bookkeeping, but no thread
            crew = self._crew = _Crew()
        if not crew.engage_idle():
            name = f"{self._name}-{next(self._numbers)}"
            threading.Thread(target=_work, args=(crew,), name=name, daemon=True).start()
        crew.jobs.put(job)
        return future


class _Crew:
    """The idle threads of one process, and the jobs that are on their way to a thread.

    `idle` holds one token for each thread that waits and has been promised no job. Who takes one promises a
    job, or is a thread that has waited long enough and ends. A deque's `append` and `pop` are atomic, so
    there is no lock that a fork could catch locked.
    """

    __slots__ = ("idle", "jobs", "process")

    def __init__(self) -> None:
        self.process = os.getpid()
        self.idle: deque[None] = deque()
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()

    def engage_idle(self) -> bool:
        """Promise a job to an idle thread; False if there is none."""
        try:
            self.idle.pop()
        except IndexError:
            return False
        return True

    def next_job(self) -> _Job | None:
        """Wait for a job that is not promised yet; None means that the thread may end."""
        self.idle.append(None)
        return self.promised_job()

    def promised_job(self) -> _Job | None:
        """Wait for a job. Another thread may take it first: then this one stands in for that one's token."""
        with suppress(queue.Empty):
            return self.jobs.get(timeout=IDLE_SECONDS)
        return None if self.engage_idle() else self.jobs.get()  # no token is left: a job is promised


def _work(crew: _Crew) -> None:
    job = crew.promised_job()
    while job is not None:
        job()
        job = None  # an idle thread keeps nothing of its last job alive
        job = crew.next_job()


def _run(
    function: Callable[[], T], context: Context, loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]
) -> None:
    try:
        settle = partial(future.set_result, context.run(function))
    except StopIteration as error:
        wrapped = RuntimeError("the function raised StopIteration")
        wrapped.__cause__ = error
        settle = partial(future.set_exception, wrapped)
        del wrapped
    except BaseException as error:  # noqa: BLE001 - whoever waits is told; nobody looks at this thread
        settle = partial(future.set_exception, error)
    with suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(_settle, future, settle)
    del future, settle  # a traceback leads to this frame, which must not lead back to the exception


def _settle(future: asyncio.Future[T], settle: Callable[[], None]) -> None:
    if not future.done():
        settle()
