"""The runtime: what an application builds, opens, and talks to."""

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime, timedelta
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
    KeyMissing,
    NotAllowed,
    NotDecidable,
    RuntimeClosed,
    SealBroken,
    UnknownAgent,
)
from byline.loop import ToolLoop
from byline.models.adapter import chat_model
from byline.models.messages import Message, UserMessage
from byline.models.transcript import storable_history
from byline.privacy import PrivacyLevel, strictest
from byline.records import RecordReference
from byline.runs.run import Run, parse_run_id
from byline.runs.status import RunStatus
from byline.runs.steps import Step, WriteFact
from byline.runtime.agent import Agent, listed, privacy_level, seconds
from byline.runtime.decisions import DecisionDesk
from byline.runtime.executor import Executor, Recovery
from byline.runtime.heartbeat import Heartbeat
from byline.runtime.opened import Opened
from byline.runtime.retention import Retention
from byline.runtime.retrying import Backoff
from byline.runtime.store_threads import StoreThreads
from byline.runtime.view import view
from byline.runtime.wakeup import Wakeup, heard, send
from byline.runtime.watching import Watch
from byline.runtime.work import WorkLoop
from byline.store.protocol import Claim, LateReport, NewRun, Purged, RunStore, StoredRun
from byline.telemetry import Telemetry, exporter_of
from byline.tools.protocol import Landed, Verification
from byline.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from byline.runtime.sync import SyncRuntime
    from byline.store.sealing import KeyRing

