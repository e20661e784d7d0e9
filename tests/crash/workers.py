"""Real processes with real signals: started by a fork server, and held at points over a pipe."""

import multiprocessing
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.crash.program import Order, work
from tests.crash.site import Site

PATIENCE = 20.0
"""Seconds that a process may take to reach a point, or to end."""

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pytest", "tests.crash.warm", "tests.newsroom.warm"])


class Worker:
    """A process that does what its order says."""

    def __init__(self, order: Order, site: Site, log: Path) -> None:
        self._log = log
        self._held: set[str] = set()
        self._wire, far_end = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=work, args=(order, type(site), site.path, far_end, log), daemon=True)
        self._process.start()
        far_end.close()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    def at(self, point: str) -> Self:
        """Wait until it is held at a point."""
        while point not in self._held:
            try:
                assert self._wire.poll(PATIENCE), f"{point!r} was not reached: {self.said()}"
                self._held.add(self._wire.recv())
            except EOFError:
                raise AssertionError(f"it ended before {point!r}: {self.said()}") from None
        return self

    def go_on(self, point: str) -> Self:
        """Let it go on from a point, now or when it gets there."""
        with suppress(ConnectionError):  # it has ended
            self._wire.send(point)
        return self

    def reached(self) -> list[str]:
        """The points at which it has come to be held since this was last asked."""
        reached: list[str] = []
        with suppress(EOFError, ConnectionError):  # it has ended
            while self._wire.poll():
                reached.append(self._wire.recv())
        self._held.update(reached)
        return reached

    @property
    def waitables(self) -> list[int]:
        """What is ready when it has reached a point, or ended: for `multiprocessing.connection.wait`."""
        return [self._wire.fileno(), self._process.sentinel]

    @property
    def exit_code(self) -> int | None:
        """Its exit code, or the negative of the signal that ended it; None while it lives."""
        return self._process.exitcode

    def signal(self, number: signal.Signals) -> Self:
        """Send it a signal. One that has ended hears it no more."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
        return self

    def kill(self) -> None:
        """Kill it with SIGKILL, and see that it is dead."""
        self.signal(signal.SIGKILL)
        assert self.ended() == -signal.SIGKILL, self.said()

    def ended(self) -> int | None:
        """Wait for its end; its exit code, or the negative of the signal that ended it."""
        self._process.join(PATIENCE)
        return self._process.exitcode

    def said(self) -> str:
        return self._log.read_text("utf-8", "replace") if self._log.exists() else "nothing"

    def clear_away(self) -> None:
        """End it whatever it does: a stopped process heeds nothing but SIGKILL."""
        if self._process.exitcode is None:
            self._process.kill()
        self._process.join(PATIENCE)
        self._process.close()
        self._wire.close()


class Workers:
    """The processes of one test, over one site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._started: list[Worker] = []

    def start(self, order: Order) -> Worker:
        log = self._site.path.parent / f"worker-{len(self._started)}.log"
        self._started.append(Worker(order, self._site, log))
        return self._started[-1]

    def clear_away(self) -> None:
        for worker in self._started:
            worker.clear_away()
