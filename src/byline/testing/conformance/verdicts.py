"""What people may rely on: decisions, changed arguments, reconciliation, late reports, expiry."""

# ruff: noqa: D102 - a test's name is its documentation

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from byline.approval.decision import Approve, Deny, ReconcileVerdict
from byline.approval.turn import PendingTurn
from byline.errors import (
    AlreadyDecided,
    ApprovalExpired,
    DecidedAndFinished,
    RunFinished,
    StaleDecision,
    StoreError,
    UnknownCall,
    UnknownRun,
)
from byline.runs.status import RunStatus, TerminationReason, UncertaintyReason
from byline.runs.steps import StepKind
from byline.store.protocol import Amendment, BecomeUncertain, LateReport, SetFence, Settle
from byline.testing.conformance.stage import (
    APPROVER,
    FILE,
    LEASE,
    PAGE,
    Stage,
    StoreCase,
    pending,
    ruling,
    settlement,
    written,
)

FAILED = Settle(status=RunStatus.FAILED, reason=TerminationReason.MAX_ROUNDS)


def amendment(
    turn: PendingTurn,
    verdicts: Mapping[UUID, Approve | Deny] | None = None,
    *,
    changed: int = 0,
    ttl: float | None = None,
) -> Amendment:
    """A turn with other arguments for one of its calls."""
    calls = list(turn.calls)
    calls[changed] = pending(calls[changed].id, title="New")
    amended = replace(turn, suspension=turn.suspension + 1, calls=tuple(calls))
    return Amendment(
        decision_id=uuid7(),
        run_id=turn.run_id,
        digest=turn.digest,
        actor=APPROVER,
        changed=frozenset({calls[changed].id}),
        turn=amended,
        verdicts={} if verdicts is None else verdicts,
        ttl=ttl,
    )


