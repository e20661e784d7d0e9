"""What people and facts say about a run. Each is one transaction that compares, appends and queues (P13, P16)."""

from dataclasses import replace
from uuid import UUID

from sqlalchemy import Connection, bindparam, insert, select, update

from byline.approval.decision import Deny, ReconcileVerdict
from byline.approval.fence import FenceVerdict
from byline.errors import (
    AlreadyDecided,
    ApprovalExpired,
    DecidedAndFinished,
    RunFinished,
    StaleDecision,
    StoreError,
    UnknownCall,
)
from byline.privacy import PrivacyLevel
from byline.runs.status import RunStatus
from byline.runs.steps import NewStep, StepKind
from byline.store.changes import milliseconds
from byline.store.clock import now, to_milliseconds
from byline.store.moves import THE_RUN, moving
from byline.store.protocol import Amendment, LateReport, Ruling, Settlement, was_released
from byline.store.rows import (
    AnyRow,
    Unsealing,
    Values,
    VerdictWriter,
    fence_of,
    report_of,
    report_values,
    seal_turn,
    target_of,
    target_values,
    verdicts_of,
)
from byline.store.tables import decision, late_report, run, step
from byline.store.uncertain import UncertainCalls

_ADD_VERDICT = insert(decision).values(attempt=0, claim=0, denied=[], at=now())
_KEEP_VERDICT = insert(decision).values(attempt=0, claim=0, denied=[])
_WORDS_ON_CALL = select(decision).where(decision.c.run_id == THE_RUN, decision.c.call_id == bindparam("the_call"))
_IS_DECIDED = select(decision.c.id).where(decision.c.id == bindparam("the_decision")).limit(1)
_HAS_DIGEST = (
    select(decision.c.id).where(decision.c.run_id == THE_RUN, decision.c.digest == bindparam("the_digest")).limit(1)
)
_ADD_REPORT = insert(late_report).values(at=now())
_SAME_REPORT = select(late_report).where(
    late_report.c.run_id == THE_RUN,
    late_report.c.call_id == bindparam("the_call"),
    late_report.c.claim == bindparam("the_claim"),
)
_SAME_FACT = select(step.c.id).where(
    step.c.run_id == THE_RUN,
    step.c.call_id == bindparam("the_call"),
    *(step.c[name] == bindparam(name) for name in ("record_table", "record_uid", "write_kind")),
)

_WAITING = run.c.turn_digest == bindparam("the_digest")
_RELEASE = moving(RunStatus.AWAITING_APPROVAL, RunStatus.QUEUED).where(_WAITING)
_AMEND = (
    update(run)
    .where(run.c.id == THE_RUN, run.c.status == RunStatus.AWAITING_APPROVAL.value, _WAITING)
    .values(
        suspension=bindparam("number"),
        turn=bindparam("sealed"),
        turn_digest=bindparam("digest"),
        due_at=now() + bindparam("ttl"),
        updated_at=now(),
    )
)


