"""The async runtime's way to the sync store: threads of its own."""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from byline.errors import RuntimeClosed
from byline.store.protocol import RunStore

P = ParamSpec("P")
T = TypeVar("T")


class StoreThreads:
    """Runs the store's methods on threads that nothing else uses.

    A job is withdrawn before it begins or awaited to its end, whatever happens to the caller: so a
    cancelled caller never leaves a transaction behind that nobody waits for.
    """

    def __init__(self, store: RunStore) -> None:
        self._threads = ThreadPoolExecutor(max(1, store.concurrency), thread_name_prefix="byline-store")

    async def __call__(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one method of the store."""
        try:
            job = self._threads.submit(functools.partial(method, *args, **kwargs))
        except RuntimeError:  # the executor takes no more jobs
            raise RuntimeClosed("the runtime was closed meanwhile") from None
        waiter = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(waiter)
        except asyncio.CancelledError:
            if not job.cancel():
                while not waiter.done():
                    try:
                        await asyncio.wait({waiter})
                    except asyncio.CancelledError:
                        continue  # it is raised below, once the job has ended
                if not waiter.cancelled():
                    waiter.exception()
            raise

    def close(self) -> None:
        """End the threads once their jobs have ended."""
        self._threads.shutdown(wait=True)
