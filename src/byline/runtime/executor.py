"""Executing runs: claim, execute a segment, look what became of a write, and take up what nobody executes."""

import asyncio
import copy
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from uuid_utils.compat import uuid7

from byline.approval.decision import ReconcileVerdict
from byline.approval.fence import FenceVerdict
from byline.approval.gate import Gate
from byline.driving import LoopRun
from byline.errors import BylineError, KeyMissing, NotDecidable, RuntimeClosed, SealBroken, StoreUnavailable, UnknownRun
from byline.hosted import goes_on, where_raised, within
from byline.loop import ToolLoop
from byline.privacy import PrivacyLevel
from byline.runs.status import RunStatus, TerminationReason
from byline.runtime.agent import Agent
from byline.runtime.opened import Opened, comes_within
from byline.runtime.retention import Retention
from byline.runtime.retrying import Backoff
from byline.runtime.segment import Segment, Workplace, delay_of_released
from byline.runtime.view import problem
from byline.store.protocol import (
    BecomeUncertain,
    Claim,
    Claimed,
    HandBack,
    NewRun,
    Postpone,
    Release,
    RunStore,
    Settle,
    Settlement,
    StoredRun,
    Suspend,
)
from byline.telemetry import Observation, observe_segment
from byline.tools.protocol import Landed, Verification
from byline.tools.result import WriteTarget
from byline.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from byline.telemetry.exporting import Exporter

T = TypeVar("T")

_log = logging.getLogger(__name__)

BATCH = 100
"""How many runs one look for stale or expired ones takes up."""
LONGEST_WAIT = 60.0
"""Seconds for which somebody who waits for a run is kept waiting, at a time, until its model is asked again."""
LOOK_AGAIN = 1.0
"""Seconds after which whoever waits looks at the run: it may have been cancelled elsewhere, or its time moved."""
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
    levels: Mapping[str, PrivacyLevel]
    resources: object
    retention: Retention
    lease: float
    release_ttl: float
    max_takeovers: int
    max_model_failures: int
    backoff: Backoff
    exporter: "Exporter | None"

    async def go_on(self, run_id: UUID, *, waits: bool = False) -> None:
        """Claim a run and execute it until it waits or ends; do nothing if another segment has it.

        Args:
            run_id: the run.
            waits: whether somebody waits for it: after a failure of its model it is gone on with here as soon as it is
                due, if that is within `LONGEST_WAIT`.
        """
        await self._follow(self._claim_and_execute(run_id, waits=waits))

    async def start(self, new: NewRun) -> StoredRun | None:
        """Create a run and execute it for somebody who waits, as `go_on` does.

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
        expired = await self.expire()
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
                why = await self.take_up(run_id)
                if why is None:
                    executed.append(run_id)
                else:
                    skipped[run_id] = why
        return Recovery(tuple(executed), tuple(expired), MappingProxyType(skipped))

    async def expire(self) -> Sequence[UUID]:
        """Settle waiting runs whose approval has expired, and delete answers that are kept for no longer."""
        await self.retention.drop_answers()
        ttls = {agent.name: agent.approval_ttl for agent in self.agents.values() if agent.approval_ttl is not None}
        expired = await self.here.threads(self.store.expire, BATCH, ttls=ttls)
        for run_id in expired:
            self.here.stepped(run_id)
        return expired

    async def due(self, limit: int) -> list[UUID]:
        """List runs of the loaded agents that nobody executes, the longest waiting first."""
        found = await self.here.threads(self.store.claimable, limit, agents=self.agents.keys())
        return [run_id for _, run_id in found]

    async def take_up(self, run_id: UUID) -> str | None:
        """Go on with a run, or say why that is not possible: one that is broken must not hold up the others."""
        try:
            why = await self._why_not(await self.here.threads(self.store.get, run_id))
            if why is None:
                await self.go_on(run_id)
        except (StoreUnavailable, RuntimeClosed):
            raise  # then it is no run's fault
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this run's
            extra = {"action": "not_taken_up", "run_id": str(run_id)}
            _log.warning("Run %s could not be taken up: %s", run_id, where_raised(error), extra=extra)
            why = str(error) if isinstance(error, BylineError) else f"it failed with {type(error).__name__}"
            await self._defer(run_id, why)
        return why

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
            extra = {"action": "verify_failed", "tool": call.tool, "run_id": str(stored.run_id)}
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
            extra = {"action": "settled_before", "run_id": str(run_id)}
            _log.info("Somebody settled run %s before its tool's verify did", run_id, extra=extra)

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
            await self._execute_created(new, Claim(new.run_id, 1, stored.privacy), asked_at)

    async def _execute_created(self, new: NewRun, claim: Claim, asked_at: float) -> None:
        if await self._execute(_as_created(new, claim), asked_at):
            await self._claim_and_execute(new.run_id, waits=True)

    async def _claim_and_execute(self, run_id: UUID, *, waits: bool) -> None:
        with self.here.patient(run_id) as enough:
            await self._execute_segments(run_id, LONGEST_WAIT if waits else 0, enough)

    async def _execute_segments(self, run_id: UUID, patience: float, enough: asyncio.Event) -> None:
        """Claim a run and execute it, again after each wait of at most `patience` seconds, until it is `enough`."""
        while not self.here.closing.is_set():
            stored = await self.here.threads(self.store.get, run_id)
            if await self._why_not(stored) is not None:
                return
            delay = _postponed_for(stored)
            if delay > 0:
                if delay > patience or await comes_within(min(delay, LOOK_AGAIN), enough):
                    return
                continue
            asked_at = time.monotonic()
            claimed = await self._claim(run_id, self.levels[stored.agent])
            if claimed is not None:
                again = await self._execute(claimed, asked_at)
            else:  # if it was given up on, its fence may stand for a call that nobody was asked about
                unasked = stored.status is RunStatus.RUNNING and stored.fence_verdict is None
                again = unasked and stored.fence is not None and await self._is_settled(run_id)
            if not again:
                return

    async def _why_not(self, stored: StoredRun) -> str | None:
        """Say why this process cannot execute a run, or None. One of its own agents is left to others for a while."""
        why = problem(stored, self.agents)
        if why is not None and stored.agent in self.agents:
            await self._defer(stored.run_id, why)
        return why

    async def _claim(self, run_id: UUID, level: PrivacyLevel) -> Claimed | None:
        claim, lease, takeovers = self.store.claim, self.lease, self.max_takeovers
        try:
            return await self.here.threads(claim, run_id, lease=lease, takeovers=takeovers, privacy=level)
        except (KeyMissing, SealBroken) as error:  # the claim was rolled back: nothing of it is spent
            await self._defer(run_id, str(error))
            raise
        finally:
            self.here.stepped(run_id)  # of one that was given up on

    async def _defer(self, run_id: UUID, why: str) -> None:
        extra = {"action": "deferred", "run_id": str(run_id)}
        _log.warning("Run %s cannot be executed here, and is left to others for a while: %s", run_id, why, extra=extra)
        await self.here.threads(self.store.defer, run_id, why, delay=delay_of_released())

    async def _execute(self, claimed: Claimed, asked_at: float) -> bool:
        """Execute one segment.

        Returns:
            Whether its run is to be taken up again: at once, if a fact has settled it, or once it is due.
        """
        name, run_id = claimed.run.agent, claimed.run.run_id
        place = Workplace(
            store=self.store,
            threads=self.here.threads,
            heartbeat=self.here.heartbeat,
            gate=self.gate,
            resources=self.resources,
            release_ttl=self.release_ttl,
            max_model_failures=self.max_model_failures,
            backoff=self.backoff,
            spawn=self.here.spawn_unwatched,
            stepped=self.here.stepped,
        )
        segment = Segment(claimed, asked_at, self.agents[name], self.loops[name], place)
        observation = observe_segment(self.exporter, run_id=run_id, agent=name, level=claimed.claim.privacy)
        with self.here.executing(segment, run_id), observation as observed:
            fence = await segment.run()
            _observe_end(observed, segment)
        return isinstance(segment.left, Postpone) or (fence is not None and await self._is_settled(run_id))

    async def _is_settled(self, run_id: UUID) -> bool:
        """Whether a fact settles the call that has just become uncertain: its tool's verify, or an earlier report."""
        stored = await self.here.threads(self.store.get, run_id)
        if stored.status is RunStatus.QUEUED and stored.fence_verdict is not None:
            return True  # whoever had lost its claim had reported before
        return stored.status is RunStatus.UNCERTAIN and isinstance(await self.verify(stored), Landed)


