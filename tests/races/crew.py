"""Runs a race in threads that have a runtime each, in threads that share one, and in processes."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from multiprocessing.sharedctypes import Synchronized
from typing import Protocol, TypeAlias

from tests.races.stage import Barrier, Clock, Contestant, OwnClock, Round, Site, Stage

MOST = 4
"""How many contestants a race has at most."""
PATIENCE = 50.0
"""Seconds after which processes that say nothing are given up."""

Told: TypeAlias = list[tuple[str, ...]]
"""What each contestant was told, round by round."""


class Line(Protocol):
    """A process's end of the line to whoever started it."""

    def send(self, obj: object, /) -> None: ...

    def recv(self) -> object: ...


class Ground(Protocol):
    """Where a race is run."""

    @property
    def clock(self) -> Clock: ...

    def race(self, site: Site, rounds: Sequence[Round], contestants: Sequence[Contestant]) -> Told: ...


def _rounds_of(stage: Stage, rounds: Sequence[Round], contestant: Contestant) -> list[str]:
    words: list[str] = []
    try:
        for this in rounds:
            words.append(contestant(stage, this))
            stage.meet()  # the next round begins when this one is over for everybody
        return words
    except BaseException:
        stage.barrier.abort()  # nobody is to wait for one who failed
        raise


def _compete(
    site: Site, rounds: Sequence[Round], contestant: Contestant, barrier: Barrier, clock: Clock, place: int
) -> list[str]:
    """Run one contestant's rounds, on a runtime of its own."""
    opened: list[Stage] = []
    runtime = site.runtime(clock, lambda: opened[0].in_write())
    opened.append(Stage(site, runtime.sync, barrier, clock, place))
    with runtime.sync:
        return _rounds_of(opened[0], rounds, contestant)


class Threads:
    """Threads of this process, each with a runtime, and so an event loop and a store, of its own."""

    def __init__(self, *, shared: bool = False) -> None:
        self.clock: Clock = OwnClock()
        self._shared = shared

    def race(self, site: Site, rounds: Sequence[Round], contestants: Sequence[Contestant]) -> Told:
        barrier = threading.Barrier(len(contestants))
        with ExitStack() as stack:
            one = stack.enter_context(site.runtime(self.clock).sync) if self._shared else None
            pool = stack.enter_context(ThreadPoolExecutor(len(contestants)))
            running = [
                pool.submit(_rounds_of, Stage(site, one, barrier, self.clock, place), rounds, contestant)
                if one is not None
                else pool.submit(_compete, site, rounds, contestant, barrier, self.clock, place)
                for place, contestant in enumerate(contestants)
            ]
            return list(zip(*(each.result() for each in running), strict=True))


@dataclass(frozen=True, slots=True)
class _Heat:
    """What a process is asked to run."""

    site: Site
    rounds: Sequence[Round]
    contestant: Contestant
    contestants: int
    place: int


class Crew:
    """Processes that are started once and race as often as they are asked to."""

    def __init__(self) -> None:
        spawn = get_context("spawn")
        start = OwnClock().value
        clock: Synchronized[float] = spawn.Value("d", start)
        self._barriers = {size: spawn.Barrier(size) for size in range(2, MOST + 1)}
        self.clock: Clock = clock
        ends = [spawn.Pipe() for _ in range(MOST)]
        self._lines = [ours for ours, _ in ends]
        self._processes: list[SpawnProcess] = []
        for _, theirs in ends:
            process = spawn.Process(target=_work, args=(theirs, self._barriers, clock), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)

    def race(self, site: Site, rounds: Sequence[Round], contestants: Sequence[Contestant]) -> Told:
        for place, contestant in enumerate(contestants):
            self._lines[place].send(_Heat(site, rounds, contestant, len(contestants), place))
        answers: list[list[str]] = []
        failures: list[str] = []
        for line in self._lines[: len(contestants)]:
            answer: list[str] | str = line.recv() if line.poll(PATIENCE) else "a process did not come to its end"
            if isinstance(answer, str):
                failures.append(answer)
            else:
                answers.append(answer)
        if failures:
            self._barriers[len(contestants)].reset()
        assert not failures, failures
        return list(zip(*answers, strict=True))

    def close(self) -> None:
        """Send everybody home."""
        for line in self._lines:
            line.close()
        for process in self._processes:
            process.join(5)
            if process.is_alive():  # it waits for somebody who failed
                process.kill()
                process.join()
            process.close()


def _work(line: Line, barriers: dict[int, Barrier], clock: Clock) -> None:
    """Race whenever asked, until nobody is left to ask."""
    while True:
        try:
            heat = line.recv()
        except EOFError:
            return
        assert isinstance(heat, _Heat)
        try:
            barrier = barriers[heat.contestants]
            line.send(_compete(heat.site, heat.rounds, heat.contestant, barrier, clock, heat.place))
        except Exception as error:
            line.send(f"{type(error).__name__}: {error}")
