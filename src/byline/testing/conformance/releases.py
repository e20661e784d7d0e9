"""What a process cannot execute is left to others: unspent, not before a delay unless asked for, with the reason.

A run whose model failed is due again after a delay, before which nobody has it; failures are counted until the next
progress.
"""

import pytest

from byline.approval.decision import ReconcileVerdict
from byline.errors import CancelRequested, StoreError
from byline.runs.status import RunStatus, TerminationReason
from byline.runs.steps import NewStep, StepKind
from byline.store.protocol import HandBack, Postpone, Progress, Release, Settle
from byline.testing.conformance.stage import LEASE, TAKEOVERS, Segment, Stage, StoreCase, settlement, suspend

WHY = "the key 'k9' is not here"
DELAY = 30.0
RELEASE = Release(because=WHY, delay=DELAY)
POSTPONE = Postpone(because=WHY, delay=DELAY, steps=(NewStep(StepKind.MODEL, payload={"failed": "E"}, detail="no"),))


class ReleaseConformance(StoreCase):
    """Claims that are released, and runs that could not be claimed."""

    def test_released_run_is_queued_and_due_after_the_delay(self, stage: Stage) -> None:
        """Whoever looks finds it then; whoever is asked for it takes it at once."""
        segment = stage.started()
        segment.advance(RELEASE)
        run = stage.store.get(segment.run_id)
        assert (run.status, run.deferred_because, run.takeovers) == (RunStatus.QUEUED, WHY, 0)
        stage.clock.pass_by(DELAY - 1)
        assert segment.run_id not in stage.claimable(100)
        stage.clock.pass_by(2)
        assert segment.run_id in stage.claimable(100)

    def test_released_run_is_claimed_at_once_by_who_is_asked_for_it(self, stage: Stage) -> None:
        """And then it is deferred no more."""
        segment = stage.started()
        segment.advance(RELEASE)
        stage.claimed(segment.run_id)
        assert stage.store.get(segment.run_id).deferred_because is None

    def test_take_over_that_is_released_is_not_spent(self, stage: Stage) -> None:
        """Unless there was progress before, which had restored the budget anyway."""
        segment = stage.started()
        for progress in (False, True):
            stage.clock.pass_by(LEASE + 1)
            taken = stage.claimed(segment.run_id)
            assert stage.store.get(segment.run_id).takeovers == 1
            if progress:
                taken.advance(Progress())
            taken.advance(Release(because=WHY, delay=DELAY, taken_over=True))
            assert stage.store.get(segment.run_id).takeovers == 0
            stage.claimed(segment.run_id)

    def test_standing_fence_is_not_released(self, stage: Stage) -> None:
        """What may have been written is no other process's to forget (P9)."""
        segment, fence = stage.fenced()
        with pytest.raises(StoreError):
            segment.advance(RELEASE)
        run = stage.store.get(segment.run_id)
        assert (run.status, run.fence) == (RunStatus.RUNNING, fence)

    def test_cancel_comes_before_a_release(self, stage: Stage) -> None:
        """Who was told that a run is to be cancelled does not find it queued."""
        segment = stage.started()
        stage.store.cancel(segment.run_id, "8")
        with pytest.raises(CancelRequested):
            segment.advance(RELEASE)

    def test_deferred_run_stays_as_it_is_and_is_due_after_the_delay(self, stage: Stage) -> None:
        """QUEUED, or RUNNING under an expired lease with its fence: nobody holds it."""
        queued = stage.queued()
        segment, fence = stage.fenced()
        stage.clock.pass_by(LEASE + 1)
        for run_id, status in ((queued, RunStatus.QUEUED), (segment.run_id, RunStatus.RUNNING)):
            before = stage.store.get(run_id)
            stage.store.defer(run_id, WHY, delay=DELAY)
            run = stage.store.get(run_id)
            assert (run.status, run.claim, run.takeovers) == (status, before.claim, before.takeovers)
            assert (run.deferred_because, run.fence) == (WHY, before.fence)
            assert run_id not in stage.claimable(100)
            assert stage.peer.claim(run_id, lease=LEASE, takeovers=TAKEOVERS) is not None
        assert stage.store.get(segment.run_id).fence == fence

    def test_held_run_is_not_deferred(self, stage: Stage) -> None:
        """Nor is one that waits; and one that is deferred is not put off again before it is due."""
        held, waiting = stage.started(), stage.waiting()
        for run_id in (held.run_id, waiting.run_id):
            stage.store.defer(run_id, WHY, delay=DELAY)
            assert stage.store.get(run_id).deferred_because is None
        queued = stage.queued()
        stage.store.defer(queued, WHY, delay=DELAY)
        stage.store.defer(queued, "another reason", delay=10 * DELAY)
        stage.clock.pass_by(DELAY + 1)
        assert queued in stage.claimable(100)

    def test_deferred_run_without_a_fence_is_cancelled_at_once(self, stage: Stage) -> None:
        """Its lease had run out: no segment is to be asked."""
        segment = stage.started()
        stage.clock.pass_by(LEASE + 1)
        stage.store.defer(segment.run_id, WHY, delay=DELAY)
        assert stage.store.cancel(segment.run_id, "8") is RunStatus.CANCELLED

    def test_who_still_beats_holds_a_deferred_run(self, stage: Stage) -> None:
        """The process that had it was slow, and not dead."""
        segment = stage.started()
        stage.clock.pass_by(LEASE + 1)
        stage.store.defer(segment.run_id, WHY, delay=DELAY)
        assert stage.store.beat([segment.claim], lease=LEASE)[segment.claim].held
        assert stage.peer.claim(segment.run_id, lease=LEASE, takeovers=TAKEOVERS) is None

    def test_long_reason_is_cut(self, stage: Stage) -> None:
        """It fits its column in every database."""
        segment = stage.started()
        segment.advance(Release(because="ü" * 5_000, delay=DELAY))
        assert stage.store.get(segment.run_id).deferred_because == "ü" * 500

    def test_run_whose_model_failed_is_nobodys_before_it_is_due(self, stage: Stage) -> None:
        """Not even who is asked for it: a doubled wake-up is no reason to ask a provider again too early."""
        segment = stage.started()
        segment.advance(POSTPONE)
        run = stage.store.get(segment.run_id)
        assert (run.status, run.reason, run.deferred_because) == (
            RunStatus.QUEUED,
            TerminationReason.MODEL_FAILED,
            WHY,
        )
        assert run.read_at is not None
        assert run.due_at is not None
        assert (run.due_at - run.read_at).total_seconds() == DELAY
        stage.clock.pass_by(DELAY - 0.001)
        assert stage.store.claim(segment.run_id, lease=LEASE, takeovers=TAKEOVERS) is None
        assert segment.run_id not in stage.claimable(100)
        stage.clock.pass_by(0.001)
        assert stage.claimable(100) == [segment.run_id]
        assert stage.store.claim(segment.run_id, lease=LEASE, takeovers=TAKEOVERS) is not None
        run = stage.store.get(segment.run_id)
        assert (run.status, run.reason, run.deferred_because) == (RunStatus.RUNNING, None, None)

    def test_each_failure_of_the_model_is_told_by_its_step(self, stage: Stage) -> None:
        """And sealed as any detail is."""
        segment = stage.started()
        segment.advance(POSTPONE)
        (step,) = stage.store.list_steps(segment.run_id, after=0, limit=9)
        assert (step.kind, dict(step.payload), step.detail) == (StepKind.MODEL, {"failed": "E"}, "no")

    def test_failures_of_the_model_are_counted_until_the_next_progress(self, stage: Stage) -> None:
        """Over claims, hand-backs and dead processes, which are no progress."""
        segment = self._failed(stage, times=2)
        segment.advance(HandBack())
        stage.claimed(segment.run_id)
        stage.clock.pass_by(LEASE + 1)
        segment = stage.claimed(segment.run_id)
        assert stage.store.get(segment.run_id).model_failures == 2
        segment.advance(Progress())
        assert stage.store.get(segment.run_id).model_failures == 0

    def test_stored_turn_is_progress_since_a_failure_of_the_model(self, stage: Stage) -> None:
        """The model has answered."""
        segment = self._failed(stage, times=1)
        suspend(segment)
        assert stage.store.get(segment.run_id).model_failures == 0

    def test_result_of_a_write_is_progress_since_a_failure_of_the_model(self, stage: Stage) -> None:
        """So is a word on one."""
        uncertain, fence = stage.uncertain()
        stage.store.reconcile(settlement(uncertain.run_id, fence, ReconcileVerdict.RUN_AGAIN))
        segment = stage.claimed(uncertain.run_id)
        segment.advance(Progress(clears=fence.call_id))
        assert stage.store.get(segment.run_id).model_failures == 0

    def test_take_over_that_ends_in_a_failure_of_the_model_is_not_spent(self, stage: Stage) -> None:
        """Each of the two has a budget of its own."""
        segment = stage.started()
        stage.clock.pass_by(LEASE + 1)
        segment = stage.claimed(segment.run_id)
        segment.advance(Postpone(because=WHY, delay=DELAY, taken_over=True))
        run = stage.store.get(segment.run_id)
        assert (run.takeovers, run.model_failures) == (0, 1)

    def test_retry_restores_the_failures_of_the_model(self, stage: Stage) -> None:
        """And the run is due at once."""
        segment = self._failed(stage, times=2)
        segment.advance(Settle(status=RunStatus.DEAD_LETTER, reason=TerminationReason.RETRIES_EXHAUSTED))
        stage.store.retry(segment.run_id)
        run = stage.store.get(segment.run_id)
        assert (run.status, run.reason, run.model_failures) == (RunStatus.QUEUED, None, 0)
        assert stage.claimable(100) == [segment.run_id]

    @pytest.mark.parametrize("known", [False, True], ids=["unknown", "known"])
    def test_standing_fence_is_not_postponed(self, stage: Stage, known: bool) -> None:
        """Whatever is known of its call: that is told before the model is asked, so this would be a defect (P9)."""
        segment, fence = stage.uncertain() if known else stage.fenced()
        if known:
            stage.store.reconcile(settlement(segment.run_id, fence, ReconcileVerdict.LEAVE_IT))
            segment = stage.claimed(segment.run_id)
        with pytest.raises(StoreError, match="fence"):
            segment.advance(POSTPONE)
        run = stage.store.get(segment.run_id)
        assert (run.status, run.fence, run.fence_verdict is not None) == (RunStatus.RUNNING, fence, known)

    def test_cancel_comes_before_a_failure_of_the_model(self, stage: Stage) -> None:
        """And a run that waits for its model is cancelled at once."""
        segment = stage.started()
        stage.store.cancel(segment.run_id, "8")
        with pytest.raises(CancelRequested):
            segment.advance(POSTPONE)
        postponed = stage.started()
        postponed.advance(POSTPONE)
        assert stage.store.cancel(postponed.run_id, "8") is RunStatus.CANCELLED

    def test_who_cannot_execute_a_run_whose_model_failed_leaves_it_as_any_other(self, stage: Stage) -> None:
        """Then it is another reason for which it waits, and who has what it needs takes it at once."""
        segment = stage.started()
        segment.advance(POSTPONE)
        stage.clock.pass_by(DELAY)
        stage.store.defer(segment.run_id, "another reason", delay=DELAY)
        run = stage.store.get(segment.run_id)
        assert (run.reason, run.deferred_because, run.model_failures) == (None, "another reason", 1)
        stage.claimed(segment.run_id)

    def _failed(self, stage: Stage, times: int) -> Segment:
        """The next segment of a run whose model failed so often."""
        segment = stage.started()
        for failures in range(1, times + 1):
            segment.advance(POSTPONE)
            assert stage.store.get(segment.run_id).model_failures == failures
            stage.clock.pass_by(DELAY)
            segment = stage.claimed(segment.run_id)
        return segment