class DecisionConformance(StoreCase):
    """`decide` and `amend`: bound to what was read, once for each call."""

    def test_verdict_on_every_call_releases_the_turn(self, stage: Stage) -> None:
        turn = stage.waiting(calls=3)
        first, second, third = (call.id for call in turn.calls)
        assert stage.store.decide(ruling(turn, {first: Deny("not this")})) is RunStatus.AWAITING_APPROVAL
        stage.clock.pass_by(5)
        assert stage.store.decide(ruling(turn, {third: Approve(), second: Deny()})) is RunStatus.QUEUED
        stage.clock.pass_by(7)
        claimed = stage.store.claim(turn.run_id, lease=LEASE, takeovers=0)
        assert claimed is not None
        assert {call_id: said.verdict for call_id, said in claimed.run.decided.items()} == {
            first: Deny("not this"),
            second: Deny(),
            third: Approve(),
        }
        assert {said.actor_id for said in claimed.run.decided.values()} == {APPROVER.id}
        assert (claimed.release_age, claimed.run.turn) == (7.0, turn)

    def test_empty_decision_changes_nothing(self, stage: Stage) -> None:
        turn = stage.waiting()
        before = stage.store.get(turn.run_id)
        assert stage.store.decide(ruling(turn, {})) is RunStatus.AWAITING_APPROVAL
        assert stage.store.get(turn.run_id) == before

    def test_other_digest_is_refused_and_the_turn_stays(self, stage: Stage) -> None:
        turn = stage.waiting()
        for digest in ("", "0" * 64, replace(turn, suspension=2).digest):
            with pytest.raises(StaleDecision):
                stage.store.decide(replace(ruling(turn), digest=digest))
        with pytest.raises(UnknownRun):
            stage.store.decide(replace(ruling(turn), run_id=uuid7()))
        assert stage.store.decide(ruling(turn)) is RunStatus.QUEUED

    def test_unknown_call_is_refused_with_all_the_rest(self, stage: Stage) -> None:
        turn = stage.waiting()
        with pytest.raises(UnknownCall):
            stage.store.decide(ruling(turn, {turn.calls[0].id: Approve(), uuid7(): Approve()}))
        assert stage.store.get(turn.run_id).decided == {}

    def test_no_verdict_is_changed(self, stage: Stage) -> None:
        turn = stage.waiting(calls=2)
        first, second = (call.id for call in turn.calls)
        stage.store.decide(ruling(turn, {first: Deny()}))
        with pytest.raises(AlreadyDecided):
            stage.store.decide(ruling(turn, {first: Approve(), second: Approve()}))
        stage.store.decide(ruling(turn, {second: Approve()}))
        with pytest.raises(AlreadyDecided):
            stage.store.decide(ruling(turn))
        assert stage.store.get(turn.run_id).decided[first].verdict == Deny()

    def test_expired_approval_is_refused_by_the_clock_of_the_database(self, stage: Stage) -> None:
        turn = stage.waiting(ttl=10)
        stage.clock.pass_by(9.999)
        assert stage.store.expire(9) == []
        stage.clock.pass_by(0.001)
        for attempt in (lambda: stage.store.decide(ruling(turn)), lambda: stage.store.amend(amendment(turn))):
            with pytest.raises(ApprovalExpired):
                attempt()
        assert stage.store.expire(9) == [turn.run_id]
        run = stage.store.get(turn.run_id)
        assert (run.status, run.reason, run.turn) == (RunStatus.FAILED, TerminationReason.APPROVAL_EXPIRED, None)
        step = stage.store.list_steps(turn.run_id, after=0, limit=9)[-1]
        assert (step.kind, step.payload["reason"]) == (StepKind.SETTLED, "approval_expired")
        assert stage.store.expire(9) == []

    def test_loaded_agent_may_let_an_approval_expire_sooner(self, stage: Stage) -> None:
        turn, other = stage.waiting(ttl=100), stage.waiting()
        stage.clock.pass_by(10)
        assert stage.store.expire(9, ttls={"editor": 10.001, "clerk": 1}) == []
        for attempt in (
            lambda: stage.store.decide(replace(ruling(turn), ttl=10)),
            lambda: stage.store.amend(amendment(turn, ttl=10)),
        ):
            with pytest.raises(ApprovalExpired):
                attempt()
        assert stage.store.expire(1, ttls={"editor": 10}) == [turn.run_id]
        assert stage.store.expire(9, ttls={"editor": 10}) == [other.run_id]

    def test_who_comes_second_is_told_so_however_fast_the_run_was(self, stage: Stage) -> None:
        turn = stage.waiting()
        stage.store.decide(ruling(turn))
        stage.claimed(turn.run_id).advance(FAILED)
        with pytest.raises(DecidedAndFinished):
            stage.store.decide(ruling(turn))
        with pytest.raises(RunFinished) as caught:
            stage.store.decide(replace(ruling(turn), digest="0" * 64))
        assert not isinstance(caught.value, AlreadyDecided)

    def test_what_has_ended_or_waits_for_other_things_is_not_decided(self, stage: Stage) -> None:
        turn = stage.waiting()
        stage.store.cancel(turn.run_id, "8")
        segment, _ = stage.uncertain()
        uncertain = stage.store.get(segment.run_id).turn
        assert uncertain is not None
        for waiting in (turn, uncertain):
            with pytest.raises(RunFinished):
                stage.store.decide(ruling(waiting))
            with pytest.raises(RunFinished):
                stage.store.amend(amendment(waiting))

    def test_changed_arguments_wait_anew_under_a_new_digest(self, stage: Stage) -> None:
        turn = stage.waiting(calls=3, ttl=10)
        stage.store.decide(ruling(turn, {turn.calls[1].id: Deny("never")}))
        change = amendment(turn, {turn.calls[2].id: Deny("nor this")}, ttl=50)
        stage.store.amend(change)
        run = stage.store.get(turn.run_id)
        assert run.turn is not None
        assert (run.status, run.suspension, run.turn.digest) == (RunStatus.AWAITING_APPROVAL, 2, change.turn.digest)
        assert {call_id: said.verdict for call_id, said in run.decided.items()} == {
            turn.calls[1].id: Deny("never"),
            turn.calls[2].id: Deny("nor this"),
        }
        with pytest.raises(StaleDecision):
            stage.store.decide(ruling(turn))
        stage.clock.pass_by(40)
        first = {turn.calls[0].id: Approve()}
        assert stage.store.decide(ruling(change.turn, first)) is RunStatus.QUEUED

    @pytest.mark.parametrize("given", [Approve(), Deny()])
    @pytest.mark.parametrize("named", [Approve(), Deny("no")])
    def test_a_verdict_beside_a_change_is_on_an_undecided_call(
        self, stage: Stage, given: Approve | Deny, named: Approve | Deny
    ) -> None:
        turn = stage.waiting(calls=2)
        other = turn.calls[1].id
        stage.store.decide(ruling(turn, {other: given}))
        with pytest.raises(AlreadyDecided):
            stage.store.amend(amendment(turn, {other: named}))
        run = stage.store.get(turn.run_id)
        assert (run.suspension, run.turn_digest, run.decided[other].verdict) == (1, turn.digest, given)

    def test_a_release_beside_a_change_is_of_the_turn_that_was_read(self, stage: Stage) -> None:
        turn = stage.waiting(calls=2)
        stage.store.amend(amendment(turn, {turn.calls[1].id: Approve()}))
        assert stage.store.get(turn.run_id).decided == {}

    def test_the_age_of_a_release_is_that_of_a_persons_release(self, stage: Stage) -> None:
        segment, fence = stage.uncertain(calls=2)
        stage.clock.pass_by(100)
        landed = settlement(segment.run_id, fence, ReconcileVerdict.LANDED)
        stage.store.reconcile(replace(landed, actor=None, verdict=replace(landed.verdict, actor_id=None)))
        stage.clock.pass_by(5)
        claimed = stage.store.claim(segment.run_id, lease=LEASE, takeovers=0)
        assert claimed is not None
        assert (claimed.release_age, claimed.verdict_age) == (105.0, 5.0)

    @pytest.mark.parametrize("verdict", list(ReconcileVerdict))
    def test_a_word_on_one_call_makes_no_release_of_another_younger(
        self, stage: Stage, verdict: ReconcileVerdict
    ) -> None:
        segment, fence = stage.uncertain(calls=2)
        stage.clock.pass_by(100)
        stage.store.reconcile(settlement(segment.run_id, fence, verdict))
        stage.clock.pass_by(5)
        claimed = stage.store.claim(segment.run_id, lease=LEASE, takeovers=0)
        assert claimed is not None
        assert (claimed.release_age, claimed.verdict_age) == (105.0, 5.0)

    def test_no_word_has_no_age(self, stage: Stage) -> None:
        turn = stage.waiting()
        stage.store.decide(ruling(turn, {turn.calls[0].id: Deny()}))
        claimed = stage.store.claim(turn.run_id, lease=LEASE, takeovers=0)
        assert claimed is not None
        assert (claimed.release_age, claimed.verdict_age) == (None, None)

    def test_decided_call_is_not_changed(self, stage: Stage) -> None:
        turn = stage.waiting(calls=2)
        stage.store.decide(ruling(turn, {turn.calls[0].id: Deny()}))
        with pytest.raises(AlreadyDecided):
            stage.store.amend(amendment(turn))
        with pytest.raises(StoreError):
            stage.store.amend(replace(amendment(turn, changed=1), turn=replace(turn, suspension=5)))
        assert stage.store.get(turn.run_id).suspension == 1