def _observe_end(observed: Observation, segment: Segment) -> None:
    if segment.lost:
        observed.lost()
        return
    match segment.left:
        case Settle(status=status, reason=reason):
            well = status in (RunStatus.COMPLETED, RunStatus.CANCELLED)
            observed.left(status.value, None if well else reason.value)
        case BecomeUncertain(reason=reason):
            observed.left(RunStatus.UNCERTAIN.value, reason.value)
        case Suspend():
            observed.left(RunStatus.AWAITING_APPROVAL.value)
        case Postpone():
            observed.left(RunStatus.QUEUED.value, TerminationReason.MODEL_FAILED.value)
        case HandBack() | Release():
            observed.left(RunStatus.QUEUED.value)
        case _:  # nothing that ends a segment was stored: what it raised says why
            pass


def _postponed_for(stored: StoredRun) -> float:
    """For how many seconds, by the database's clock, nobody may claim a run, since its model failed."""
    if stored.status is not RunStatus.QUEUED or stored.reason is not TerminationReason.MODEL_FAILED:
        return 0.0
    assert stored.due_at is not None
    assert stored.read_at is not None
    return (stored.due_at - stored.read_at).total_seconds()


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
        model_failures=0,
        cancel_requested=False,
        created_at=now,
        updated_at=now,
        fence=None,
        fence_verdict=None,
        turn=None,
        privacy=new.privacy,
    )
    return Claimed(claim=claim, run=run, messages=new.messages, taken_over=False, release_age=None)
