"""What everybody may rely on when old runs are deleted."""

# ruff: noqa: D102 - a test's name is its documentation

import pytest

from byline.approval.decision import ReconcileVerdict
from byline.errors import UnknownRun
from byline.runs.status import RunStatus, TerminationReason
from byline.runs.steps import StepKind
from byline.store.protocol import Purged, Settle
from byline.testing.conformance.segments import DONE
from byline.testing.conformance.stage import PAGE, Segment, Stage, StoreCase, settlement, written

AGE = 100.0


class RetentionConformance(StoreCase):
    """Answers, content and provenance go, each after its time, and nothing that has not ended."""

    def test_only_what_ended_long_enough_ago_is_purged(self, stage: Stage) -> None:
        old = _written(stage)
        stage.clock.pass_by(AGE)
        young = _written(stage)
        assert stage.store.purge(9, older_than=AGE) == Purged(runs=1)
        assert stage.store.purge(9, older_than=AGE) == Purged()
        assert stage.store.get(old.run_id).purged_at is not None
        assert stage.store.get(young.run_id).purged_at is None

    def test_what_was_written_stays_until_provenance_goes(self, stage: Stage) -> None:
        run_id = _written(stage).run_id
        stage.clock.pass_by(AGE)
        (fact,) = stage.store.writes(after=None, table=None, record=None, since=None, limit=9)
        stage.store.purge(9, older_than=AGE)
        assert [step.kind for step in stage.store.list_steps(run_id, after=0, limit=9)] == [StepKind.WRITE]
        assert list(stage.store.writes(after=None, table=None, record=None, since=None, limit=9)) == [fact]
        assert stage.store.purge_provenance(9, older_than=AGE) == Purged(forgotten=1)
        with pytest.raises(UnknownRun):
            stage.store.get(run_id)
        later = _written(stage)
        facts = stage.store.writes(after=fact.cursor, table=None, record=None, since=None, limit=9)
        assert [each.correlation_id for each in facts] == [later.run_id]

    def test_a_batch_takes_no_more_than_it_may(self, stage: Stage) -> None:
        for _ in range(3):
            _written(stage)
        stage.clock.pass_by(AGE)
        assert stage.store.purge(2, older_than=AGE) == Purged(runs=2)
        assert stage.store.purge_provenance(9, older_than=AGE) == Purged(forgotten=2)
        assert stage.store.purge_outputs(9, older_than=AGE) == Purged(outputs=1)
        assert stage.store.purge(2, older_than=AGE) == Purged(runs=1)

    def test_a_dead_letter_fails_and_what_has_not_ended_stays(self, stage: Stage) -> None:
        dead = stage.started()
        dead.advance(Settle(status=RunStatus.DEAD_LETTER, reason=TerminationReason.NOT_RETRYABLE))
        living = [stage.queued(), stage.started().run_id, stage.waiting().run_id, stage.uncertain()[0].run_id]
        segment, fence = stage.uncertain()
        stage.store.reconcile(settlement(segment.run_id, fence, ReconcileVerdict.LEAVE_IT))
        living.append(segment.run_id)
        before = [stage.store.get(run_id) for run_id in living]
        stage.clock.pass_by(AGE)
        assert stage.store.purge(9, older_than=AGE) == Purged(runs=1, dead_letters=1)
        run = stage.store.get(dead.run_id)
        assert (run.status, run.reason) == (RunStatus.FAILED, TerminationReason.RETENTION)
        assert [stage.store.get(run_id) for run_id in living] == before
        assert stage.store.purge_provenance(9, older_than=AGE) == Purged(forgotten=1)  # its end was that long ago

    def test_an_answer_goes_alone(self, stage: Stage) -> None:
        run_id = _written(stage).run_id
        assert stage.store.purge_outputs(9, older_than=AGE) == Purged()
        stage.clock.pass_by(AGE)
        assert stage.store.purge_outputs(9, older_than=AGE) == Purged(outputs=1)
        run = stage.store.get(run_id)
        assert (run.output, run.status, run.purged_at) == (None, RunStatus.COMPLETED, None)


def _written(stage: Stage) -> Segment:
    """A run that wrote a page, and has ended."""
    segment, fence = stage.fenced()
    segment.advance(written(fence, PAGE))
    segment.advance(DONE)
    return segment
