"""Where races are run: a site whose writes are lines of one file, and what each contestant has in its hands.

The file is opened for appending by every thread and process, and each line is one write of the system: so it
counts what happened, whoever did it.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from uuid import UUID

from sqlalchemy import event
from sqlalchemy.engine.interfaces import DBAPIConnection

from byline import (
    AfterAiRecordWrittenEvent,
    Agent,
    AgentRuntime,
    AiActorContext,
    AlreadyDecided,
    BylineError,
    Decision,
    Grant,
    ModelError,
    RecordReference,
    Run,
    RunStatus,
    ToolContext,
    ToolEffect,
    ToolResult,
    WriteKind,
    tool,
)
from byline.models.scripted import Turn
from byline.runtime.sync import SyncRuntime
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel, allow_all, call

ALICE = AiActorContext.user("7")
BOB = AiActorContext.user("8", grants=tuple(Grant))

TURNS: Sequence[Turn] = ([call("add_line", text="one")], "Done.")
ROUNDS, FEW = 200, 50
"""How many rounds a race has, and one that is a variation of another."""
LEASE = 3_600.0
"""Seconds of the races' own clock: so long that no heartbeat comes by itself."""
TTL = 600.0
"""Seconds until an approval expires, by the same clock, where it does."""
LONGEST_HEAD_START = 0.004
"""Seconds that a contestant is late at most: so that, over the rounds, each is first now and then."""


class Barrier(Protocol):
    """Where contestants wait for each other: of threads or of processes."""

    def wait(self, timeout: float | None = None, /) -> int: ...

    def abort(self) -> None: ...


class Clock(Protocol):
    """Seconds since the epoch, shared by all contestants."""

    value: float


@dataclass(slots=True)
class OwnClock:
    """A clock for threads."""

    value: float = 1_800_000_000.0


@dataclass(frozen=True, slots=True)
class Round:
    """One run that is raced for."""

    number: int
    run_id: UUID
    digest: str
    call_id: UUID
    expires_at: float

    @property
    def approve(self) -> Decision:
        return Decision.approve(self.digest)

    @property
    def deny(self) -> Decision:
        return Decision.deny(self.digest, "not now")

    @property
    def change(self) -> Decision:
        return Decision.change(self.digest, self.call_id, {"text": "two"})


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Site:
    """A store, and the ledger that the tool and the listener write to."""

    folder: Path
    queued: bool = False
    approval_ttl: float | None = None

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.txt"

    def write(self, *words: object) -> None:
        """Append one line: one write of the system, whole or not at all."""
        ledger = os.open(self.ledger, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.write(ledger, (" ".join(map(str, words)) + "\n").encode())
        finally:
            os.close(ledger)

    def lines(self, word: str) -> Counter[str]:
        """How often each run (`ran`, `heard`) stands in the ledger."""
        text = self.ledger.read_text("utf-8") if self.ledger.exists() else ""
        return Counter(line.split()[1] for line in text.splitlines() if line.startswith(f"{word} "))

    def store(self, clock: Clock) -> SqlStore:
        """A store on the site's file. Its commits are not flushed to the disk: what is raced for is their order."""
        store = SqlStore(f"sqlite:///{self.folder / 'byline.db'}", clock=lambda: clock.value)
        event.listen(store.engine, "connect", _unflushed)
        return store

    def runtime(
        self, clock: Clock, in_write: Callable[[], None] = _nothing, *, turns: Sequence[Turn] = TURNS
    ) -> AgentRuntime:
        """A runtime over the site. `in_write` is called in the tool, behind its write."""
        site = self

        @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
        def add_line(context: ToolContext, text: str) -> ToolResult:
            """Add a line."""
            site.write("ran", context.run, context.attempt)
            in_write()
            return ToolResult.text("Added.").with_write_target(
                RecordReference("lines", str(context.call_id)), WriteKind.CREATED
            )

        def listen(event: AfterAiRecordWrittenEvent) -> None:
            site.write("heard", event.correlation_id)

        return AgentRuntime(
            store=self.store(clock),
            agents=[
                Agent(
                    name="writer",
                    model=ScriptedModel(turns),
                    tools=[add_line],
                    approval_ttl=self.approval_ttl,
                )
            ],
            listeners=[listen],
            authority=allow_all,
            execution="queued" if self.queued else "inline",
            lease=LEASE,
            beat=LEASE / 3,
        )

    def prepare(self, clock: Clock, rounds: int = ROUNDS, *, apart: float = 0.0) -> list[Round]:
        """Bring a run for each round to where it waits for its approval, each so many seconds after the last."""
        prepared: list[Round] = []
        with self.runtime(clock).sync as runtime:
            for number in range(rounds):
                run = runtime.run("writer", f"Add line {number}.", actor=ALICE)
                if self.queued:
                    run = runtime.execute(run.run_id)
                assert run.pending is not None
                expires_at = run.pending.expires_at.timestamp() if run.pending.expires_at is not None else 0.0
                prepared.append(Round(number, run.run_id, run.pending.digest, run.pending.calls[0].id, expires_at))
                clock.value += apart
        return prepared

    def dead_letters(self, clock: Clock, rounds: int) -> list[Round]:
        """Runs whose model could not answer."""
        with self.runtime(clock, turns=[ModelError("not now")]).sync as runtime:
            runs = [runtime.run("writer", "Add a line.", actor=ALICE) for _ in range(rounds)]
        assert {run.status for run in runs} == {RunStatus.DEAD_LETTER}
        return [Round(number, run.run_id, "", run.run_id, 0.0) for number, run in enumerate(runs)]


def _unflushed(connection: DBAPIConnection, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=OFF")
    cursor.close()


@dataclass(slots=True)
class Stage:
    """What one contestant has: a runtime of its own, or one that it shares, the barrier, and the clock."""

    site: Site
    runtime: SyncRuntime
    barrier: Barrier
    clock: Clock
    place: int
    in_write: Callable[[], None] = field(default=_nothing)
    """Called in the tool, behind its write, by the runtime that is this contestant's own."""

    def meet(self) -> None:
        """Wait for the others."""
        self.barrier.wait(20)

    def start(self, this: Round) -> None:
        """Wait for the others, and start: a moment apart, another one each round."""
        chance = random.Random(this.number * 8 + self.place)
        self.meet()
        time.sleep(chance.choice((0.0, chance.uniform(0, LONGEST_HEAD_START))))


class Contestant(Protocol):
    """One side of a race: does its part of a round, and says what it was told. A function of a module."""

    def __call__(self, stage: Stage, this: Round, /) -> str: ...


def told(ask: Callable[[], Run]) -> str:
    """What a caller was told: the status of the run, or the type of the error."""
    try:
        return ask().status.value
    except AlreadyDecided:
        return AlreadyDecided.__name__
    except BylineError as error:
        return type(error).__name__
