"""How a decision reaches its calls: at once, over a queue, in a fresh runtime, or after its process was killed."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Unpack

from pydantic import JsonValue

from byline import (
    AgentRuntime,
    AiActorContext,
    Approve,
    Decision,
    Deny,
    ModelCall,
    Pending,
    ProposedCall,
    Run,
    RunStatus,
    Step,
    StepKind,
    Tool,
    ToolMessage,
)
from byline.approval.decision import Verdict
from byline.store.protocol import Ruling
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel, call
from tests.host import ALICE, BOB, AgentFacts, Host, Settings

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 20.0  # seconds; what is waited for is an event, and this only ends a test that has failed

SET = call("set_description", page_id=42, description="Who we are.")
ADD = call("add_element", page_id=42, text="Open on Monday.")
READ = call("read_page", page_id=42)
BETTER: dict[str, JsonValue] = {"page_id": 42, "description": "Who we really are."}
"""Other arguments for the first of them."""

Script = Sequence[Sequence[ModelCall] | str]


class Entry(StrEnum):
    """On which way a decision reaches the calls it is about."""

    DIRECT = "direct"
    """One runtime asks, takes the decision and executes."""
    QUEUED = "queued"
    """One process takes the decision, and a worker executes."""
    RESUMED = "resumed"
    """A fresh runtime takes the decision and executes."""
    CRASHED = "crashed"
    """The process that took the decision is killed before its first step, and another takes the run over."""


ALIVE = (Entry.DIRECT, Entry.QUEUED, Entry.RESUMED)
"""The entries for tests with tools or people of their own, which the process that is killed does not have."""


@dataclass(slots=True)
class Play:
    """One run on one of the entries. `meanwhile` happens between its decisions and what they release."""

    host: Host
    entry: Entry
    script: Script
    agent: AgentFacts
    tools: Sequence[Tool] | None
    settings: Settings
    model: ScriptedModel
    stack: AsyncExitStack
    meanwhile: Callable[[], None] = lambda: None
    clock: Callable[[], float] | None = None
    open: list[AgentRuntime] = field(default_factory=list)

    async def runtime(self) -> AgentRuntime:
        """The open runtime."""
        if not self.open:
            settings = self.settings.copy()
            if self.entry is Entry.QUEUED:
                settings["execution"] = "queued"
            store = Hooked(self)
            made = self.host.runtime(self.model, store=store, agent=self.agent, tools=self.tools, **settings)
            self.open.append(await self.stack.enter_async_context(made))
        return self.open[0]

    async def afresh(self) -> AgentRuntime:
        """Close the open runtime; what follows happens in another one."""
        await self.stack.aclose()
        self.open.clear()
        return await self.runtime()

    async def ask(self, actor: AiActorContext = ALICE) -> Run:
        """Start the run and go on until it waits or ends."""
        runtime = await self.runtime()
        run = await runtime.run("editor", "See to page 42.", actor=actor)
        if self.entry is Entry.QUEUED:
            run = await runtime.execute(run.run_id)
        return run

    async def decide(self, run: Run, decision: Decision, actor: AiActorContext = BOB) -> Run:
        """Take the decision, and go on until the run waits or ends."""
        if self.entry is Entry.CRASHED:
            return await self._crash(run, decision, actor)
        runtime = await self.afresh() if self.entry is Entry.RESUMED else await self.runtime()
        decided = await runtime.decide(run.run_id, decision, actor=actor)
        if self.entry is Entry.QUEUED:
            decided = await runtime.execute(run.run_id)
        return decided

    async def _crash(self, run: Run, decision: Decision, actor: AiActorContext) -> Run:
        order = {
            "host": str(self.host.path),
            "run": str(run.run_id),
            "actor": actor.id,
            "agent": self.agent,
            "digest": decision.digest,
            "for_all": [] if decision.for_all is None else [said(decision.for_all)],
            "verdicts": {str(call_id): said(verdict) for call_id, verdict in decision.verdicts.items()},
        }
        await self.stack.aclose()
        self.open.clear()
        died = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "tests.kernel.gate_dying"],
            input=json.dumps(order),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert died.returncode == -9, died.stderr
        self.meanwhile()
        self.clock = lambda: time.time() + 3_600  # by then, the lease of the dead has run out
        runtime = await self.runtime()
        return await runtime.execute(run.run_id)

    async def steps(self, run: Run, kind: StepKind = StepKind.TOOL) -> list[Step]:
        """The steps of one kind, in order."""
        steps = await (await self.runtime()).list_steps(run.run_id)
        return [step for step in steps if step.kind is kind]

    async def outcomes(self, run: Run) -> list[tuple[object, object]]:
        """How each call ended, by the name of its tool."""
        return [(step.payload["tool"], step.payload["outcome"]) for step in await self.steps(run)]

    def told(self) -> list[ToolMessage]:
        """What the model has read of its calls so far."""
        return [message for message in self.model.requests[-1].messages if isinstance(message, ToolMessage)]


class Hooked(SqlStore):
    """A store that lets something happen between a decision and its execution."""

    def __init__(self, play: Play) -> None:
        super().__init__(f"sqlite:///{play.host.path.parent / 'byline.db'}", clock=play.clock)
        self._play = play

    def decide(self, ruling: Ruling) -> RunStatus:
        status = super().decide(ruling)
        self._play.meanwhile()
        return status


@asynccontextmanager
async def entered(
    host: Host,
    entry: Entry,
    script: Script,
    *,
    agent: AgentFacts | None = None,
    tools: Sequence[Tool] | None = None,
    **settings: Unpack[Settings],
) -> AsyncGenerator[Play]:
    """Play a script on one of the entries."""
    async with AsyncExitStack() as stack:
        model = ScriptedModel(script)
        yield Play(host, entry, script, {} if agent is None else agent, tools, settings, model, stack)


def said(verdict: Verdict) -> str | None:
    """A verdict for another process: a denial's reason, or None for an approval."""
    match verdict:
        case Approve():
            return None
        case Deny(reason):
            return reason
        case _:
            raise AssertionError("a change starts nothing that could be killed")


def pending(run: Run) -> Pending:
    """What waits."""
    assert run.status is RunStatus.AWAITING_APPROVAL, (run.status, run.reason, run.problem)
    assert run.pending is not None
    return run.pending


def digest(run: Run) -> str:
    """The digest of what waits."""
    return pending(run).digest


def change(run: Run, arguments: dict[str, JsonValue], *, position: int = 0) -> Decision:
    """Propose other arguments for one call of the waiting turn."""
    waits = pending(run)
    return Decision.change(waits.digest, waits.calls[position].id, arguments)


def canonical(value: object) -> str:
    """Written anew, so that the package's own function is held against it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def questions_asked(host: Host) -> list[ProposedCall]:
    """Keep what the authority is asked."""
    asked: list[ProposedCall] = []

    def ask(_actor: AiActorContext, proposed: ProposedCall) -> bool:
        asked.append(proposed)
        return False

    host.people.forbidden = ask
    return asked