MAX_PROMPT = 1_000_000
"""Longest prompt, in characters."""
RECOVERING = 8
"""How many runs at a time a runtime takes up with `recover=True`."""
DEFAULT_BACKOFF = Backoff()
MAX_DEDUPE_KEY = 255
"""Longest dedupe key, in characters."""
MAX_PAGE = 1_000
"""Most items of one listing."""
MAX_COUNTED = 10_000
"""Most runs of one status that are counted for telemetry."""
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
        max_model_failures: how often a run's model may fail, and be asked again, without progress in between, before
            the run goes to dead letter. A failure that asking again does not mend leads there at once.
        backoff: how long a run waits after its model failed.
        recover: take up stale, queued and expired runs while the runtime is open; a worker calls `work`.
        wakeup: tells workers elsewhere of each run that is queued here; one that can listen wakes `work`.
        privacy: how much of a run its trace keeps: by default names, outcomes, counts and durations. Where an agent
            has a stricter level, that one holds.
        output_ttl: seconds that an answer is kept and shown after its run has ended; None keeps it until it is purged.
        telemetry: tells OpenTelemetry what runs do; by default nothing does.
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
        max_model_failures: int = 10,
        backoff: Backoff = DEFAULT_BACKOFF,
        recover: bool = False,
        wakeup: Wakeup | None = None,
        privacy: PrivacyLevel = PrivacyLevel.METADATA,
        output_ttl: float | None = None,
        telemetry: Telemetry | None = None,
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
        for name, most in (("max_takeovers", max_takeovers), ("max_model_failures", max_model_failures)):
            if type(most) is not int or most < 0:
                raise ConfigurationError(f"{name} is a whole number, 0 or more")
        if not isinstance(backoff, Backoff):
            raise ConfigurationError("backoff is a Backoff, such as Backoff(first=2, longest=600)")
        budget = seconds("listener_timeout", listener_timeout)
        telling: EventDispatcher | None
        if dispatcher is None:
            telling = ListenerDispatcher(told, timeout=budget) if told else None
        else:
            telling = contained(dispatcher, timeout=budget)
        self._loops = {
            name: ToolLoop(
                chat_model(agent.model),
                self._toolboxes[name],
                instructions=agent.instructions,
                max_rounds=agent.max_rounds,
                model_timeout=agent.model_timeout,
                dispatcher=telling,
            )
            for name, agent in self._agents.items()
        }
        self._output_ttl = None if output_ttl is None else seconds("output_ttl", output_ttl)
        level = privacy_level("privacy", privacy)
        self._levels = MappingProxyType({name: strictest(level, agent.privacy) for name, agent in self._agents.items()})
        self._store = _open_store(store, keys)
        self._gate = Gate(authority)
        self._resources = resources
        self._inline = execution == "inline"
        self._release_ttl = seconds("release_ttl", release_ttl)
        self._grace = seconds("grace", grace)
        self._max_takeovers = max_takeovers
        self._max_model_failures, self._backoff = max_model_failures, backoff
        self._recovers = recover
        if wakeup is not None and not callable(getattr(wakeup, "wake", None)):
            raise ConfigurationError("a wakeup is an object with wake(run_id), sync or async")
        self._wakeup = wakeup
        self._exporter = exporter_of(telemetry)
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
        if self._exporter is not None:
            self._exporter.census.watch(self._census)
        if self._recovers:
            looking = WorkLoop(self._executor(), concurrency=RECOVERING, poll=self._beat)
            self._opened.spawn_unwatched(looking.until_closed())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the steps in flight and hand their runs back; past the grace, a write in flight is uncertain."""
        here = self._open()
        try:
            await here.close(self._grace)
        finally:  # a caller who will not wait for the grace closes all the same
            if self._exporter is not None:
                self._exporter.census.unwatch(self._census)
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
    def store(self) -> RunStore:
        """The store: for its administration, and for what the runtime does not do. It is open while the runtime is."""
        return self._store

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The agents of this process, by their names."""
        return self._agents

    def disable_recovery(self) -> None:
        """Recover nothing while open, whatever `recover=` says: for a process that looks or decides, and ends.

        Raises:
            ConfigurationError: the runtime is open.
        """
        if self._opened is not None:
            raise ConfigurationError("say before the runtime is opened that it is not to recover")
        self._recovers = False

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

        Where its model fails and may answer later, the call goes on as soon as the run is due, if that is within 60 s;
        else the run is returned as it is, QUEUED, with its `problem` and `due_at`. So do `decide`, `reconcile`,
        `verify`, `retry` and `execute`. The runtime's closing, a cancel in this process and the caller's own
        cancellation end such a wait at once, and the run stays due when it was.

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
            privacy=self._levels[agent],
        )
        created: Claim | StoredRun | None
        if inline:
            created = await self._executor().start(new)
        else:
            created = await here.threads(self._store.create, new, lease=None)
            if created is None:
                self._tell_of(new.run_id)
        if isinstance(created, StoredRun):
            return self._view(created)
        return await self.get_run(new.run_id)

    async def execute(self, run_id: UUID | str) -> Run:
        """Claim a run that is queued, or that a dead process left, and go on with it. What a worker calls.

        A run that waits, has ended, is executed elsewhere or is not due is returned as it stands; so is one that this
        process cannot execute (it lacks the agent, a tool, or the key of the waiting turn), and `problem` says why.

        Raises:
            UnknownRun, InvalidIdentifier: there is no such run.
            KeyMissing: its transcript is sealed with a key that is not here. The run stays as it is.
        """
        run_id = parse_run_id(run_id)
        await self._executor().go_on(run_id, waits=self._inline)
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
        if await self._desk().decide(run_id, decision, actor) is RunStatus.QUEUED:
            await self._go_on(run_id)
        self._open().stepped(run_id)  # of a changed turn
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
        await self._go_on(run_id)
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
        here.stepped(run_id)
        if status in (RunStatus.RUNNING, RunStatus.CANCELLED):
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
        if isinstance(found, Landed):
            await self._go_on(run_id)
        stored = await self._open().threads(self._store.get, run_id)
        return self._view(stored, found)

    async def retry(self, run_id: UUID | str) -> Run:
        """Take a run in dead letter up where it stood, with its budget restored.

        Raises:
            NotRetryable: it is not in dead letter.
            UnknownRun, InvalidIdentifier: there is no such run.
        """
        run_id = parse_run_id(run_id)
        await self._open().threads(self._store.retry, run_id)
        await self._go_on(run_id)
        return await self.get_run(run_id)

    # -- reading --------------------------------------------------------------------------------

    async def get_run(self, run_id: UUID | str) -> Run:
        """Read one run.

        Raises:
            UnknownRun, InvalidIdentifier: there is no such run.
        """
        return self._view(await self._open().threads(self._store.get, parse_run_id(run_id)))

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
        return [self._view(run) for run in stored]

    async def list_steps(self, run_id: UUID | str, *, after: int = 0, limit: int = 1_000) -> Sequence[Step]:
        """List the steps of a run's trace behind the position `after`."""
        run_id, after = parse_run_id(run_id), _position(after)
        return await self._open().threads(self._store.list_steps, run_id, after=after, limit=_page(limit))

    def watch(self, run_id: UUID | str, *, after: int = 0, poll: float = 1.0) -> AsyncIterator[Step]:
        """Follow a run: yield the steps that `list_steps` lists, each once and in order, as they are stored.

        Whoever executes the run, here or elsewhere, it is read from the store: at once where this runtime stored the
        step, else with the next look. It goes on while the run waits for a person, and in dead letter, which is no end.
        It ends when the run is COMPLETED, FAILED or CANCELLED and its last step was yielded. What a late report adds
        after that is listed by `list_steps(after=…)`.

        It holds one page of steps, however slow its consumer is, and nothing that has to be closed. Who breaks off,
        or gives up waiting, goes on with the same iterator, or with another one `after` the last position.

        Args:
            run_id: the run.
            after: the position of a step: begin with the one behind it.
            poll: seconds between two looks for steps that nobody told of; it varies by a fifth.

        Raises:
            UnknownRun: there is no such run: when the first step is asked for. Later, that it was purged meanwhile.
            RuntimeClosed: the runtime is closed, or was closed before the run had ended.
            StoreUnavailable: the store does not answer.
            InvalidIdentifier, ConfigurationError: an argument cannot work: at once.
        """
        run_id, after = parse_run_id(run_id), _position(after)
        return Watch(self._open(), self._store, run_id, after=after, poll=seconds("poll", poll))

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

    # -- retention --------------------------------------------------------------------------------

    async def purge(
        self,
        *,
        older_than: timedelta,
        provenance_older_than: timedelta | None = None,
        progress: Callable[[Purged], None] | None = None,
    ) -> Purged:
        """Delete what is kept for no longer, in short transactions, beside whatever is under way.

        First the answers that are older than `output_ttl`. Then the content and the trace of each run that ended before
        `older_than`; one in dead letter fails (`RETENTION`). What such runs wrote, who they acted for and who decided
        what stays, until `provenance_older_than`. It may be broken off, and asked again, at any time.

        Args:
            older_than: since a run ended.
            provenance_older_than: likewise, and no less; None keeps provenance for ever.
            progress: told after each batch what has been deleted so far.

        Raises:
            ConfigurationError: an age is no timedelta, or provenance were to go before content. Nothing was deleted.
        """
        return await self._retention().purge(older_than, provenance_older_than, progress)

    async def work(self, *, concurrency: int = 50, poll: float = 1.0) -> None:
        """Take up the runs that are due, many at once, until the runtime closes or the caller is cancelled: a worker.

        Args:
            concurrency: how many runs are executed at a time.
            poll: seconds between two looks for runs that nobody told of; it varies by a fifth.

        Raises:
            ConfigurationError: one of these cannot work, or no agent is loaded.
        """
        if type(concurrency) is not int or concurrency < 1:
            raise ConfigurationError("concurrency is a whole number of at least 1")
        if not self._agents:
            raise ConfigurationError("a worker without agents would execute nothing: load some with agents=[…]")
        working = WorkLoop(self._executor(), concurrency=concurrency, poll=seconds("poll", poll))
        async with heard(self._wakeup, self._open().woken):
            await working.until_closed()

    def wake(self) -> None:
        """Let `work` look at once: some run may be due. Call it on the event loop on which the runtime is open."""
        self._open().woken.set()

    async def _go_on(self, run_id: UUID) -> None:
        """Go on with a run that was queued: here, or wherever a worker is."""
        if self._inline:
            with suppress(KeyMissing, SealBroken):  # what was decided stands, and the run says why it waits
                await self._executor().go_on(run_id, waits=True)
        else:
            self._tell_of(run_id)

    def _tell_of(self, run_id: UUID) -> None:
        here = self._open()
        here.woken.set()
        if self._wakeup is not None:
            here.spawn_unwatched(send(self._wakeup, run_id))

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

    def _census(self) -> Sequence[tuple[RunStatus, int, float]]:
        return self._store.census(MAX_COUNTED)

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
            levels=self._levels,
            resources=self._resources,
            retention=self._retention(),
            lease=self._lease,
            release_ttl=self._release_ttl,
            max_takeovers=self._max_takeovers,
            max_model_failures=self._max_model_failures,
            backoff=self._backoff,
            exporter=self._exporter,
        )

    def _retention(self) -> Retention:
        return Retention(self._store, self._open().threads, self._output_ttl)

    def _view(self, stored: StoredRun, found: Verification = None) -> Run:
        return view(stored, self._agents, found, output_ttl=self._output_ttl)

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


def _position(after: object) -> int:
    if type(after) is not int or not 0 <= after < MAX_POSITION:
        raise InvalidIdentifier("a position is that of a step, or 0")
    return after


def _page(limit: object) -> int:
    if type(limit) is not int or not 0 < limit <= MAX_PAGE:
        raise InvalidIdentifier(f"a limit is a whole number from 1 to {MAX_PAGE}")
    return limit
