"""For how long a runtime keeps what: answers, content and traces, provenance (P23)."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from byline.errors import ConfigurationError
from byline.runtime.store_threads import StoreThreads
from byline.store.protocol import Purged, RunStore, StoredRun

BATCH: Final = 100
"""How many runs one transaction of a purge takes."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What is deleted, and when.

    Attributes:
        store: the store.
        threads: its threads.
        output_ttl: seconds that an answer is kept, or None.
    """

    store: RunStore
    threads: StoreThreads
    output_ttl: float | None

    async def purge(
        self,
        older_than: timedelta,
        provenance_older_than: timedelta | None,
        progress: Callable[[Purged], None] | None,
    ) -> Purged:
        """Delete in batches until nothing is left that is so old."""
        age, longer = _age("older_than", older_than), None
        if provenance_older_than is not None:
            longer = _age("provenance_older_than", provenance_older_than)
            if longer < age:
                raise ConfigurationError(
                    "provenance is kept at least as long as content: provenance_older_than is more"
                )
        done = await self._until_done(self.store.purge_outputs, self.output_ttl, Purged(), progress)
        done = await self._until_done(self.store.purge, age, done, progress)
        return await self._until_done(self.store.purge_provenance, longer, done, progress)

    async def drop_answers(self) -> None:
        """Delete a batch of the answers that are too old."""
        if self.output_ttl is not None:
            await self.threads(self.store.purge_outputs, BATCH, older_than=self.output_ttl)

    async def _until_done(
        self,
        batch: Callable[..., Purged],
        age: float | None,
        done: Purged,
        progress: Callable[[Purged], None] | None,
    ) -> Purged:
        while age is not None:
            began = time.monotonic()
            purged = await self.threads(batch, BATCH, older_than=age)
            took = time.monotonic() - began
            done += purged
            if progress is not None and purged != Purged():
                progress(done)
            if purged.outputs + purged.runs + purged.forgotten < BATCH:
                break
            await asyncio.sleep(took)  # who waits for SQLite's one lock only looks now and then whether it is free
        return done


def is_answer_too_old(stored: StoredRun, output_ttl: float | None) -> bool:
    """Whether an answer is to be hidden: it is, from the moment at which it is to be deleted."""
    if output_ttl is None or stored.output is None or stored.read_at is None:
        return False
    return stored.read_at - stored.updated_at >= timedelta(seconds=output_ttl)


def _age(name: str, value: object) -> float:
    if not isinstance(value, timedelta) or value < timedelta(0):
        raise ConfigurationError(f"{name} is a timedelta, such as timedelta(days=30)")
    return value.total_seconds()
