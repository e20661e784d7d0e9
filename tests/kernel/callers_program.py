"""A program whose caller is interrupted in the middle of a write: `python -m tests.kernel.callers_program FOLDER sync`.

It says on its output how far it has come, a line each; the write ends when the file `go` is there.
"""

import asyncio
import sys
import time
from pathlib import Path

from byline import AgentRuntime, Decision, ToolContext, ToolEffect, ToolResult
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import waiting
from tests.kernel.writers import TURNS, writer, written

PATIENCE = 20.0


def say(word: str) -> None:
    print(word, flush=True)


def make(folder: Path) -> AgentRuntime:
    host = Host(folder / "host.db")

    def end(context: ToolContext) -> ToolResult:
        say("writing")
        until = time.monotonic() + PATIENCE
        while not (folder / "go").exists() and time.monotonic() < until:
            time.sleep(0.01)
        return written(context)

    return host.runtime(TURNS, tools=[writer(host, ToolEffect.NON_IDEMPOTENT_WRITE, end)])


def through_the_mirror(runtime: AgentRuntime) -> None:
    with runtime.sync as mirror:
        run = mirror.run("editor", "Please do.", actor=ALICE)
        try:
            mirror.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        except KeyboardInterrupt:
            say("interrupted")
            raise


async def on_a_loop(runtime: AgentRuntime) -> None:
    async with runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        try:
            await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        except asyncio.CancelledError:
            say("interrupted")
            raise


if __name__ == "__main__":
    try:
        if sys.argv[2] == "sync":
            through_the_mirror(make(Path(sys.argv[1])))
        else:
            asyncio.run(on_a_loop(make(Path(sys.argv[1]))))
    except KeyboardInterrupt:
        say("ended")