class ReconciliationConformance(StoreCase):
    """`reconcile` and `report_late`: what became of a write that nobody saw end."""

    @pytest.mark.parametrize("verdict", list(ReconcileVerdict))
    def test_verdict_queues_the_run_with_its_fence(self, stage: Stage, verdict: ReconcileVerdict) -> None:
        segment, fence = stage.uncertain()
        told = settlement(segment.run_id, fence, verdict)
        stage.store.reconcile(told)
        run = stage.store.get(segment.run_id)
        assert (run.status, run.reason, run.fence) == (RunStatus.QUEUED, None, fence)
        assert run.fence_verdict == told.verdict
        claimed = stage.store.claim(segment.run_id, lease=LEASE, takeovers=0)
        assert claimed is not None
        assert (claimed.run.fence_verdict, claimed.run.status) == (told.verdict, RunStatus.RUNNING)

    def test_running_it_again_sets_the_fence_again(self, stage: Stage) -> None:
        segment, fence = stage.uncertain()
        stage.store.reconcile(settlement(segment.run_id, fence, ReconcileVerdict.RUN_AGAIN))
        segment = stage.claimed(segment.run_id)
        again = replace(fence, attempt=2)
        segment.advance(SetFence(again))
        run = stage.store.get(segment.run_id)
        assert (run.fence, run.fence_verdict) == (again, None)
        segment.advance(BecomeUncertain(reason=UncertaintyReason.TIMED_OUT))
        with pytest.raises(StaleDecision):
            stage.store.reconcile(settlement(segment.run_id, fence, ReconcileVerdict.LEAVE_IT))
        stage.store.reconcile(settlement(segment.run_id, again, ReconcileVerdict.LEAVE_IT))

    def test_verdict_that_came_to_nothing_is_asked_for_again(self, stage: Stage) -> None:
        segment, fence = stage.uncertain()
        stage.store.reconcile(settlement(segment.run_id, fence, ReconcileVerdict.RUN_AGAIN))
        segment = stage.claimed(segment.run_id)
        segment.advance(BecomeUncertain(reason=UncertaintyReason.NOT_REPEATABLE))
        assert stage.store.get(segment.run_id).fence_verdict is None
        stage.store.reconcile(settlement(segment.run_id, fence, ReconcileVerdict.LANDED))
        known = stage.store.get(segment.run_id).fence_verdict
        assert known is not None
        assert known.verdict is ReconcileVerdict.LANDED

    def test_denials_stay_once_the_fence_is_gone(self, stage: Stage) -> None:
        segment, fence = stage.uncertain(calls=2)
        turn = stage.store.get(segment.run_id).turn
        assert turn is not None
        other = turn.calls[1].id
        stage.store.reconcile(settlement(segment.run_id, fence, ReconcileVerdict.LANDED, other))
        segment = stage.claimed(segment.run_id)
        known = stage.store.get(segment.run_id).fence_verdict
        assert known is not None
        assert known.denied == {other}
        segment.advance(written(fence))
        stage.clock.pass_by(LEASE)
        claimed = stage.store.claim(segment.run_id, lease=LEASE, takeovers=3)
        assert claimed is not None
        assert (claimed.run.fence_verdict, claimed.run.fence) == (None, None)
        assert isinstance(claimed.run.decided[other].verdict, Deny)
        assert isinstance(claimed.run.decided[fence.call_id].verdict, Approve)

    def test_second_verdict_is_refused(self, stage: Stage) -> None:
        segment, fence = stage.uncertain()
        stage.store.reconcile(settlement(segment.run_id, fence, ReconcileVerdict.LANDED))
        with pytest.raises(AlreadyDecided):
            stage.store.reconcile(settlement(segment.run_id, fence, ReconcileVerdict.LEAVE_IT))
        stage.claimed(segment.run_id).advance(written(fence))
        with pytest.raises(AlreadyDecided):
            stage.store.reconcile(settlement(segment.run_id, fence, ReconcileVerdict.LEAVE_IT))

    def test_what_was_never_uncertain_is_not_settled(self, stage: Stage) -> None:
        segment, fence = stage.fenced()
        with pytest.raises(RunFinished):
            stage.store.reconcile(settlement(segment.run_id, fence, ReconcileVerdict.LANDED))
        with pytest.raises(UnknownRun):
            stage.store.reconcile(settlement(uuid7(), fence, ReconcileVerdict.LANDED))

    def test_late_report_settles_what_is_still_uncertain(self, stage: Stage) -> None:
        segment, fence = stage.uncertain()
        report = LateReport(report_id=uuid7(), claim=segment.claim, fence=fence, target=FILE)
        stored = stage.store.report_late(report)
        assert stored == replace(report, settled=True)
        run = stage.store.get(segment.run_id)
        assert run.fence_verdict is not None
        assert (run.status, run.fence_verdict.target, run.fence_verdict.actor_id) == (RunStatus.QUEUED, FILE, None)
        assert stage.store.report_late(replace(report, report_id=uuid7(), target=PAGE)) == stored
        assert stage.store.late_reports(conflicts_only=False, limit=9) == [stored]
        with pytest.raises(AlreadyDecided):
            stage.store.reconcile(settlement(segment.run_id, fence, ReconcileVerdict.LEAVE_IT))

    @pytest.mark.parametrize(
        "verdict, conflict",
        [(ReconcileVerdict.LANDED, False), (ReconcileVerdict.RUN_AGAIN, True), (ReconcileVerdict.LEAVE_IT, True)],
    )
    def test_late_report_against_a_verdict_is_a_conflict(
        self, stage: Stage, verdict: ReconcileVerdict, conflict: bool
    ) -> None:
        segment, fence = stage.uncertain()
        stage.store.reconcile(settlement(segment.run_id, fence, verdict))
        report = LateReport(report_id=uuid7(), claim=segment.claim, fence=fence, target=PAGE)
        stored = stage.store.report_late(report)
        assert (stored.settled, stored.conflict) == (False, conflict)
        assert stage.store.late_reports(conflicts_only=True, limit=9) == [stored] * conflict
        facts = stage.store.writes(after=None, table=None, record=PAGE.record, since=None, limit=9)
        assert len(facts) == conflict  # else the verdict brings it

    def test_late_report_of_a_run_that_went_on_is_kept(self, stage: Stage) -> None:
        segment, fence = stage.fenced()
        stage.clock.pass_by(LEASE)
        stage.claimed(segment.run_id)
        report = LateReport(report_id=uuid7(), claim=segment.claim, fence=fence, target=PAGE)
        assert stage.store.report_late(report) == report
        assert stage.status(segment.run_id) is RunStatus.RUNNING
        facts = stage.store.writes(after=None, table=None, record=None, since=None, limit=9)
        assert [(fact.correlation_id, fact.record) for fact in facts] == [(segment.run_id, PAGE.record)]
        with pytest.raises(UnknownRun):
            stage.store.report_late(replace(report, claim=replace(report.claim, run_id=uuid7())))
