"""The runtime: what an application builds, opens, and talks to."""

import asyncio
import math
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Literal, Self
from uuid import UUID

from uuid_utils.compat import uuid7

from byline.actors import AiActorContext, Authority, Grant, checked_actor
from byline.announcing import EventDispatcher, Listener, ListenerDispatcher, contained
from byline.approval.decision import Decision, Reconciliation
from byline.approval.gate import Gate
from byline.approval.rule import needs_approval
from byline.errors import (
    ConfigurationError,
    InvalidIdentifier,
    NotAllowed,
    NotDecidable,
    RuntimeClosed,
    UnknownAgent,
)
from byline.loop import ToolLoop
from byline.models.messages import Message, UserMessage
from byline.models.transcript import storable_history
from byline.records import RecordReference
from byline.runs.run import Run, parse_run_id
from byline.runs.status import RunStatus
from byline.runs.steps import Step, WriteFact
from byline.runtime.agent import Agent, listed, seconds
from byline.runtime.decisions import DecisionDesk
from byline.runtime.executor import Executor, Recovery
from byline.runtime.heartbeat import Heartbeat
from byline.runtime.opened import Opened
from byline.runtime.store_threads import StoreThreads
from byline.runtime.view import view
from byline.store.protocol import Claim, LateReport, NewRun, RunStore, StoredRun
from byline.tools.protocol import Landed
from byline.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from byline.runtime.sync import SyncRuntime
    from byline.store.sealing import KeyRing

MAX_PROMPT = 1_000_000
"""Longest prompt, in characters."""
MAX_DEDUPE_KEY = 255
"""Longest dedupe key, in characters."""
MAX_PAGE = 1_000
"""Most items of one listing."""
MAX_POSITION = 2**63
"""The position of every step is less: a database counts no further."""


