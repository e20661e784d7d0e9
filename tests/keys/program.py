"""What the processes of these tests do: a worker, somebody who decides, and an administrator who can be killed."""

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal
from uuid import UUID

from sqlalchemy import event

from byline import Decision, RunStatus
from byline.models.scripted import Turn
from byline.store.sql import SqlStore
from byline.testing import call
from tests.host import ALICE, BOB, Host

Step = Literal["add", "activate", "reseal", "drop"]
SCRIPT: list[Turn] = [[call("set_description", page_id=42, description="Who we are.")], "Done."]
BATCH = 4
FILE_EVENTS = frozenset({"open", "os.rename", "os.remove", "os.link"})

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pytest", "tests.keys.program"])


def store_of(folder: Path) -> SqlStore:
    """The store of a site; whoever opens it takes the keys from the file beside it."""
    return SqlStore(f"sqlite:///{folder}/byline.db")


class Administrator:
    """A process that administers keys, and may be killed in the middle of it."""

    def __init__(self, folder: Path, step: Step, key_id: str = "", *, die_at: int | None = None) -> None:
        self.near, far = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_administer, args=(folder, step, key_id, die_at, far))
        self.process.start()
        far.close()

    def ended(self) -> int:
        """Wait for its end; its exit code, or the negative of the signal that ended it."""
        self.process.join(60)
        code = self.process.exitcode
        assert code is not None
        return code

    def moments(self) -> int:
        """How many moments it had at which it could have been killed."""
        assert self.ended() == 0
        moments: object = self.near.recv()
        assert isinstance(moments, int)
        return moments


class _Moments:
    """Counts the moments of a process: each statement, each COMMIT, each touch of a key file. Dies at one of them."""

    def __init__(self, store: SqlStore, die_at: int | None) -> None:
        self.passed = 0
        self._die_at = die_at
        event.listen(store.engine, "before_cursor_execute", self._execute)
        event.listen(store.engine, "commit", self._commit)
        sys.addaudithook(self._touch)

    def _execute(self, *_: object) -> None:
        self.come()

    def _commit(self, _: object) -> None:
        self.come()

    def _touch(self, name: str, arguments: tuple[object, ...]) -> None:
        if name in FILE_EVENTS and ".key" in str(arguments[0]):
            self.come()

    def come(self) -> None:
        self.passed += 1
        if self.passed == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)


def _administer(folder: Path, step: Step, key_id: str, die_at: int | None, wire: Connection) -> None:
    store = store_of(folder)
    store.open()
    moments = _Moments(store, die_at)
    steps: dict[Step, Callable[[], object]] = {
        "add": store.keys.add,
        "activate": lambda: store.keys.activate(key_id),
        "reseal": lambda: store.keys.reseal(batch=BATCH),
        "drop": lambda: store.keys.drop(key_id),
    }
    steps[step]()
    passed = moments.passed
    store.close()
    wire.send(passed)


def main(role: str, folder: Path) -> None:
    """Be a process of its own, told what to do over its standard input."""
    host = Host(folder / "host.db")
    asyncio.run(_serve(host) if role == "worker" else _decide(host))


async def _serve(host: Host) -> None:
    """Recover until the input ends, and then until nothing is left to execute."""
    async with host.runtime(SCRIPT, execution="queued", recover=True, lease=30, beat=0.1) as runtime:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        while await runtime.list_runs(status=RunStatus.QUEUED) or await runtime.list_runs(status=RunStatus.RUNNING):
            await runtime.recover()


async def _decide(host: Host) -> None:
    """Approve the runs that are named, a line each; after every tenth, ask for another run, which has to be sealed."""
    async with host.runtime(SCRIPT, execution="queued") as runtime:
        print("ready", flush=True)
        for number, line in enumerate(sys.stdin, 1):
            run = await runtime.get_run(UUID(line.strip()))
            assert run.pending is not None, run.problem
            await runtime.decide(run.run_id, Decision.approve(run.pending.digest), actor=BOB)
            if number % 10 == 0:
                await runtime.enqueue("editor", "And page 42 again.", actor=ALICE)
            print("decided", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