class VerdictWrites(UncertainCalls):
    """The part of the store that people write through, and what a segment says after it has lost its claim."""

    def decide(self, ruling: Ruling) -> RunStatus:
        """Append verdicts, and queue the run once every waiting call has one."""

        def work(connection: Connection) -> RunStatus:
            row = self._waiting(connection, ruling.run_id, ruling.digest, ruling.ttl)
            unknown = ruling.verdicts.keys() - ruling.waiting
            if unknown:
                raise UnknownCall(f"no call {min(unknown)} of this turn waits for a verdict; nothing was executed")
            decided = {said.call_id for said in self._decisions(connection, row)}
            if decided & ruling.verdicts.keys():
                raise AlreadyDecided
            if not ruling.verdicts:
                return RunStatus.AWAITING_APPROVAL
            write = VerdictWriter(ruling.decision_id, row.id, row.suspension, ruling.digest, self._sealing(connection))
            verdicts = [write(call_id, verdict, ruling.actor.id) for call_id, verdict in ruling.verdicts.items()]
            connection.execute(_ADD_VERDICT, verdicts)
            if not ruling.waiting <= decided | ruling.verdicts.keys():
                return RunStatus.AWAITING_APPROVAL
            _expect_one(connection.execute(_RELEASE, {"the_run": row.id, "the_digest": ruling.digest}).rowcount)
            return RunStatus.QUEUED

        return self._database.write(work, lambda connection, _: _is_decided(connection, ruling.decision_id))

    def amend(self, amendment: Amendment) -> None:
        """Put a turn with changed arguments in the place of the waiting one."""
        turn = amendment.turn

        def work(connection: Connection) -> None:
            row = self._waiting(connection, amendment.run_id, amendment.digest, amendment.ttl)
            said = self._decisions(connection, row)
            if (amendment.changed | amendment.verdicts.keys()) & {verdict.call_id for verdict in said}:
                raise AlreadyDecided
            if turn.suspension != row.suspension + 1:
                raise StoreError(f"run {row.id} has been suspended {row.suspension} times: the new turn is the next")
            sealing = self._sealing(connection)
            write = VerdictWriter(amendment.decision_id, row.id, row.suspension, amendment.digest, sealing)
            rows = [write(call_id, None, amendment.actor.id) for call_id in amendment.changed]
            keep = replace(write, suspension=turn.suspension, digest=turn.digest)
            fresh = {i: verdict for i, verdict in amendment.verdicts.items() if isinstance(verdict, Deny)}
            rows += [keep(call_id, verdict, amendment.actor.id) for call_id, verdict in fresh.items()]
            connection.execute(_ADD_VERDICT, rows)
            # As they stand now: a denial that came between reading and writing stays as well.
            stored = verdicts_of(said, Unsealing(self._sealer, row.id, strict=True))
            denials = [verdict for verdict in stored.values() if isinstance(verdict.verdict, Deny)]
            for denial in denials:
                kept = keep(denial.call_id, denial.verdict, denial.actor_id)
                connection.execute(_KEEP_VERDICT, kept | {"at": to_milliseconds(denial.at)})
            amended: Values = {
                "the_run": row.id,
                "the_digest": amendment.digest,
                "number": turn.suspension,
                "sealed": seal_turn(turn, sealing),
                "digest": turn.digest,
                "ttl": None if amendment.ttl is None else milliseconds(amendment.ttl),
            }
            _expect_one(connection.execute(_AMEND, amended).rowcount)
            self._add_steps(connection, row.id, amendment.steps, PrivacyLevel(row.privacy), ended=False)

        self._database.write(work, lambda connection, _: _is_decided(connection, amendment.decision_id))

    def reconcile(self, settlement: Settlement) -> None:
        """Store a verdict on the uncertain call; the run becomes QUEUED and keeps its fence."""

        def work(connection: Connection) -> None:
            row = self._lock(connection, settlement.run_id)
            if row.status != RunStatus.UNCERTAIN:
                known = {"the_run": row.id, "the_digest": settlement.digest}
                if connection.execute(_HAS_DIGEST, known).one_or_none() is not None:
                    raise AlreadyDecided
                raise RunFinished("the run is not uncertain")
            fence = fence_of(row)
            if fence is None or settlement.digest != fence.digest(row.id):
                raise StaleDecision
            self._settle_call(connection, row, settlement.decision_id, settlement.verdict)

        self._database.write(work, lambda connection, _: _is_decided(connection, settlement.decision_id))

    def report_late(self, report: LateReport) -> LateReport:
        """Append what a call did after its claim was lost: the one insert that needs no live claim."""
        run_id, fence = report.claim.run_id, report.fence
        same: Values = {"the_run": run_id, "the_call": fence.call_id, "the_claim": report.claim.number}

        def work(connection: Connection) -> LateReport:
            row = self._lock(connection, run_id)
            before = connection.execute(_SAME_REPORT, same).one_or_none()
            if before is not None:
                return report_of(before)
            words = connection.execute(_WORDS_ON_CALL, {"the_run": run_id, "the_call": fence.call_id})
            told = [target_of(word) for word in words if word.attempt == fence.attempt]
            conflict = any(target != report.target for target in told)
            settled = not conflict and row.status == RunStatus.UNCERTAIN and row.fence_call == fence.call_id
            stored = replace(report, settled=settled, conflict=conflict)
            connection.execute(_ADD_REPORT, report_values(stored))
            if settled:
                landed = FenceVerdict(ReconcileVerdict.LANDED, report.target, None)
                self._settle_call(connection, row, report.report_id, landed)
            elif conflict or not told:  # else that word brings the fact; it was announced, so the feed has it (P8)
                fact: Values = {"the_run": run_id, "the_call": fence.call_id, **target_values(report.target)}
                if connection.execute(_SAME_FACT, fact).first() is None:
                    write = NewStep(StepKind.WRITE, fence.call_id, target=report.target)
                    ended = RunStatus(row.status).is_terminal
                    self._add_steps(connection, run_id, [write], PrivacyLevel(row.privacy), ended=ended)
            return stored

        def stands(connection: Connection, _: LateReport) -> bool:
            return connection.execute(_SAME_REPORT, same).one_or_none() is not None

        return self._database.write(work, stands)

    def _waiting(self, connection: Connection, run_id: UUID, digest: str, ttl: float | None) -> AnyRow:
        """Read a run whose turn waits, and which is the turn that was read."""
        row = self._lock(connection, run_id)
        status = RunStatus(row.status)
        if status.is_terminal or status in (RunStatus.UNCERTAIN, RunStatus.DEAD_LETTER):
            if was_released(row.turn_digest, row.reason, digest):
                raise DecidedAndFinished
            raise RunFinished(f"the run waits for no decision: it is {status}")
        if row.turn_digest != digest:
            raise StaleDecision
        if status is not RunStatus.AWAITING_APPROVAL:
            raise AlreadyDecided
        if row.due_at is not None and row.due_at <= row.now:
            raise ApprovalExpired
        if ttl is not None and row.updated_at + milliseconds(ttl) <= row.now:  # nothing updates a row that waits
            raise ApprovalExpired
        return row


def _is_decided(connection: Connection, decision_id: UUID) -> bool:
    return connection.execute(_IS_DECIDED, {"the_decision": decision_id}).one_or_none() is not None


def _expect_one(rowcount: int) -> None:
    """The row is locked and was compared: an UPDATE that misses it is a defect."""
    if rowcount != 1:
        raise StoreError("the run changed under its lock; nothing was stored")
