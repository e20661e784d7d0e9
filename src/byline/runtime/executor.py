"""Executing runs: claim, execute a segment, look what became of a write, and take up what nobody executes."""

import asyncio
import copy
import logging
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TypeVar
from uuid import UUID

from uuid_utils.compat import uuid7

from byline.approval.decision import ReconcileVerdict
from byline.approval.fence import FenceVerdict
from byline.approval.gate import Gate
from byline.driving import LoopRun
from byline.errors import BylineError, NotDecidable, RuntimeClosed, StoreUnavailable, UnknownRun
from byline.hosted import goes_on, where_raised, within
from byline.loop import ToolLoop
from byline.runs.status import RunStatus
from byline.runtime.agent import Agent
from byline.runtime.opened import Opened
from byline.runtime.segment import Segment, Workplace
from byline.runtime.view import problem
from byline.store.protocol import Claim, Claimed, NewRun, RunStore, Settlement, StoredRun
from byline.tools.protocol import Landed, Verification
from byline.tools.result import WriteTarget
from byline.tools.toolbox import Toolbox

T = TypeVar("T")

_log = logging.getLogger(__name__)

BATCH = 100
"""How many runs one look for stale or expired ones takes up."""
ROUNDS = 8
"""How many rounds of recovery may be under way at once: each is held up by the run that it executes."""
VERIFY_TIMEOUT = 30.0
"""Seconds a tool's `verify` may take."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What one `recover` did.

    Attributes:
        executed: runs that were taken up: handed back, decided and not begun, or left by a dead process.
        expired: runs whose approval had expired; they are FAILED now.
        skipped: runs of the agents loaded here that this process cannot execute all the same (a key is missing, they
            cannot be read), with the reason. Those of other agents are left to the processes that load them.
    """

    executed: tuple[UUID, ...]
    expired: tuple[UUID, ...]
    skipped: Mapping[UUID, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """Executes the runs of an open runtime."""

    here: Opened
    store: RunStore
    gate: Gate
    agents: Mapping[str, Agent]
    loops: Mapping[str, ToolLoop]
    toolboxes: Mapping[str, Toolbox]
    resources: object
    lease: float
    release_ttl: float
    max_takeovers: int

    async def go_on(self, run_id: UUID) -> None:
        """Claim a run and execute it until it waits or ends; do nothing if another segment has it."""
        await self._follow(self._claim_and_execute(run_id))

    async def start(self, new: NewRun) -> StoredRun | None:
        """Create a run and execute it.

        Returns:
            The run that has the same dedupe key, and nothing was created; or None.
        """
        asked_at = time.monotonic()
        try:
            created = await self.here.threads(self.store.create, new, lease=self.lease)
        except asyncio.CancelledError:
            self.here.hand_back(self.here.spawn(self._take_back(new, asked_at)))
            raise
        if isinstance(created, StoredRun):
            return created
        if created is not None:
            await self._follow(self._execute_created(new, created, asked_at))
        return None

    async def recover(self) -> Recovery:
        """Settle what has expired, and take up what nobody executes."""
        ttls = {agent.name: agent.approval_ttl for agent in self.agents.values() if agent.approval_ttl is not None}
        expired = await self.here.threads(self.store.expire, BATCH, ttls=ttls)
        executed: list[UUID] = []
        skipped: dict[UUID, str] = {}
        seen: set[UUID] = set()
        page, after = BATCH, None
        while page == BATCH and len(executed) < BATCH:
            # What has to be skipped is found before all that has waited for a shorter time: so look past it.
            found = await self.here.threads(self.store.claimable, BATCH, agents=self.agents.keys(), after=after)
            page, after = len(found), found[-1] if found else None
            unseen = [run_id for _, run_id in found if run_id not in seen]  # one may have been queued again meanwhile
            seen.update(unseen)
            for run_id in unseen:
                if self.here.closing.is_set():
                    return Recovery(tuple(executed), tuple(expired), MappingProxyType(skipped))
                why = await self._take_up(run_id)
                if why is None:
                    executed.append(run_id)
                else:
                    skipped[run_id] = why
        return Recovery(tuple(executed), tuple(expired), MappingProxyType(skipped))

    async def _take_up(self, run_id: UUID) -> str | None:
        """Go on with a run, or say why that is not possible: one that is broken must not hold up the others."""
        try:
            why = problem(await self.here.threads(self.store.get, run_id), self.agents)
            if why is None:
                await self.go_on(run_id)
        except StoreUnavailable:
            raise  # then it is no run's fault
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this run's
            extra = {"action": "not_taken_up", "run_id": str(run_id)}
            _log.warning("Run %s could not be taken up: %s", run_id, where_raised(error), extra=extra)
            return str(error) if isinstance(error, BylineError) else f"it failed with {type(error).__name__}"
        return why

    async def recover_on(self, pause: float) -> None:
        """Recover again and again, until the runtime closes. A round that takes long keeps no other from beginning."""
        rounds: set[asyncio.Task[None]] = set()
        while not self.here.closing.is_set():
            rounds = {under_way for under_way in rounds if not under_way.done()}
            if len(rounds) < ROUNDS:
                rounds.add(self.here.spawn(self._recover_once()))
            try:
                await asyncio.wait_for(self.here.closing.wait(), pause)
            except TimeoutError:
                continue

    async def _recover_once(self) -> None:
        try:
            await self.recover()
        except Exception:  # noqa: BLE001 - what one round could not do stays in the store for the next
            _log.exception("A round of recovery failed", extra={"action": "recovery_failed"})

    async def verify(self, stored: StoredRun) -> Verification:
        """Ask the tool whether the fenced call landed; if so, that fact settles it."""
        call = None if stored.turn is None or stored.fence is None else stored.turn.call(stored.fence.call_id)
        toolbox = self.toolboxes.get(stored.agent)
        tool = None if call is None or toolbox is None else toolbox.get(call.tool)
        if call is None or stored.fence is None or tool is None or not tool.verifies:
            return None
        place = LoopRun(actor=stored.actor, run_id=stored.run_id, claim=stored.claim, resources=self.resources)
        context = place.context(call.id, attempt=stored.fence.attempt, timeout=VERIFY_TIMEOUT)
        try:
            found = await within(VERIFY_TIMEOUT, tool.check_landed(context, copy.deepcopy(call.arguments)))
        except BaseException as error:
            if goes_on(error):
                raise
            extra = {"action": "verify_failed", "tool": call.tool}
            _log.error("The verify of %s failed: %s", call.tool, where_raised(error), extra=extra)
            return None  # it tells nothing: the call stays uncertain
        if isinstance(found, Landed):
            await self._settle_by_fact(stored.run_id, stored.fence.digest(stored.run_id), found)
        return found

    async def _settle_by_fact(self, run_id: UUID, digest: str, found: Landed) -> None:
        landed = FenceVerdict(ReconcileVerdict.LANDED, WriteTarget(found.record, found.kind), None)
        settlement = Settlement(decision_id=uuid7(), run_id=run_id, digest=digest, actor=None, verdict=landed)
        try:
            await self.here.threads(self.store.reconcile, settlement)
        except NotDecidable:
            _log.info("Somebody settled run %s before its tool's verify did", run_id)

    async def _follow(self, executing: Coroutine[object, object, T]) -> T:
        """Wait for an execution that belongs to the runtime: a cancelled caller ends no write (P22)."""
        task = self.here.spawn(executing)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # not this caller's doing: the runtime is past its grace
                raise RuntimeClosed("the runtime was closed while this run was executed") from None
            if not task.done():
                self.here.hand_back(task)
            raise

    async def _take_back(self, new: NewRun, asked_at: float) -> None:
        """Hand a run back whose caller went away while it was created: if it was, it is claimed, and nobody has it."""
        try:
            stored = await self.here.threads(self.store.get, new.run_id)
        except UnknownRun:
            return
        if stored.claim == 1:
            await self._execute_created(new, Claim(new.run_id, 1), asked_at)

    async def _execute_created(self, new: NewRun, claim: Claim, asked_at: float) -> None:
        if await self._execute(_as_created(new, claim), asked_at):
            await self._claim_and_execute(new.run_id)

    async def _claim_and_execute(self, run_id: UUID) -> None:
        while not self.here.closing.is_set():
            stored = await self.here.threads(self.store.get, run_id)
            if problem(stored, self.agents) is not None:
                return
            asked_at = time.monotonic()
            claimed = await self.here.threads(self.store.claim, run_id, lease=self.lease, takeovers=self.max_takeovers)
            if claimed is not None:
                settled = await self._execute(claimed, asked_at)
            else:  # if it was given up on, its fence may stand for a call that nobody was asked about
                unasked = stored.status is RunStatus.RUNNING and stored.fence_verdict is None
                settled = unasked and stored.fence is not None and await self._is_settled(run_id)
            if not settled:
                return

    async def _execute(self, claimed: Claimed, asked_at: float) -> bool:
        """Execute one segment. Returns whether its run is to be taken up again at once: a fact has settled it."""
        name, run_id = claimed.run.agent, claimed.run.run_id
        place = Workplace(
            store=self.store,
            threads=self.here.threads,
            heartbeat=self.here.heartbeat,
            gate=self.gate,
            resources=self.resources,
            release_ttl=self.release_ttl,
            spawn=self.here.spawn_unwatched,
        )
        segment = Segment(claimed, asked_at, self.agents[name], self.loops[name], place)
        with self.here.executing(segment, run_id):
            fence = await segment.run()
        return fence is not None and await self._is_settled(run_id)

    async def _is_settled(self, run_id: UUID) -> bool:
        """Whether a fact settles the call that has just become uncertain: its tool's verify, or an earlier report."""
        stored = await self.here.threads(self.store.get, run_id)
        if stored.status is RunStatus.QUEUED and stored.fence_verdict is not None:
            return True  # whoever had lost its claim had reported before
        return stored.status is RunStatus.UNCERTAIN and isinstance(await self.verify(stored), Landed)


def _as_created(new: NewRun, claim: Claim) -> Claimed:
    """What a claim of a run just created would read back."""
    now = datetime.now(UTC)  # shown nowhere: the store has its own
    run = StoredRun(
        run_id=new.run_id,
        agent=new.agent,
        actor=new.actor,
        status=RunStatus.RUNNING,
        reason=None,
        claim=claim.number,
        suspension=0,
        takeovers=0,
        cancel_requested=False,
        created_at=now,
        updated_at=now,
        fence=None,
        fence_verdict=None,
        turn=None,
    )
    return Claimed(claim=claim, run=run, messages=new.messages, taken_over=False, release_age=None)
