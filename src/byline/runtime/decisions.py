"""What people say about runs: decisions on waiting turns, verdicts on uncertain writes.

    decision ▸ the turn as stored ▸ authority, grants, second approver ▸ one transaction compares and appends

Everything that asks the host comes before the transaction; the transaction compares digest, status
and expiry, so whatever changed in between refuses the decision (P13).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from pydantic import JsonValue
from uuid_utils.compat import uuid7

from byline.actors import AiActorContext, Grant, checked_actor
from byline.approval.decision import (
    Approve,
    Change,
    Decision,
    Deny,
    ReconcileVerdict,
    Reconciliation,
    Verdict,
)
from byline.approval.fence import FenceVerdict
from byline.approval.gate import Gate, propose
from byline.approval.prepare import read_arguments, with_previews
from byline.approval.turn import PendingCall, PendingTurn, stricter_ttl
from byline.driving import LoopRun
from byline.errors import (
    AlreadyDecided,
    DecidedAndFinished,
    InvalidArguments,
    InvalidIdentifier,
    KeyMissing,
    NotAllowed,
    NotDecidable,
    RunFinished,
    StaleDecision,
    ToolNotLoaded,
    UnknownCall,
)
from byline.runs.status import RunStatus
from byline.runs.steps import NewStep, StepKind
from byline.runtime.agent import Agent
from byline.runtime.store_threads import StoreThreads
from byline.store.protocol import Amendment, Ruling, RunStore, Settlement, StoredRun, was_released
from byline.tools.schema import canonical_json
from byline.tools.toolbox import Toolbox


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionDesk:
    """Takes decisions and verdicts, asks who may, and has the store compare and keep them."""

    store: RunStore
    threads: StoreThreads
    gate: Gate
    agents: Mapping[str, Agent]
    toolboxes: Mapping[str, Toolbox]
    resources: object

    async def decide(self, run_id: UUID, decision: Decision, actor: AiActorContext) -> RunStatus:
        """Take a decision.

        Returns:
            QUEUED, if it released the turn; AWAITING_APPROVAL, while something is still undecided.
        """
        checked_actor(actor)
        if not isinstance(decision, Decision):
            raise InvalidIdentifier("a decision is a Decision, such as Decision.approve(digest)")
        run = await self.threads(self.store.get, run_id)
        turn = self._waiting_turn(run, decision.digest)
        verdicts = _named(decision, turn, run)
        for_all = decision.for_all is not None
        if not for_all:
            already = verdicts.keys() & run.decided.keys()
            if already:
                raise AlreadyDecided("a verdict on this call has been given before, and none is changed")
        await self._check_verdicts(run, turn, verdicts, actor)
        if any(isinstance(verdict, Change) for verdict in verdicts.values()):
            await self._amend(run, turn, verdicts, actor)
            return RunStatus.AWAITING_APPROVAL
        ruling = Ruling(
            decision_id=uuid7(),
            run_id=run_id,
            digest=decision.digest,
            actor=actor,
            verdicts={i: verdict for i, verdict in verdicts.items() if not isinstance(verdict, Change)},
            waiting=turn.waiting,
            ttl=self._loaded_ttl(run),
        )
        return await self.threads(self.store.decide, ruling)

    async def reconcile(self, run_id: UUID, verdict: Reconciliation, actor: AiActorContext) -> None:
        """Take a person's word about an uncertain write."""
        checked_actor(actor)
        if not isinstance(verdict, Reconciliation):
            raise InvalidIdentifier("a verdict is a Reconciliation, such as Reconciliation.leave_it(digest)")
        if not isinstance(verdict.digest, str):
            raise StaleDecision("this is no digest: a verdict carries run.uncertain.digest of the call that was read")
        run = await self.threads(self.store.get, run_id)
        if run.status is not RunStatus.UNCERTAIN or run.fence is None:
            if verdict.digest in run.reconciled:
                raise DecidedAndFinished if run.status.is_terminal else AlreadyDecided
            if run.status.is_terminal:
                raise RunFinished
            raise NotDecidable("this run is not uncertain")
        if verdict.digest != run.fence.digest(run_id):
            raise StaleDecision
        if run.fence.call_id in verdict.deny:
            raise UnknownCall("the uncertain call itself is settled by the verdict; nothing was executed")
        if run.turn is not None and (unknown := verdict.deny - {call.id for call in run.turn.calls}):
            raise UnknownCall(f"the turn has no call {min(unknown)}; nothing was executed")
        if verdict.verdict is ReconcileVerdict.RUN_AGAIN:
            await self._check_run_again(run, actor)
        else:
            await self.gate.decider(actor, Grant.RECONCILE)
        known = FenceVerdict(verdict.verdict, verdict.target, actor.id, verdict.deny)
        await self.threads(
            self.store.reconcile,
            Settlement(decision_id=uuid7(), run_id=run_id, digest=verdict.digest, actor=actor, verdict=known),
        )

    def _waiting_turn(self, run: StoredRun, digest: str) -> PendingTurn:
        if run.status is not RunStatus.AWAITING_APPROVAL:
            if run.turn is not None and run.turn.digest == digest:
                raise AlreadyDecided
            if run.status.is_terminal:
                raise DecidedAndFinished if was_released(run.turn_digest, run.reason, digest) else RunFinished
            raise NotDecidable(f"this run does not wait for an approval: it is {run.status}")
        if run.turn is None:
            raise KeyMissing(run.problem)
        if not isinstance(digest, str) or len(digest) != len(run.turn.digest):
            raise StaleDecision("this is no digest: a decision carries run.pending.digest of the turn that was read")
        if digest != run.turn.digest:
            raise StaleDecision
        return run.turn

    async def _check_verdicts(
        self, run: StoredRun, turn: PendingTurn, verdicts: Mapping[UUID, Verdict], actor: AiActorContext
    ) -> None:
        """Refuse the whole decision if the actor may not give one of its verdicts (P14)."""
        only_denies = all(isinstance(verdict, Deny) for verdict in verdicts.values())
        if only_denies and actor.id == run.actor.id:
            await self.gate.decider(actor)
            return
        known = await self.gate.decider(actor, Grant.APPROVE)
        for call_id, verdict in verdicts.items():
            call = _call(turn, call_id)
            if isinstance(verdict, Deny):
                continue
            self._check_loaded(run, call)
            if isinstance(verdict, Approve):
                second = self._needs_second(run, turn)
                await self.gate.check_release(known, call, turn, run.actor.id, second_approver=second)

    def _needs_second(self, run: StoredRun, turn: PendingTurn) -> bool:
        """The stricter of what was stored with the turn and what is loaded now."""
        return turn.second_approver or self.agents[run.agent].second_approver

    def _loaded_ttl(self, run: StoredRun) -> float | None:
        agent = self.agents.get(run.agent)
        return None if agent is None else agent.approval_ttl

    def _check_loaded(self, run: StoredRun, call: PendingCall) -> None:
        agent = self.agents.get(run.agent)
        if agent is None:
            raise ToolNotLoaded(f"agent {run.agent!r} is not loaded in this process: it can deny and cancel only")
        if self.toolboxes[run.agent].get(call.tool) is None:
            raise ToolNotLoaded(f"tool {call.tool!r} is not loaded in this process: it can deny and cancel only")

    async def _check_run_again(self, run: StoredRun, actor: AiActorContext) -> None:
        """A release like any other (P14)."""
        known = await self.gate.decider(actor, Grant.APPROVE)
        if run.turn is None or run.fence is None:
            raise KeyMissing(run.problem)
        call = _call(run.turn, run.fence.call_id)
        self._check_loaded(run, call)
        second = self._needs_second(run, run.turn)
        await self.gate.check_release(known, call, run.turn, run.actor.id, second_approver=second)

    async def _amend(
        self, run: StoredRun, turn: PendingTurn, verdicts: Mapping[UUID, Verdict], actor: AiActorContext
    ) -> None:
        """Put changed arguments before the people again: validated, previewed, under a new digest."""
        toolbox = self.toolboxes[run.agent]
        agent = self.agents[run.agent]
        known = await self.gate.decider(actor, Grant.APPROVE)
        calls: list[PendingCall] = []
        for call in turn.calls:
            verdict = verdicts.get(call.id)
            calls.append(_changed(call, verdict, toolbox, actor) if isinstance(verdict, Change) else call)
        changed = frozenset(i for i, verdict in verdicts.items() if isinstance(verdict, Change))
        for call in calls:
            if call.id in changed and not await self.gate.may_run(known, propose(turn, call)):
                raise NotAllowed(f"the authority does not let this actor run {call.tool} with these arguments")
        place = LoopRun(actor=run.actor, run_id=run.run_id, claim=run.claim, resources=self.resources)
        contexts = {call.id: place.context(call.id) for call in calls}
        previewed = await with_previews((call for call in calls if call.id in changed), toolbox, contexts)
        fresh = {call.id: call for call in previewed}
        amended = replace(
            turn,
            suspension=turn.suspension + 1,
            calls=tuple(fresh.get(call.id, call) for call in calls),
            second_approver=turn.second_approver or agent.second_approver,
            approval_ttl=stricter_ttl(turn.approval_ttl, agent.approval_ttl),
            expires_at=None,
        )
        await self.threads(
            self.store.amend,
            Amendment(
                decision_id=uuid7(),
                run_id=run.run_id,
                digest=turn.digest,
                actor=actor,
                changed=changed,
                turn=amended,
                verdicts={i: verdict for i, verdict in verdicts.items() if not isinstance(verdict, Change)},
                ttl=amended.approval_ttl,
                steps=tuple(_change_step(amended, call, actor) for call in previewed),
            ),
        )


