"""Watching a run: its steps as they come, read from the store. A wake-up only lets it be asked earlier."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator
from typing import Final
from uuid import UUID

from byline.errors import RuntimeClosed
from byline.runs.steps import Step
from byline.runtime.opened import Opened, comes_within
from byline.runtime.work import JITTER
from byline.store.protocol import RunStore, Trace

PAGE: Final = 100
"""How many steps a watcher reads, and so holds, at a time."""


class Watch(AsyncIterator[Step]):
    """The steps of one run, each once and in order, until it has ended.

    Between two steps it holds a position, and what is left of one page; nothing has to be closed. It is no generator,
    so that a consumer that gives up waiting for one step loses none: the next one asked for is the same.

    Args:
        here: the open runtime.
        store: its store.
        run_id: the run.
        after: the position behind which it begins.
        poll: seconds between two looks for steps that nobody told of.
    """

    def __init__(self, here: Opened, store: RunStore, run_id: UUID, *, after: int, poll: float) -> None:
        self._here = here
        self._store = store
        self._run_id = run_id
        self._position = after
        self._poll = poll
        self._page: deque[Step] = deque()
        self._ended = False
        self._turn = asyncio.Lock()  # of several that ask at once, each gets another step

    async def __anext__(self) -> Step:
        """Wait for the next step."""
        async with self._turn:
            if not self._page and not self._ended:
                await self._wait_for_page()
            if not self._page:
                raise StopAsyncIteration
            return self._page.popleft()

    async def _wait_for_page(self) -> None:
        """Read on until there are steps, or none will come."""
        with self._here.watched(self._run_id) as woken:
            while True:
                woken.clear()  # before the look: what is stored during it wakes the next one
                trace = await self._look()
                if trace.steps:
                    self._position = trace.steps[-1].position
                    self._page.extend(trace.steps)
                # Whether it had ended was read before its steps: so none that ended it is behind a page that is short.
                self._ended = trace.ended and len(trace.steps) < PAGE
                if trace.steps or self._ended:
                    return
                if self._here.closing.is_set():
                    raise self._broken_off()
                pause = self._poll * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret
                await comes_within(pause, woken)

    async def _look(self) -> Trace:
        try:
            return await self._here.threads(self._store.trace, self._run_id, after=self._position, limit=PAGE)
        except RuntimeClosed:
            raise self._broken_off() from None

    def _broken_off(self) -> RuntimeClosed:
        return RuntimeClosed(
            f"the runtime was closed while run {self._run_id} was watched: it was not seen to end, and "
            f"watch(after={self._position}) goes on"
        )
