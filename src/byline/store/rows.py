"""Between rows and the objects of the protocol: what is sealed is sealed and unsealed here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias
from uuid import UUID

from sqlalchemy import Row

from byline.actors import AiActorContext, Grant, Scope
from byline.approval.decision import Approve, CallVerdict, Deny, ReconcileVerdict
from byline.approval.fence import Fence, FenceVerdict
from byline.approval.turn import PendingTurn, dump_turn, load_turn
from byline.errors import KeyMissing, SealBroken
from byline.models.messages import Message, dump_message, load_message
from byline.privacy import PrivacyLevel
from byline.records import RecordReference, WriteKind
from byline.runs.run import Reason
from byline.runs.status import RunStatus, TerminationReason, UncertaintyReason
from byline.runs.steps import NewStep, Step, StepKind, WriteFact
from byline.store.clock import to_datetime
from byline.store.protocol import Claim, LateReport, StoredRun
from byline.store.sealing import Seals, Unseals
from byline.store.tables import TurnVerdict
from byline.tools.effect import ToolEffect
from byline.tools.result import WriteTarget

AnyRow: TypeAlias = Row[*tuple[Any, ...]]
Values: TypeAlias = dict[str, object]


class Unsealing:
    """Unseals what belongs to one run: strictly, or going on and keeping the first `problem`."""

    def __init__(self, sealer: Unseals, run_id: UUID, *, strict: bool) -> None:
        self._sealer = sealer
        self._run_id = run_id
        self._strict = strict
        self.problem: str | None = None

    def __call__(self, sealed: bytes | None, table: str, column: str, owner: object = "") -> bytes | None:
        """Unseal one value; None stays None."""
        if sealed is None:
            return None
        try:
            return self._sealer.unseal(sealed, table, column, self._run_id, owner)
        except (KeyMissing, SealBroken) as error:
            self._fails(error)
            return None

    def turn(self, sealed: bytes | None) -> PendingTurn | None:
        """Unseal the run's turn."""
        data = self(sealed, "run", "turn")
        if data is None:
            return None
        try:
            return load_turn(data)
        except ValueError:  # whose message holds what the turn holds
            fault = unreadable("turn", self._run_id)
        self._fails(fault)
        return None

    def _fails(self, error: KeyMissing | SealBroken) -> None:
        if self._strict:
            raise error
        self.problem = self.problem or str(error)


def unreadable(column: str, run_id: UUID) -> SealBroken:
    """Say that a value opens with its key, and is nothing that this version of Byline reads."""
    return SealBroken(f"the {column} of run {run_id} opens, and is none that this version of Byline can read")


def actor_values(actor: AiActorContext) -> Values:
    """Write an actor."""
    return {
        "actor_id": actor.id,
        "actor_scope": actor.scope.value,
        "actor_grants": " ".join(sorted(actor.grants)),
    }


def actor_of(row: AnyRow) -> AiActorContext:
    """Read an actor."""
    grants = frozenset(Grant(grant) for grant in row.actor_grants.split())
    return AiActorContext(row.actor_id, Scope(row.actor_scope), grants)


def fence_of(row: AnyRow) -> Fence | None:
    """Read the fence of a run's row."""
    if row.fence_call is None:
        return None
    return Fence(row.fence_call, row.fence_tool, ToolEffect(row.fence_effect), row.fence_attempt)


def target_values(target: WriteTarget | None) -> Values:
    """Write a target. Its uid is text here; `RecordReference` makes it an int again."""
    if target is None:
        return {"record_table": None, "record_uid": None, "write_kind": None}
    return {
        "record_table": target.record.table,
        "record_uid": str(target.record.uid),
        "write_kind": target.kind.value,
    }


def target_of(row: AnyRow) -> WriteTarget | None:
    """Read a target."""
    if row.write_kind is None:
        return None
    return WriteTarget(RecordReference(row.record_table, row.record_uid), WriteKind(row.write_kind))


def message_values(run_id: UUID, messages: Iterable[Message], at: int, sealer: Seals) -> list[Values]:
    """Seal messages, the first of them with the sequence number `at`."""
    return [
        {
            "run_id": run_id,
            "seq": seq,
            "body": sealer.seal(dump_message(message), "message", "body", run_id, seq),
        }
        for seq, message in enumerate(messages, at)
    ]


