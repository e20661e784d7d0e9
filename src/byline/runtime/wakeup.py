"""How workers elsewhere hear that a run is queued."""

import asyncio
import inspect
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from typing import Protocol, runtime_checkable
from uuid import UUID

from byline.hosted import goes_on, where_raised, within
from byline.threads import DaemonThreads

TIMEOUT = 10.0
"""Seconds that one wake-up may take."""
LEAVING = 3.0
"""Seconds that a worker which ends waits for listening to end: nothing depends on it any more."""

_log = logging.getLogger(__name__)
_threads = DaemonThreads("byline-wakeup")


class Wakeup(Protocol):
    """Sends the id of a run that is queued to wherever workers listen: a broker, a channel.

    The run row is the truth (P17): a wake-up that is lost, late or doubled costs time and nothing else, since workers
    look by themselves as well.
    """

    def wake(self, run_id: UUID, /) -> Awaitable[None] | None:
        """Send it; sync or async. What it raises is logged."""
        ...


@runtime_checkable
class ListeningWakeup(Wakeup, Protocol):
    """A wake-up that a worker of the same runtime can hear."""

    def listen(self, woken: Callable[[], None], /) -> AbstractContextManager[None]:
        """Call `woken`, from any thread, at each wake-up and whenever one may have been missed, until it is left.

        It is entered and left on a thread. What it raises is logged; the worker goes on and looks by itself.
        """
        ...


@asynccontextmanager
async def heard(wakeup: Wakeup | None, woken: asyncio.Event) -> AsyncGenerator[None]:
    """Let wake-ups from elsewhere set an event of the running loop. Listening that fails or hangs costs time only."""
    if not isinstance(wakeup, ListeningWakeup):
        yield
        return
    loop = asyncio.get_running_loop()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(woken.set)

    ended = threading.Event()

    def listen() -> None:
        with wakeup.listen(wake):
            ended.wait()

    listening = asyncio.ensure_future(_logged(_threads.submit(listen)))
    try:
        yield
    finally:
        ended.set()
        await asyncio.wait({listening}, timeout=LEAVING)
        listening.cancel()


async def _logged(listening: Awaitable[None]) -> None:
    try:
        await listening
    except BaseException as error:
        if goes_on(error):
            raise
        _log.error("No wake-up is heard: %s", where_raised(error), extra={"action": "listening_failed"})


async def send(wakeup: Wakeup, run_id: UUID) -> None:
    """Send a wake-up. It may fail: then a worker finds the run a little later."""
    try:
        if inspect.iscoroutinefunction(wakeup.wake):
            await within(TIMEOUT, wakeup.wake(run_id))
        else:
            await within(TIMEOUT, _threads.submit(lambda: wakeup.wake(run_id)))
    except BaseException as error:
        if goes_on(error):
            raise
        extra = {"action": "wakeup_failed", "run_id": str(run_id)}
        _log.warning("No wake-up for run %s: %s", run_id, where_raised(error), extra=extra)
