"""A process that takes a decision and is killed as soon as its segment wants to store the first thing.

Run as `python -m tests.kernel.gate_dying` with the order on its standard input.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Never, TypedDict
from uuid import UUID

from byline import AiActorContext, Approve, Decision, Deny, Grant
from byline.store.protocol import Change, Claim
from byline.store.sql import SqlStore
from tests.host import AgentFacts, Host


class Order(TypedDict):
    """What is to be decided."""

    host: str
    run: str
    actor: str
    agent: AgentFacts
    digest: str
    for_all: list[str | None]
    verdicts: dict[str, str | None]


class DyingStore(SqlStore):
    """Lets the process die where a segment would store its first step."""

    def advance(self, claim: Claim, change: Change, *, at: int, revision: int) -> Never:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed")


def verdict_of(reason: str | None) -> Approve | Deny:
    return Approve() if reason is None else Deny(reason)


async def decide(order: Order) -> None:
    host = Host(Path(order["host"]))
    store = DyingStore(f"sqlite:///{host.path.parent / 'byline.db'}")
    decision = Decision(
        order["digest"],
        {UUID(call_id): verdict_of(reason) for call_id, reason in order["verdicts"].items()},
        verdict_of(order["for_all"][0]) if order["for_all"] else None,
    )
    actor = AiActorContext.user(order["actor"], grants=tuple(Grant))
    async with host.runtime(["Never said."], store=store, agent=order["agent"]) as runtime:
        await runtime.decide(UUID(order["run"]), decision, actor=actor)


if __name__ == "__main__":
    asked: Order = json.load(sys.stdin)
    asyncio.run(decide(asked))