def message_of(row: AnyRow, sealer: Unseals) -> Message:
    """Unseal a message.

    Raises:
        KeyMissing, SealBroken: it cannot be unsealed, or read.
    """
    data = sealer.unseal(row.body, "message", "body", row.run_id, row.seq)
    try:
        return load_message(data)
    except ValueError:  # whose message may hold what was said
        fault = unreadable(f"message {row.seq}", row.run_id)
    raise fault


def seal_turn(turn: PendingTurn, sealer: Seals) -> bytes:
    """Seal a turn. When its approval expires is a column of its own, by the database's clock."""
    return sealer.seal(dump_turn(replace(turn, expires_at=None)), "run", "turn", turn.run_id)


def seal_output(output: str, run_id: UUID, sealer: Seals) -> bytes:
    """Seal a run's answer."""
    return sealer.seal(output.encode("utf-8", "surrogatepass"), "run", "output", run_id)


@dataclass(frozen=True, slots=True)
class VerdictWriter:
    """Writes the verdicts of one decision on the calls of one suspension, all but their time."""

    decision_id: UUID
    run_id: UUID
    suspension: int
    digest: str
    sealer: Seals

    def __call__(self, call_id: UUID, verdict: Approve | Deny | None, actor_id: str) -> Values:
        """Write one; None says that the call's arguments were changed."""
        kind, reason = TurnVerdict.CHANGE, None
        match verdict:
            case Approve():
                kind = TurnVerdict.APPROVE
            case Deny(text):
                kind = TurnVerdict.DENY
                place = ("decision", "reason", self.run_id, reason_owner(self.decision_id, call_id))
                reason = self.sealer.seal(text.encode(), *place) if text else None
            case None:
                pass
        return {
            "id": self.decision_id,
            "call_id": call_id,
            "run_id": self.run_id,
            "suspension": self.suspension,
            "digest": self.digest,
            "verdict": kind.value,
            "actor_id": actor_id,
            "reason": reason,
        }


def verdicts_of(decisions: Iterable[AnyRow], unseal: Unsealing) -> dict[UUID, CallVerdict]:
    """Read what stands about each call of a suspension, from its decisions, the oldest first.

    Calls that were denied together with a verdict on an uncertain one are denied from then on, also where they
    had been approved: this is still known once the fence and its verdict are gone.
    """
    verdicts: dict[UUID, CallVerdict] = {}
    for row in decisions:
        at, actor_id = to_datetime(row.at), row.actor_id or ""
        match row.verdict:
            case TurnVerdict.APPROVE:
                verdicts[row.call_id] = CallVerdict(row.call_id, Approve(), actor_id, at)
            case TurnVerdict.DENY:
                reason = unseal(row.reason, "decision", "reason", reason_owner(row.id, row.call_id)) or b""
                verdicts[row.call_id] = CallVerdict(row.call_id, Deny(reason.decode()), actor_id, at)
            case _:
                for call_id in denied_of(row):
                    verdicts[call_id] = CallVerdict(call_id, Deny(), actor_id, at)
    return verdicts


def denied_of(decision: AnyRow) -> frozenset[UUID]:
    """Read which other calls a verdict on an uncertain one denied."""
    return frozenset(UUID(call_id) for call_id in decision.denied)


def stored_run(row: AnyRow, decisions: Sequence[AnyRow], sealer: Unseals, *, strict: bool = False) -> StoredRun:
    """Read a run with the decisions of its latest suspension, the oldest first."""
    status = RunStatus(row.status)
    unseal = Unsealing(sealer, row.id, strict=strict)
    turn, output = unseal.turn(row.turn), unseal(row.output, "run", "output")
    if turn is not None and status is RunStatus.AWAITING_APPROVAL and row.due_at is not None:
        turn = replace(turn, expires_at=to_datetime(row.due_at))
    decided = verdicts_of(decisions, unseal)
    return StoredRun(
        run_id=row.id,
        agent=row.agent,
        actor=actor_of(row),
        status=status,
        reason=_reason_of(row, status),
        claim=row.claim,
        suspension=row.suspension,
        takeovers=row.takeovers,
        model_failures=row.model_failures,
        cancel_requested=row.cancelled_by is not None,
        created_at=to_datetime(row.created_at),
        updated_at=to_datetime(row.updated_at),
        fence=fence_of(row),
        fence_verdict=_fence_verdict_of(row, decisions),
        turn=turn,
        decided=MappingProxyType(decided),
        turn_digest=row.turn_digest,
        reconciled=frozenset(said.digest for said in decisions if said.attempt > 0),
        output=None if output is None else output.decode("utf-8", "surrogatepass"),
        problem=unseal.problem,
        deferred_because=row.deferred_because,
        due_at=None if row.due_at is None else to_datetime(row.due_at),
        privacy=PrivacyLevel(row.privacy),
        purged_at=None if row.purged_at is None else to_datetime(row.purged_at),
        read_at=to_datetime(row.now),
    )


