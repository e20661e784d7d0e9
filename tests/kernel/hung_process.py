"""A process with a hung listener or a hung tool, and a SIGTERM handler that closes the runtime and returns.

Run as `python -m tests.kernel.hung_process FOLDER listener|announcement|thread|loop GRACE`. It prints `ready` once
the hang has begun, and `closed` when the runtime has closed.
"""

import asyncio
import logging
import signal
import sys
import threading
from pathlib import Path

from byline import AfterAiRecordWrittenEvent, Tool, ToolContext, ToolEffect, ToolResult
from tests.host import Host, Settings
from tests.kernel.entries import start_and_approve
from tests.kernel.writers import WRITE, async_writer, writer, written


async def main(folder: Path, what: str, grace: float) -> None:
    host = Host(folder / "host.db")
    event_loop = asyncio.get_running_loop()
    ready, terminated = asyncio.Event(), asyncio.Event()
    event_loop.add_signal_handler(signal.SIGTERM, terminated.set)

    def hang_on_thread(context: ToolContext) -> ToolResult:
        event_loop.call_soon_threadsafe(ready.set)
        threading.Event().wait()
        return written(context)

    async def hang_on_loop(context: ToolContext) -> ToolResult:
        ready.set()
        await asyncio.Event().wait()
        return written(context)

    def listener(event: AfterAiRecordWrittenEvent) -> None:
        event_loop.call_soon_threadsafe(ready.set)
        threading.Event().wait()

    effect = ToolEffect.NON_IDEMPOTENT_WRITE
    tools: dict[str, Tool] = {
        "thread": writer(host, effect, hang_on_thread),
        "loop": async_writer(host, effect, hang_on_loop),
    }
    # A listener that is given up soon, so that its run has ended; or one that is still waited for.
    patience = 0.2 if what == "listener" else 3_600.0
    settings = Settings(listeners=[host.listen, listener], listener_timeout=patience, grace=grace)
    tool = tools.get(what, writer(host, effect))
    async with host.runtime([[WRITE], "Done."], tools=[tool], **settings) as runtime:
        deciding = asyncio.create_task(start_and_approve(runtime))
        await ready.wait()
        if what == "listener":
            await deciding
        print("ready", flush=True)
        await terminated.wait()
    print("closed", flush=True)
    await asyncio.wait({deciding})


if __name__ == "__main__":
    logging.disable()  # what is logged is for other tests
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
