"""Executing runs: claim, execute a segment, look what became of a write, and take up what nobody executes."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from uuid_utils.compat import uuid7

from byline.approval.decision import ReconcileVerdict
from byline.approval.fence import FenceVerdict
from byline.approval.gate import Gate
from byline.driving import LoopRun
from byline.errors import NotDecidable
from byline.loop import ToolLoop
from byline.runs.status import RunStatus
from byline.runtime.agent import Agent
from byline.runtime.opened import Opened
from byline.runtime.segment import Segment, Workplace
from byline.runtime.view import problem
from byline.store.protocol import Claimed, RunStore, Settlement, StoredRun
from byline.tools.protocol import Landed, Verification
from byline.tools.result import WriteTarget
from byline.tools.toolbox import Toolbox

_log = logging.getLogger(__name__)

BATCH = 100
"""How many runs one look for stale or expired ones takes up."""
VERIFY_TIMEOUT = 30.0
"""Seconds a tool's `verify` may take."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What one `recover` did.

    Attributes:
        executed: runs that were taken up: handed back, decided and not begun, or left by a dead process.
        expired: runs whose approval had expired; they are FAILED now.
        skipped: runs that this process cannot execute, with the reason.
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

    async def begin(self, claimed: Claimed, asked_at: float) -> None:
        """Execute a run that was claimed when it was created."""
        await self._follow(self._execute(claimed, asked_at))

    async def recover(self) -> Recovery:
        """Settle what has expired, and take up what nobody executes."""
        expired = await self.here.threads(self.store.expire, BATCH)
        executed: list[UUID] = []
        skipped: dict[UUID, str] = {}
        for run_id in await self.here.threads(self.store.claimable, BATCH):
            if self.here.closing.is_set():
                break
            why = problem(await self.here.threads(self.store.get, run_id), self.agents)
            if why is not None:
                skipped[run_id] = why
            else:
                await self.go_on(run_id)
                executed.append(run_id)
        return Recovery(tuple(executed), tuple(expired), MappingProxyType(skipped))

    async def recover_on(self, pause: float) -> None:
        """Recover again and again, until the runtime closes."""
        while not self.here.closing.is_set():
            try:
                await self.recover()
            except Exception:  # noqa: BLE001 - what one round could not do stays in the store for the next
                _log.exception("A round of recovery failed", extra={"action": "recovery_failed"})
            try:
                await asyncio.wait_for(self.here.closing.wait(), pause)
            except TimeoutError:
                continue

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
            async with asyncio.timeout(VERIFY_TIMEOUT):
                found = await tool.check_landed(context, call.arguments)
        except Exception:  # noqa: BLE001 - a check that fails tells nothing: the call stays uncertain
            _log.exception("The verify of %s failed", call.tool, extra={"action": "verify_failed"})
            return None
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

    async def _follow(self, executing: Coroutine[object, object, object]) -> None:
        """Wait for an execution that belongs to the runtime: a cancelled caller ends no write (P22)."""
        task = self.here.spawn(executing)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self.here.hand_back(task)
            raise

    async def _claim_and_execute(self, run_id: UUID) -> None:
        while not self.here.closing.is_set():
            stored = await self.here.threads(self.store.get, run_id)
            if problem(stored, self.agents) is not None:
                return
            asked_at = time.monotonic()
            claimed = await self.here.threads(self.store.claim, run_id, lease=self.lease, takeovers=self.max_takeovers)
            if claimed is None or not await self._execute(claimed, asked_at):
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
        if fence is None:
            return False
        stored = await self.here.threads(self.store.get, run_id)
        return stored.status is RunStatus.UNCERTAIN and isinstance(await self.verify(stored), Landed)