class AgentRuntime(AbstractAsyncContextManager["AgentRuntime"]):
    """Runs agents on records: stops at each write until a person has approved it, and announces what landed.

    Open it with `async with runtime:`, or from synchronous code with `with runtime.sync:`.

    Args:
        store: a database URL such as `sqlite:///byline.db`, or a store.
        agents: the agents of this process, found by their names.
        listeners: told of every announced write. Byline ships none.
        dispatcher: a host's own way to tell of writes, instead of listeners.
        authority: the host's object that knows people and what they may do; needed as soon as a tool needs approval.
        resources: handed to tools as `context.resources`.
        execution: `inline`: `run`, `decide` and `reconcile` go on in this process and return how it went;
            `queued`: they queue the run, and a worker executes it.
        lease: seconds that a claim holds without a heartbeat.
        beat: seconds between heartbeats, at most a third of the lease.
        listener_timeout: seconds that one dispatch may take in all; a dispatcher of your own gets half a second more.
        release_ttl: seconds after which a released turn waits again instead of running.
        grace: seconds that closing waits for steps in flight.
        max_takeovers: how often a run is taken over without progress before it goes to dead letter.
        recover: take up stale, queued and expired runs while the runtime is open.
        keys: the keys that seal content; by default from `BYLINE_KEYS`, or from a file beside an embedded store.

    Raises:
        ConfigurationError: something of this cannot work. Nothing ran.
    """

    def __init__(
        self,
        *,
        store: str | RunStore,
        agents: Iterable[Agent],
        listeners: Iterable[Listener] = (),
        dispatcher: EventDispatcher | None = None,
        authority: Authority | None = None,
        resources: object = None,
        execution: Literal["inline", "queued"] = "inline",
        lease: float = 60.0,
        beat: float = 15.0,
        listener_timeout: float = 5.0,
        release_ttl: float = 86_400.0,
        grace: float = 30.0,
        max_takeovers: int = 3,
        recover: bool = False,
        keys: "KeyRing | None" = None,
    ) -> None:
        self._agents = MappingProxyType(_by_name(listed("agents", agents)))
        self._toolboxes = MappingProxyType({name: Toolbox(agent.tools) for name, agent in self._agents.items()})
        gated = [tool.spec.name for box in self._toolboxes.values() for tool in box if needs_approval(tool.spec)]
        if gated and authority is None:
            raise ConfigurationError(f"tool {gated[0]!r} needs approval: say who may give it with authority=…")
        if execution not in ("inline", "queued"):
            raise ConfigurationError("execution is 'inline' or 'queued'")
        self._lease, self._beat = seconds("lease", lease), seconds("beat", beat)
        third = self._lease / 3
        if self._beat > third and not math.isclose(self._beat, third):  # 0.6 / 3 is less than 0.2
            raise ConfigurationError("beat is at most a third of the lease: a late heartbeat must not lose the run")
        told = listed("listeners", listeners)
        if told and dispatcher is not None:
            raise ConfigurationError("give listeners or a dispatcher of your own, not both")
        if type(max_takeovers) is not int or max_takeovers < 0:
            raise ConfigurationError("max_takeovers is a whole number, 0 or more")
        budget = seconds("listener_timeout", listener_timeout)
        telling: EventDispatcher | None
        if dispatcher is None:
            telling = ListenerDispatcher(told, timeout=budget) if told else None
        else:
            telling = contained(dispatcher, timeout=budget)
        self._loops = {
            name: ToolLoop(
                agent.model,
                self._toolboxes[name],
                instructions=agent.instructions,
                max_rounds=agent.max_rounds,
                model_timeout=agent.model_timeout,
                dispatcher=telling,
            )
            for name, agent in self._agents.items()
        }
        self._store = _open_store(store, keys)
        self._gate = Gate(authority)
        self._resources = resources
        self._inline = execution == "inline"
        self._release_ttl = seconds("release_ttl", release_ttl)
        self._grace = seconds("grace", grace)
        self._max_takeovers = max_takeovers
        self._recovers = recover
        self._opened: Opened | None = None
        self._sync: SyncRuntime | None = None

    # -- opening and closing ------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open the store, bring an embedded one up to date, and begin to recover if asked to.

        Raises:
            StoreError, SchemaMismatch, KeyMissing: the store cannot be used, and what to do.
        """
        if self._opened is not None:
            raise ConfigurationError("this runtime is open already")
        threads = StoreThreads(self._store)
        try:
            await threads(self._store.open)
        except BaseException:
            threads.close()
            raise
        self._opened = Opened(threads, Heartbeat(self._store, lease=self._lease, interval=self._beat))
        if self._recovers:
            self._opened.spawn_unwatched(self._executor().recover_on(self._beat))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the steps in flight and hand their runs back; past the grace, a write in flight is uncertain."""
        here = self._open()
        try:
            await here.close(self._grace)
        finally:  # a caller who will not wait for the grace closes all the same
            self._opened = None
            here.heartbeat.close()
            here.threads.close()
            self._store.close()

    @property
    def sync(self) -> "SyncRuntime":
        """The same runtime for synchronous code: threads, Django views, Celery tasks, sync listeners."""
        if self._sync is None:
            from byline.runtime.sync import SyncRuntime  # the mirror imports what it mirrors

            self._sync = SyncRuntime(self)
        return self._sync

    @property
    def event_loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop on which the runtime is open, or None."""
        return None if self._opened is None else self._opened.event_loop

    # -- runs -----------------------------------------------------------------------------------

    async def run(
        self,
        agent: str,
        prompt: str,
        *,
        actor: AiActorContext,
        dedupe_key: str | None = None,
        history: Sequence[Message] = (),
    ) -> Run:
        """Start a run, and go on with it until it waits, ends, or cannot go on (`execution="inline"`).

        Args:
            agent: the agent's name.
            prompt: what the person wants.
            actor: who the run acts for.
            dedupe_key: a second run with the same key is not started; the first one is returned.
            history: what was said before.

        Raises:
            UnknownAgent, InvalidIdentifier, DedupeConflict: nothing was started.
            StoreUnavailable: the store does not answer.
        """
        return await self._start(agent, prompt, actor, dedupe_key, history, inline=self._inline)

    async def enqueue(
        self,
        agent: str,
        prompt: str,
        *,
        actor: AiActorContext,
        dedupe_key: str | None = None,
        history: Sequence[Message] = (),
    ) -> Run:
        """Store a run as QUEUED, for a worker, `execute` or `recover`. Arguments and errors are those of `run`."""
        return await self._start(agent, prompt, actor, dedupe_key, history, inline=False)

    async def _start(
        self,
        agent: str,
        prompt: str,
        actor: AiActorContext,
        dedupe_key: str | None,
        history: Sequence[Message],
        *,
        inline: bool,
    ) -> Run:
        here = self._open()
        checked_actor(actor)
        if not isinstance(agent, str) or agent not in self._agents:
            raise UnknownAgent(f"no agent {agent!r:.80} is loaded in this process")
        new = NewRun(
            run_id=uuid7(),
            agent=agent,
            actor=actor,
            messages=(*storable_history(history), UserMessage(_prompt(prompt))),
            dedupe_key=_dedupe_key(dedupe_key),
        )
        created: Claim | StoredRun | None
        if inline:
            created = await self._executor().start(new)
        else:
            created = await here.threads(self._store.create, new, lease=None)
        if isinstance(created, StoredRun):
            return view(created, self._agents)
        return await self.get_run(new.run_id)

    async def execute(self, run_id: UUID | str) -> Run:
        """Claim a run that is queued, or that a dead process left, and go on with it. What a worker calls.

        A run that waits, has ended or is executed elsewhere is returned as it stands.

        Raises:
            UnknownRun, InvalidIdentifier: there is no such run.
            KeyMissing: its content is sealed with a key that is not here. The run stays as it is.
        """
        run_id = parse_run_id(run_id)
        await self._executor().go_on(run_id)
        return await self.get_run(run_id)

    # -- people -----------------------------------------------------------------------------------

    async def decide(self, run_id: UUID | str, decision: Decision, *, actor: AiActorContext) -> Run:
        """Take a decision on the waiting turn; with `execution="inline"` the run goes on once it is released.

        Args:
            run_id: the run.
            decision: the verdicts, bound by the digest of what was read.
            actor: who decides; from the host's authentication, never from the request.

        Raises:
            AlreadyDecided, StaleDecision, ApprovalExpired, RunFinished, NotDecidable: it came too late.
            NotAllowed: the actor may not; it can still be decided.
            UnknownRun, UnknownCall, InvalidArguments, InvalidIdentifier: it names what is not there.
            ToolNotLoaded: this process lacks the agent or the tool; it can deny and cancel.
            StoreUnavailable: the store did not answer. A decision that could not be stored releases nothing;
                `get_run` says what stands, and `recover` goes on from there.
        """
        run_id = parse_run_id(run_id)
        if await self._desk().decide(run_id, decision, actor) is RunStatus.QUEUED and self._inline:
            await self._executor().go_on(run_id)
        return await self.get_run(run_id)

    async def reconcile(self, run_id: UUID | str, verdict: Reconciliation, *, actor: AiActorContext) -> Run:
        """Say what became of an uncertain write; with `execution="inline"` the run goes on.

        Raises:
            AlreadyDecided, StaleDecision, RunFinished, NotDecidable: it came too late, or is about another attempt.
            NotAllowed: `landed` and `leave_it` need `Grant.RECONCILE`; `run_again` is a release like any other.
            UnknownRun, UnknownCall, InvalidIdentifier: it names what is not there.
        """
        run_id = parse_run_id(run_id)
        await self._desk().reconcile(run_id, verdict, actor)
        if self._inline:
            await self._executor().go_on(run_id)
        return await self.get_run(run_id)

    async def cancel(self, run_id: UUID | str, *, actor: AiActorContext) -> Run:
        """Cancel a run: at once if it waits, else before its next call. A write in flight ends and is announced.

        Raises:
            NotAllowed: the actor neither started the run nor holds `Grant.APPROVE`.
            RunFinished: it has ended before.
            UnknownRun, InvalidIdentifier: there is no such run.
        """
        run_id = parse_run_id(run_id)
        here = self._open()
        checked_actor(actor)
        stored = await here.threads(self._store.get, run_id)
        if actor.id != stored.actor.id and Grant.APPROVE not in (await self._gate.decider(actor)).grants:
            raise NotAllowed("only who started a run, or an approver, may cancel it")
        status = await here.threads(self._store.cancel, run_id, actor.id)
        if status is RunStatus.RUNNING:
            await here.cancel(run_id)
        return await self.get_run(run_id)

    async def verify(self, run_id: UUID | str) -> Run:
        """Ask the tool of an uncertain call whether it landed. *Landed* settles it; *not landed* is only shown.

        Raises:
            UnknownRun, InvalidIdentifier: there is no such run.
            NotDecidable: it is not uncertain.
        """
        run_id = parse_run_id(run_id)
        stored = await self._open().threads(self._store.get, run_id)
        if stored.status is not RunStatus.UNCERTAIN:
            raise NotDecidable("this run is not uncertain")
        found = await self._executor().verify(stored)
        if isinstance(found, Landed) and self._inline:
            await self._executor().go_on(run_id)
        stored = await self._open().threads(self._store.get, run_id)
        return view(stored, self._agents, found)

    async def retry(self, run_id: UUID | str) -> Run:
        """Take a run in dead letter up where it stood, with its budget restored.

        Raises:
            NotRetryable: it is not in dead letter.
            UnknownRun, InvalidIdentifier: there is no such run.
        """
        run_id = parse_run_id(run_id)
        await self._open().threads(self._store.retry, run_id)
        if self._inline:
            await self._executor().go_on(run_id)
        return await self.get_run(run_id)

    # -- reading --------------------------------------------------------------------------------

    async def get_run(self, run_id: UUID | str) -> Run:
        """Read one run.

        Raises:
            UnknownRun, InvalidIdentifier: there is no such run.
        """
        return view(await self._open().threads(self._store.get, parse_run_id(run_id)), self._agents)

    async def list_runs(
        self,
        *,
        status: RunStatus | None = None,
        agent: str | None = None,
        after: UUID | str | None = None,
        limit: int = 100,
    ) -> Sequence[Run]:
        """List runs, newest first; `after` is the last run of the page before."""
        start = None if after is None else parse_run_id(after)
        status = None if status is None else _status(status)
        if agent is not None and not _is_text(agent):
            raise InvalidIdentifier("an agent is named by a text")
        stored = await self._open().threads(
            self._store.list_runs, status=status, agent=agent, after=start, limit=_page(limit)
        )
        return [view(run, self._agents) for run in stored]

    async def list_steps(self, run_id: UUID | str, *, after: int = 0, limit: int = 1_000) -> Sequence[Step]:
        """List the steps of a run's trace behind the position `after`."""
        run_id = parse_run_id(run_id)
        if type(after) is not int or not 0 <= after < MAX_POSITION:
            raise InvalidIdentifier("a position is that of a step, or 0")
        return await self._open().threads(self._store.list_steps, run_id, after=after, limit=_page(limit))

    async def writes(
        self,
        *,
        after: str | None = None,
        table: str | None = None,
        since: datetime | None = None,
        limit: int = 1_000,
    ) -> Sequence[WriteFact]:
        """Read the feed of announced writes: which records did an AI write?

        A reader that keeps the last fact's `cursor` and asks on from there never misses one.
        """
        if table is not None and not _is_text(table):
            raise InvalidIdentifier("a table is a text, as in RecordReference(table, uid)")
        if since is not None and not isinstance(since, datetime):
            raise InvalidIdentifier("since is a datetime with a time zone")
        return await self._open().threads(
            self._store.writes, after=after, table=table, record=None, since=since, limit=_page(limit)
        )

    async def writes_of(self, record: RecordReference, *, limit: int = 1_000) -> Sequence[WriteFact]:
        """Which runs wrote this record, oldest first."""
        if not isinstance(record, RecordReference):
            raise InvalidIdentifier("a record is a RecordReference, such as RecordReference.parse('pages:42')")
        return await self._open().threads(
            self._store.writes, after=None, table=None, record=record, since=None, limit=_page(limit)
        )

    async def late_reports(self, *, conflicts_only: bool = False, limit: int = 100) -> Sequence[LateReport]:
        """List what calls did after their segment had lost its run; conflicts are for the operator to look at."""
        return await self._open().threads(self._store.late_reports, conflicts_only=conflicts_only, limit=_page(limit))

    # -- recovery ---------------------------------------------------------------------------------

    async def recover(self) -> Recovery:
        """Settle expired approvals, and take up the runs that nobody executes: queued ones, and a dead process's."""
        return await self._executor().recover()

    def check_process(self) -> None:
        """Refuse to go on in a child of the process that opened this runtime: a fork copies no thread.

        Raises:
            RuntimeClosed: it was opened before a fork, and what to do.
        """
        if self._opened is not None and self._opened.process != os.getpid():
            raise RuntimeClosed(
                "this runtime was opened before a fork: build and open one in each process, for example in "
                "gunicorn's post_fork or Celery's worker_process_init"
            )

    def _open(self) -> Opened:
        if self._opened is None:
            raise RuntimeClosed
        self.check_process()
        if self._opened.event_loop is not asyncio.get_running_loop():
            raise RuntimeClosed("this runtime is open on another event loop: from other threads use runtime.sync")
        return self._opened

    def _executor(self) -> Executor:
        here = self._open()
        return Executor(
            here=here,
            store=self._store,
            gate=self._gate,
            agents=self._agents,
            loops=self._loops,
            toolboxes=self._toolboxes,
            resources=self._resources,
            lease=self._lease,
            release_ttl=self._release_ttl,
            max_takeovers=self._max_takeovers,
        )

    def _desk(self) -> DecisionDesk:
        return DecisionDesk(
            store=self._store,
            threads=self._open().threads,
            gate=self._gate,
            agents=self._agents,
            toolboxes=self._toolboxes,
            resources=self._resources,
        )