def _named(decision: Decision, turn: PendingTurn, run: StoredRun) -> dict[UUID, Verdict]:
    """The decision's verdicts by call. A call that is not one of the waiting ones is refused: nothing runs."""
    if decision.for_all is not None:
        undecided = turn.waiting - run.decided.keys()
        return dict.fromkeys(sorted(undecided), decision.for_all)
    unknown = decision.verdicts.keys() - turn.waiting
    if unknown:
        raise UnknownCall(f"no call {min(map(str, unknown))} waits for a decision; nothing was executed")
    return dict(decision.verdicts)


def _call(turn: PendingTurn, call_id: UUID) -> PendingCall:
    call = turn.call(call_id)
    if call is None:
        raise UnknownCall
    return call


def _changed(call: PendingCall, change: Change, toolbox: Toolbox, actor: AiActorContext) -> PendingCall:
    """Hold changed arguments against the loaded tool and against the schema stored with the turn."""
    tool = toolbox.get(call.tool)
    if tool is None:
        raise ToolNotLoaded
    import jsonschema  # takes longer to import than the rest of this module; few decisions need it

    arguments = read_arguments(tool, canonical_json(dict(change.arguments)))
    try:
        jsonschema.validate(arguments, dict(call.parameters))
    except jsonschema.ValidationError as error:
        where = "/".join(map(str, error.absolute_path)) or "the arguments"
        raise InvalidArguments(f"{where}: does not fit the schema that was stored with the turn") from None
    proposed = call.arguments if call.proposed is None else call.proposed
    before = () if call.changed_by is None else (call.changed_by,)
    return replace(
        call,
        arguments=arguments,
        proposed=proposed,
        changed_by=actor.id,
        changed_before=(*call.changed_before, *before),
        preview=(),
    )


def _change_step(turn: PendingTurn, call: PendingCall, actor: AiActorContext) -> NewStep:
    """Record a change by digests: they stay when the arguments themselves, which are sealed, are deleted."""
    payload: dict[str, JsonValue] = {
        "calls": len(turn.calls),
        "digest": turn.digest,
        "by": actor.id,
        "proposed": _digest_of(call.id, call.proposed or {}),
        "arguments": _digest_of(call.id, call.arguments),
    }
    shown = (f"{call.tool} {canonical_json(dict(call.arguments))}", *call.preview)
    return NewStep(StepKind.SUSPENDED, call.id, payload, content="\n".join(shown))


def _digest_of(call_id: UUID, arguments: Mapping[str, JsonValue]) -> str:
    """SHA-256, in hexadecimal, of the arguments of this call: equal arguments of two calls do not show as equal."""
    bound: dict[str, JsonValue] = {"call": str(call_id), "arguments": dict(arguments)}
    return hashlib.sha256(canonical_json(bound).encode()).hexdigest()
