"""What a worker does: take up the runs that are due, many at once, until the runtime closes."""

import asyncio
import functools
import logging
import random
from uuid import UUID

from byline.errors import RuntimeClosed
from byline.runtime.executor import Executor
from byline.runtime.opened import comes_within

_log = logging.getLogger(__name__)

HOUSEKEEPING = 15.0
"""Seconds between two looks for approvals that have expired."""
JITTER = 0.2
"""By which part of itself a pause varies: many workers that began together do not go on asking together."""


class WorkLoop:
    """Executes what is due in the store, a number of runs at a time.

    Which runs are due is asked of the store each time, so that nothing is lost with a wake-up (P17): one only
    shortens the pause. A run that could not be executed here is left to others for a while (`RunStore.defer`), and so
    holds up none.

    Args:
        executor: executes one run.
        concurrency: how many runs at a time.
        poll: seconds between two looks for runs that nobody told of.
    """

    def __init__(self, executor: Executor, *, concurrency: int, poll: float) -> None:
        self._executor = executor
        self._concurrency = concurrency
        self._poll = poll
        self._executing: dict[UUID, asyncio.Task[str | None]] = {}

    async def until_closed(self) -> None:
        """Work until the runtime closes, which then ends what is executed."""
        here = self._executor.here
        housekeeping = asyncio.get_running_loop().time()
        while not here.closing.is_set():
            here.woken.clear()  # before the look: who queues a run during it wakes the next one
            try:
                if asyncio.get_running_loop().time() >= housekeeping:
                    await self._executor.expire()
                    housekeeping += max(HOUSEKEEPING, self._poll)
                await self._begin_what_is_due()
            except RuntimeClosed:
                return
            except Exception:  # noqa: BLE001 - what one look could not do stays in the store for the next
                _log.exception("Runs could not be looked for; trying again", extra={"action": "look_failed"})
            pause = self._poll * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret
            await comes_within(pause, here.woken)

    async def _begin_what_is_due(self) -> None:
        here = self._executor.here
        free = self._concurrency - len(self._executing)
        if free <= 0:
            return  # whichever ends first wakes the loop
        # What has just been begun is claimed in a moment, and until then is listed once more.
        due = await self._executor.due(free + len(self._executing))
        for run_id in [run_id for run_id in due if run_id not in self._executing][:free]:
            task = here.spawn(self._executor.take_up(run_id))
            self._executing[run_id] = task
            task.add_done_callback(functools.partial(self._end, run_id))

    def _end(self, run_id: UUID, task: "asyncio.Task[str | None]") -> None:
        was_full = len(self._executing) >= self._concurrency
        del self._executing[run_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            extra = {"action": "not_taken_up", "run_id": str(run_id)}
            _log.error("Run %s could not be taken up", run_id, exc_info=error, extra=extra)
        if was_full:
            self._executor.here.woken.set()
