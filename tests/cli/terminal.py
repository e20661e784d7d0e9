"""A command at a terminal: a process of its own behind a pty, read and answered as a person would."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress


class Terminal:
    """What stands on the screen so far, and a keyboard."""

    def __init__(self, process: "subprocess.Popen[bytes]", screen: int) -> None:
        self.process = process
        self.shown = ""
        self._screen = screen

    def read_until(self, text: str, *, seconds: float = 30.0) -> str:
        """Read until a text is shown, or fail with what is."""
        until = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < until, f"{text!r} was not shown: {self.shown!r}"
            if not self._read(0.2) and self.process.poll() is not None and not self._read(0.2):
                raise AssertionError(f"it ended without showing {text!r}: {self.shown!r}")
        return self.shown

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C until it is heard: a read misses one that comes between the prompt and its own beginning."""
        for _ in range(10):
            self.process.send_signal(signal.SIGINT)
            if self._read(2.0) or self.process.poll() is not None:
                return

    def end(self, *, seconds: float = 30.0) -> int:
        """Read to the end; return the exit code."""
        until = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < until, f"it did not end: {self.shown!r}"
            self._read(0.2)
        while self._read(0.1):
            pass
        return self.process.wait()

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._screen], [], [], seconds)
        data = b""
        if ready:
            with suppress(OSError):  # the other end is closed
                data = os.read(self._screen, 65_536)
        self.shown += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)


@contextmanager
def terminal(*arguments: str, **environment: str) -> Generator[Terminal]:
    """Run `byline` on a terminal of its own, 100 columns wide."""
    screen, inside = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "byline", *arguments],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"} | environment,
        start_new_session=True,
    )
    os.close(inside)
    try:
        yield Terminal(process, screen)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(screen)
