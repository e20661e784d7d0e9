"""The entries on which a promise is kept: a released write is executed directly, from a queue, in a fresh runtime, or
after its segment has died.

What a dead segment leaves in the store is made with the store's own methods: its claim, and its fence if it had come
as far as that. The clock is the test's, so that no test waits for a lease.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, Unpack, get_args
from uuid import UUID

from byline import AgentRuntime, ChatModel, Decision, Fence, Run, RunStatus, Tool, UncertainCall
from byline.models.scripted import Turn
from byline.store.protocol import SetFence
from byline.store.sql import SqlStore
from tests.host import ALICE, BOB, AgentFacts, Host, Settings

Entry = Literal["inline", "queued", "resumed", "taken_over"]
ENTRIES: tuple[Entry, ...] = get_args(Entry)

LEASE = 60.0
"""Seconds; the runtime's default."""


@dataclass(slots=True)
class Clock:
    """Seconds since the epoch, moved by the test."""

    now: float = field(default=1_800_000_000.0)

    def __call__(self) -> float:
        return self.now

    def let_leases_expire(self) -> None:
        self.now += LEASE + 1


def store_of(host: Host, clock: Clock | None = None) -> SqlStore:
    """The host's store, opened anew: each process has one of its own."""
    return SqlStore(f"sqlite:///{host.path.parent / 'byline.db'}", clock=clock)


def waiting(run: Run) -> str:
    """The digest of the waiting turn."""
    assert run.status is RunStatus.AWAITING_APPROVAL, (run.status, run.reason, run.problem)
    assert run.pending is not None
    return run.pending.digest


def unknown(run: Run) -> UncertainCall:
    """The uncertain call, and that the run waits for a word on it."""
    assert run.status is RunStatus.UNCERTAIN, (run.status, run.reason, run.output)
    assert run.uncertain is not None
    return run.uncertain


async def start_and_approve(runtime: AgentRuntime) -> Run:
    """Start a run that stops at a write, approve it, and return how it went on."""
    run = await runtime.run("editor", "Please do.", actor=ALICE)
    return await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)


async def left_queued(
    host: Host,
    model: ChatModel | Sequence[Turn],
    clock: Clock,
    *,
    tools: Sequence[Tool] | None = None,
    agent: AgentFacts | None = None,
) -> UUID:
    """An approved run that nobody has taken up yet, in a store that nobody has open."""
    store = store_of(host, clock)
    async with host.runtime(model, store=store, tools=tools, agent=agent, execution="queued") as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        run = await runtime.execute(run.run_id)
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert run.status is RunStatus.QUEUED
        return run.run_id


def die_after_claim(host: Host, run_id: UUID, clock: Clock) -> None:
    """Leave what a process leaves that was killed between its claim and the fence."""
    store = store_of(host, clock)
    store.open()
    try:
        assert store.claim(run_id, lease=LEASE, takeovers=3) is not None
    finally:
        store.close()
    clock.let_leases_expire()


def die_in_write(host: Host, run_id: UUID, clock: Clock) -> Fence:
    """Leave what a process leaves that was killed between the fence and the stored result of its first write."""
    store = store_of(host, clock)
    store.open()
    try:
        claimed = store.claim(run_id, lease=LEASE, takeovers=3)
        assert claimed is not None
        assert claimed.run.turn is not None
        call = claimed.run.turn.calls[0]
        fence = Fence(call.id, call.tool, call.effect, 1)
        store.advance(claimed.claim, SetFence(fence), at=len(claimed.messages), revision=0)
    finally:
        store.close()
    clock.let_leases_expire()
    return fence


@asynccontextmanager
async def executed(
    host: Host,
    entry: Entry,
    model: ChatModel | Sequence[Turn],
    *,
    tools: Sequence[Tool] | None = None,
    agent: AgentFacts | None = None,
    **settings: Unpack[Settings],
) -> AsyncGenerator[tuple[AgentRuntime, Run], None]:
    """A run whose first turn was approved and then executed on this entry; its runtime is still open."""
    if entry == "inline":
        async with host.runtime(model, tools=tools, agent=agent, **settings) as runtime:
            yield runtime, await start_and_approve(runtime)
    elif entry == "resumed":
        async with host.runtime(model, tools=tools, agent=agent) as runtime:
            run = await runtime.run("editor", "Please do.", actor=ALICE)
        async with host.runtime(model, tools=tools, agent=agent, **settings) as runtime:
            yield runtime, await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
    else:
        clock = Clock()
        run_id = await left_queued(host, model, clock, tools=tools, agent=agent)
        if entry == "taken_over":
            die_after_claim(host, run_id, clock)
        store = store_of(host, clock)
        settings["execution"] = "queued"
        async with host.runtime(model, store=store, tools=tools, agent=agent, **settings) as runtime:
            yield runtime, await runtime.execute(run_id)


async def until(holds: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Wait for what a thread or another process brings about."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - a thread sets no asyncio.Event
            await asyncio.sleep(0.005)


async def until_left(runtime: AgentRuntime, run_id: UUID, status: RunStatus) -> Run:
    """Wait until a run has left a status."""
    async with asyncio.timeout(20.0):
        while (run := await runtime.get_run(run_id)).status is status:  # noqa: ASYNC110 - another task moves it
            await asyncio.sleep(0.005)
    return run
