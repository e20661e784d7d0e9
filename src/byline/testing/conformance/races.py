"""What everybody may rely on when two want the same at once: one wins, the other is told so."""

# ruff: noqa: D102 - a test's name is its documentation

from functools import partial
from typing import ClassVar

from uuid_utils.compat import uuid7

from byline.approval.decision import ReconcileVerdict
from byline.approval.fence import Fence
from byline.errors import AlreadyDecided, ApprovalExpired, CancelRequested, ClaimLost, RunFinished
from byline.runs.status import RunStatus
from byline.runs.steps import NewStep, StepKind
from byline.store.protocol import Beat, Claimed, LateReport, Progress, SetFence
from byline.testing.conformance.stage import LEASE, PAGE, Stage, StoreCase, race, ruling, settlement
from byline.tools.effect import ToolEffect


class DecisionRaces(StoreCase):
    """Races between people, and of people against the clock."""

    rounds: ClassVar[int] = 200

    def test_two_decisions(self, stage: Stage) -> None:
        for _ in range(self.rounds):
            turn = stage.waiting()
            outcomes = race(partial(stage.store.decide, ruling(turn)), partial(stage.peer.decide, ruling(turn)))
            assert {type(outcome) for outcome in outcomes} == {RunStatus, AlreadyDecided}
            assert len(stage.store.get(turn.run_id).decided) == 1

    def test_decision_and_cancel(self, stage: Stage) -> None:
        for _ in range(self.rounds):
            turn = stage.waiting()
            decided, cancelled = race(
                partial(stage.store.decide, ruling(turn)), partial(stage.peer.cancel, turn.run_id, "9")
            )
            assert decided is RunStatus.QUEUED or isinstance(decided, RunFinished)
            assert cancelled is RunStatus.CANCELLED  # nobody had claimed it
            assert stage.status(turn.run_id) is RunStatus.CANCELLED

    def test_decision_and_expiry(self, stage: Stage) -> None:
        def expire() -> object:
            stage.clock.pass_by(10)
            return list(stage.peer.expire(9))

        for _ in range(self.rounds):
            turn = stage.waiting(ttl=10)
            decided, expired = race(partial(stage.store.decide, ruling(turn)), expire)
            if decided is RunStatus.QUEUED:
                assert (expired, stage.status(turn.run_id)) == ([], RunStatus.QUEUED)
            else:
                assert isinstance(decided, ApprovalExpired | RunFinished)
                # Who settles what has expired may pass over a run that the decision holds at that moment.
                assert (expired or stage.peer.expire(9)) == [turn.run_id]
                assert stage.status(turn.run_id) is RunStatus.FAILED

    def test_reconciliation_and_late_report(self, stage: Stage) -> None:
        for _ in range(self.rounds):
            segment, fence = stage.uncertain()
            leave = settlement(segment.run_id, fence, ReconcileVerdict.LEAVE_IT)
            late = LateReport(report_id=uuid7(), claim=segment.claim, fence=fence, target=PAGE)
            told, reported = race(partial(stage.store.reconcile, leave), partial(stage.peer.report_late, late))
            assert isinstance(reported, LateReport)
            known = stage.store.get(segment.run_id).fence_verdict
            assert known is not None
            if told is None:
                assert (reported.settled, reported.conflict) == (False, True)
                assert known.verdict is ReconcileVerdict.LEAVE_IT
            else:
                assert isinstance(told, AlreadyDecided)
                assert (reported.settled, reported.conflict) == (True, False)
                assert known.verdict is ReconcileVerdict.LANDED


class ClaimRaces(StoreCase):
    """Races between segments, and of a segment against a cancel."""

    rounds: ClassVar[int] = 200

    def test_two_claims(self, stage: Stage) -> None:
        for _ in range(self.rounds):
            run_id = stage.queued()
            outcomes = race(
                partial(stage.store.claim, run_id, lease=LEASE, takeovers=3),
                partial(stage.peer.claim, run_id, lease=LEASE, takeovers=3),
            )
            assert {type(outcome) for outcome in outcomes} == {Claimed, type(None)}

    def test_claim_and_beat(self, stage: Stage) -> None:
        for _ in range(self.rounds):
            held = stage.started()
            stage.clock.pass_by(LEASE)
            taken, beats = race(
                partial(stage.store.claim, held.run_id, lease=LEASE, takeovers=3),
                partial(stage.peer.beat, [held.claim], lease=LEASE),
            )
            assert beats == {held.claim: Beat(taken is None, cancel_requested=False)}

    def test_takeover_and_progress(self, stage: Stage) -> None:
        for _ in range(self.rounds):
            held = stage.started()
            stage.clock.pass_by(LEASE)
            taken, stored = race(
                partial(stage.peer.claim, held.run_id, lease=LEASE, takeovers=3),
                partial(held.advance, Progress(steps=(NewStep(StepKind.MODEL),))),
            )
            assert isinstance(taken, Claimed)
            assert stored is False or isinstance(stored, ClaimLost)
            steps = stage.store.list_steps(held.run_id, after=0, limit=9)
            assert len(steps) == (1 if stored is False else 0)

    def test_cancel_and_fence(self, stage: Stage) -> None:
        for _ in range(self.rounds):
            held = stage.started()
            fence = Fence(uuid7(), "t", ToolEffect.IDEMPOTENT_WRITE, 1)
            fenced, cancelled = race(
                partial(held.advance, SetFence(fence)), partial(stage.peer.cancel, held.run_id, "9")
            )
            assert cancelled is RunStatus.RUNNING
            assert fenced is False or isinstance(fenced, CancelRequested)
            run = stage.store.get(held.run_id)
            assert run.cancel_requested
            assert run.fence == (fence if fenced is False else None)
