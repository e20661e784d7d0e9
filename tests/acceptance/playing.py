"""A demo as people meet it: in a process of its own, on a terminal or without one."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# Not only where a line begins: an answer that comes before its question is echoed first, and the question ends no line.
ANNOUNCED = re.compile(rf"announced run=({UUID}) record=(\S+) kind=(created|updated)\r?$", re.MULTILINE)
PATIENCE = 40.0  # seconds; what is waited for is an event, and this only ends a test that has failed


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM", "COLUMNS")}
    return {**kept, "TERM": "xterm", **more}


def play(module: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def announced(output: str) -> list[tuple[str, str]]:
    """Record and kind of every announced line, all of one run."""
    lines = ANNOUNCED.findall(output)
    assert len({run for run, _, _ in lines}) <= 1
    return [(record, kind) for _, record, kind in lines]


class Talk:
    """The demo on a terminal of its own."""

    def __init__(self, module: str, *arguments: str, **variables: str) -> None:
        ours, theirs = pty.openpty()
        self.terminal = ours
        self.output = ""
        self._answered = 0
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=environment(**variables),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,  # so that a signal reaches it and its child, as Ctrl-C does
        )
        os.close(theirs)

    def expect(self, words: str) -> None:
        """Read until the words came, behind what was answered last."""
        until = time.monotonic() + PATIENCE
        while words not in self.output[self._answered :]:
            assert self._read(until), f"{words!r} did not come:\n{self.output}"
        self._answered = self.output.index(words, self._answered) + len(words)

    def answer(self, text: str) -> None:
        os.write(self.terminal, text.encode() + b"\n")

    def interrupt(self) -> None:
        """Press Ctrl-C until something is said: `input()` misses one that comes between its prompt and its read."""
        for _ in range(10):
            os.killpg(self.process.pid, signal.SIGINT)
            if select.select([self.terminal], [], [], 2)[0]:
                return

    def end(self) -> int:
        until = time.monotonic() + PATIENCE
        while self._read(until):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, until: float) -> bool:
        ready, _, _ = select.select([self.terminal], [], [], max(0, until - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self.terminal, 65_536)
        except OSError:  # so says Linux when nobody has the other end any more
            return False
        self.output += data.decode(errors="replace")
        return bool(data)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.terminal)


@contextlib.contextmanager
def talk(module: str, *arguments: str, **variables: str) -> Generator[Talk]:
    with closing(Talk(module, *arguments, **variables)) as talking:
        yield talking
