"""The metrics that are read from the store: how many runs stand where, and for how long."""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Final, TypeAlias

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from byline.telemetry.failing import Contained

Standing: TypeAlias = tuple[str, int, float]
"""A status, how many runs stand in it, and how many seconds ago the one that has not moved for longest did."""

PATIENCE: Final = 2.0
"""Seconds that the reader of metrics waits for the store's answer; then that collection goes without it."""


class Census:
    """The gauges of the runs that have not ended."""

    def __init__(self, meter: Meter, contained: Contained) -> None:
        self._contained = contained
        self._watched: list[_Store] = []
        meter.create_observable_gauge(
            "byline.runs", [self._count], "{run}", "Runs that have not ended, by where they stand."
        )
        meter.create_observable_gauge(
            "byline.runs.oldest", [self._age], "s", "For how long the run that has not moved for longest stands there."
        )

    def watch(self, count: Callable[[], Sequence[Standing]]) -> None:
        """Ask `count`, on a thread of its own, whenever metrics are collected. Of several the last one is asked."""
        self._watched.append(_Store(count))

    def unwatch(self, count: Callable[[], Sequence[Standing]]) -> None:
        """Ask it no more."""
        self._watched = [store for store in self._watched if store.count != count]

    def _count(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(runs, {"byline.run.status": str(status)}) for status, runs, _ in self._ask()]

    def _age(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(age, {"byline.run.status": str(status)}) for status, runs, age in self._ask() if runs]

    def _ask(self) -> Sequence[Standing]:
        with self._contained:
            for store in reversed(self._watched):
                if store.process == os.getpid():  # a forked child has nothing to do with its parent's connections
                    return store.ask()
        return ()


class _Store:
    """A store that is asked one question at a time, however long it takes."""

    def __init__(self, count: Callable[[], Sequence[Standing]]) -> None:
        self.process = os.getpid()
        self.count = count
        self._answer: Future[Sequence[Standing]] | None = None

    def ask(self) -> Sequence[Standing]:
        """Ask, and wait for a while.

        Raises:
            BaseException: what the store raises.
            TimeoutError: it does not answer.
        """
        if self._answer is not None and not self._answer.done():
            return ()  # one collection has waited for this answer already
        self._answer = Future()
        threading.Thread(target=self._find_out, args=(self._answer,), name="byline-census", daemon=True).start()
        return self._answer.result(PATIENCE)

    def _find_out(self, answer: "Future[Sequence[Standing]]") -> None:
        try:
            answer.set_result(self.count())
        except BaseException as error:  # noqa: BLE001 - who asked is told, if they still wait
            answer.set_exception(error)