def _reason_of(row: AnyRow, status: RunStatus) -> Reason | None:
    if row.reason is None:
        return None
    return UncertaintyReason(row.reason) if status is RunStatus.UNCERTAIN else TerminationReason(row.reason)


def words_on_fence(row: AnyRow, decisions: Iterable[AnyRow]) -> list[AnyRow]:
    """What has been said of this attempt of the fenced call, the latest last."""
    return [said for said in decisions if said.call_id == row.fence_call and said.attempt == row.fence_attempt]


def _fence_verdict_of(row: AnyRow, decisions: Sequence[AnyRow]) -> FenceVerdict | None:
    """Read what is known about the fenced call: the latest word on this attempt of it."""
    if row.fence_verdict is None:
        return None
    *_, known = words_on_fence(row, decisions)
    return FenceVerdict(ReconcileVerdict(known.verdict), target_of(known), known.actor_id, denied_of(known))


def step_values(run_id: UUID, step: NewStep) -> Values:
    """Write a step, all but its time and its detail, which is sealed for the position that it gets."""
    return {
        "run_id": run_id,
        "kind": step.kind.value,
        "call_id": step.call_id,
        "payload": dict(step.payload),
        **target_values(step.target),
    }


def seal_detail(detail: str, run_id: UUID, position: int, sealer: Seals) -> bytes:
    """Seal the detail of a step."""
    return sealer.seal(detail.encode("utf-8", "surrogatepass"), "step", "detail", run_id, position)


def step_of(row: AnyRow, sealer: Unseals) -> Step:
    """Read a step. Its detail is None where it cannot be unsealed: the trace stays readable without the key."""
    detail = Unsealing(sealer, row.run_id, strict=False)(row.detail, "step", "detail", row.id)
    return Step(
        position=row.id,
        run_id=row.run_id,
        kind=StepKind(row.kind),
        at=to_datetime(row.at),
        call_id=row.call_id,
        payload=row.payload,
        target=target_of(row),
        detail=None if detail is None else detail.decode("utf-8", "surrogatepass"),
    )


def write_fact_of(row: AnyRow, cursor: str) -> WriteFact:
    """Read an announced write."""
    record = RecordReference(row.record_table, row.record_uid)
    return WriteFact(cursor, row.run_id, record, WriteKind(row.write_kind), to_datetime(row.at))


def report_values(report: LateReport) -> Values:
    """Write a late report, all but its time."""
    return {
        "id": report.report_id,
        "run_id": report.claim.run_id,
        "claim": report.claim.number,
        "call_id": report.fence.call_id,
        "tool": report.fence.tool,
        "effect": report.fence.effect.value,
        "attempt": report.fence.attempt,
        "settled": report.settled,
        "conflict": report.conflict,
        **target_values(report.target),
    }


def report_of(row: AnyRow) -> LateReport:
    """Read a late report."""
    return LateReport(
        report_id=row.id,
        claim=Claim(row.run_id, row.claim),
        fence=Fence(row.call_id, row.tool, ToolEffect(row.effect), row.attempt),
        target=WriteTarget(RecordReference(row.record_table, row.record_uid), WriteKind(row.write_kind)),
        settled=row.settled,
        conflict=row.conflict,
    )


def reason_owner(decision_id: UUID, call_id: UUID) -> str:
    """What the reason of a decision is sealed for, within its run."""
    return f"{decision_id.hex}:{call_id.hex}"
