"""A fresh process: it opens the store, approves what waits, goes on, and says how it went."""

import asyncio
import json
import sys

from byline import Decision
from tests.providers.stage import BOB, runtime


async def main(store: str, model: str, run_id: str) -> None:
    async with runtime(store, model) as opened:
        run = await opened.get_run(run_id)
        assert run.pending is not None
        run = await opened.decide(run_id, Decision.approve(run.pending.digest), actor=BOB)
        print(json.dumps({"status": run.status, "output": run.output}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