def _by_name(agents: Iterable[Agent]) -> dict[str, Agent]:
    named: dict[str, Agent] = {}
    for agent in agents:
        if not isinstance(agent, Agent):
            raise ConfigurationError(f"agents are Agents, not {type(agent).__name__}")
        if agent.name in named:
            raise ConfigurationError(f"there are two agents of the name {agent.name!r}")
        named[agent.name] = agent
    return named


def _open_store(store: str | RunStore, keys: "KeyRing | None") -> RunStore:
    if not isinstance(store, str):
        return store
    from byline.store.sql import SqlStore  # a host with a store of its own needs no SQLAlchemy

    return SqlStore(store, keys=keys)


def _status(value: object) -> RunStatus:
    try:
        return RunStatus(str(value))
    except ValueError:
        raise InvalidIdentifier(f"a status is one of {', '.join(RunStatus)}") from None


def _prompt(prompt: object) -> str:
    if not isinstance(prompt, str) or not prompt.strip() or len(prompt) > MAX_PROMPT:
        raise InvalidIdentifier(f"a prompt is a text that is not blank, of at most {MAX_PROMPT} characters")
    return prompt.encode("utf-8", "replace").decode()


def _dedupe_key(key: object) -> str | None:
    if key is None or (isinstance(key, str) and key.strip() and len(key) <= MAX_DEDUPE_KEY and key.isprintable()):
        return key
    raise InvalidIdentifier(f"a dedupe key is a text that prints, of at most {MAX_DEDUPE_KEY} characters")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.encode(errors="ignore").decode() == value  # no half of a character


def _page(limit: object) -> int:
    if type(limit) is not int or not 0 < limit <= MAX_PAGE:
        raise InvalidIdentifier(f"a limit is a whole number from 1 to {MAX_PAGE}")
    return limit
