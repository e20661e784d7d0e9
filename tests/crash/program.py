"""What a process of these tests does: it opens a runtime over the site and asks one thing of it."""

import asyncio
import os
import signal
import time
from collections.abc import Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal
from uuid import UUID

from byline import (
    AfterAiRecordWrittenEvent,
    AgentRuntime,
    Decision,
    ListenerDispatcher,
    ModelCall,
    Reconciliation,
    RuntimeClosed,
)
from tests.crash.points import PointedStore, Points
from tests.crash.site import AN_HOUR, Site
from tests.host import ALICE, BOB, Settings


@dataclass(frozen=True)
class Order:
    """What a process is to do.

    Attributes:
        do: what it asks of its runtime; "serve": nothing, the runtime itself recovers while it is open; "attend": what
            the site's people ask.
        turns: the calls that its model makes, turn by turn.
        run_id: the run it is about.
        verdict: what it says of an uncertain call.
        watched: the points at which it waits for the test.
        hours: how far its store's clock is ahead, so that every lease of before has run out; None: the database's own.
        off_by: seconds by which the clock of its Python is wrong.
        heartless: its heartbeats do not reach the database.
        serves: it closes the runtime at the first SIGTERM, and ends at the second one, as a worker does.
        at_once: how many runs it executes at a time, if it works.
    """

    do: Literal["run", "decide", "execute", "recover", "reconcile", "serve", "work", "attend"]
    turns: tuple[Sequence[ModelCall], ...]
    _: KW_ONLY
    run_id: UUID | None = None
    verdict: Reconciliation | None = None
    watched: Collection[str] = ()
    hours: float | None = None
    off_by: float = 0.0
    heartless: bool = False
    serves: bool = False
    execution: Literal["inline", "queued"] = "inline"
    lease: float = 60.0
    beat: float = 15.0
    grace: float = 30.0
    max_takeovers: int = 3
    at_once: int = 50


class PointedDispatcher:
    """A host's own dispatcher: a point between the tool's return and the announcement."""

    def __init__(self, site: Site) -> None:
        self._points = site.points
        self._listeners = ListenerDispatcher([site.listen])

    async def dispatch(self, event: AfterAiRecordWrittenEvent, /) -> None:
        self._points.reach("dispatching")
        await self._listeners.dispatch(event)


def work(order: Order, kind: type[Site], path: Path, wire: Connection, log: Path) -> None:
    """Be the process, over the database at the path of that kind of host. What it says of errors goes to the log."""
    with log.open("w") as said:
        os.dup2(said.fileno(), 2)
        if order.off_by:
            _set_clock_wrong(order.off_by)
        asyncio.run(_work(order, kind(path, Points(wire, order.watched))))


def _set_clock_wrong(off_by: float) -> None:
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + off_by
    time.time_ns = lambda: nanoseconds() + round(off_by * 1e9)


async def _work(order: Order, site: Site) -> None:
    ahead = None if order.hours is None else order.hours * AN_HOUR
    clock = None if ahead is None else lambda: time.time() + ahead
    store = PointedStore(site.url, site.points, keys=site.sealed_with, clock=clock, heartless=order.heartless)
    settings: Settings = {
        "execution": order.execution,
        "lease": order.lease,
        "beat": order.beat,
        "grace": order.grace,
        "max_takeovers": order.max_takeovers,
        "recover": order.do == "serve",
    }
    if site.points.watches("dispatching"):
        settings["dispatcher"] = PointedDispatcher(site)
    runtime = site.opened(*order.turns, store=store, **settings)
    stopped = asyncio.Event()
    if order.serves:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _stop, stopped)
    async with runtime:
        asked = asyncio.create_task(_ask(order, runtime, site))
        stopping = asyncio.create_task(stopped.wait())
        awaited = {stopping} if order.do == "serve" else {asked, stopping}
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # by SIGINT, which asyncio.run makes of it
            asked.cancel()
            site.points.reach("stopping")
            raise
        if stopping.done():
            site.points.reach("stopping")
        stopping.cancel()
    try:
        await asked
    except RuntimeClosed:
        if not stopped.is_set():
            raise


def _stop(stopped: asyncio.Event) -> None:
    stopped.set()
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)


async def _ask(order: Order, runtime: AgentRuntime, site: Site) -> None:
    if order.do == "run":
        await runtime.run("editor", "Describe page 42.", actor=ALICE, dedupe_key="describe 42")
        return
    if order.do == "recover":
        await runtime.recover()
        return
    if order.do == "serve":
        return
    if order.do == "work":
        await runtime.work(concurrency=order.at_once, poll=0.1)
        return
    if order.do == "attend":
        await site.attend(runtime)
        return
    assert order.run_id is not None
    if order.do == "execute":
        await runtime.execute(order.run_id)
    elif order.verdict is not None:
        await runtime.reconcile(order.run_id, order.verdict, actor=BOB)
    else:
        pending = (await runtime.get_run(order.run_id)).pending
        assert pending is not None
        await runtime.decide(order.run_id, Decision.approve(pending.digest), actor=BOB)
