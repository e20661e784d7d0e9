"""What people may rely on when they end a run, or begin it anew: cancel and retry."""

# ruff: noqa: D102 - a test's name is its documentation

import pytest
from uuid_utils.compat import uuid7

from byline.approval.decision import ReconcileVerdict
from byline.errors import (
    ClaimLost,
    NotRetryable,
    RunFinished,
    UnknownRun,
)
from byline.runs.status import RunStatus, TerminationReason
from byline.runs.steps import StepKind
from byline.store.protocol import Progress, Settle
from byline.testing.conformance.stage import (
    LEASE,
    Stage,
    StoreCase,
    settlement,
    written,
)
from byline.testing.conformance.verdicts import FAILED


class EndingConformance(StoreCase):
    """`cancel` and `retry`."""

    def test_cancel_ends_what_no_segment_holds(self, stage: Stage) -> None:
        dead = stage.started()
        dead.advance(Settle(status=RunStatus.DEAD_LETTER, reason=TerminationReason.NOT_RETRYABLE))
        for run_id in (stage.queued(), stage.waiting().run_id, dead.run_id):
            assert stage.store.cancel(run_id, "8") is RunStatus.CANCELLED
            run = stage.store.get(run_id)
            assert (run.reason, run.turn, run.problem) == (TerminationReason.CANCELLED, None, None)
            assert stage.store.list_steps(run_id, after=0, limit=9)[-1].kind is StepKind.SETTLED
            with pytest.raises(RunFinished):
                stage.store.cancel(run_id, "8")

    def test_every_call_of_a_cancelled_turn_has_a_result(self, stage: Stage) -> None:
        turn = stage.waiting(calls=2)
        stage.store.cancel(turn.run_id, "8")
        *_, first, second, settled = stage.store.list_steps(turn.run_id, after=0, limit=9)
        assert [step.call_id for step in (first, second)] == [call.id for call in turn.calls]
        assert (first.kind, first.payload["outcome"], settled.kind) == (StepKind.TOOL, "cancelled", StepKind.SETTLED)

    def test_cancel_is_asked_of_what_a_segment_holds(self, stage: Stage) -> None:
        held = stage.started()
        assert stage.store.cancel(held.run_id, "8") is RunStatus.RUNNING
        assert stage.store.cancel(held.run_id, "9") is RunStatus.RUNNING
        assert held.advance(Progress()) is True

    def test_cancel_ends_what_a_dead_segment_left(self, stage: Stage) -> None:
        dead, (writing, _) = stage.started(), stage.fenced()
        stage.clock.pass_by(LEASE - 0.001)
        assert stage.store.cancel(dead.run_id, "8") is RunStatus.RUNNING
        stage.clock.pass_by(0.001)
        assert stage.store.cancel(dead.run_id, "8") is RunStatus.CANCELLED
        assert stage.store.cancel(writing.run_id, "8") is RunStatus.RUNNING  # its fence stands (P9)
        assert stage.store.list_steps(dead.run_id, after=0, limit=9)[-1].kind is StepKind.SETTLED
        with pytest.raises(ClaimLost):
            dead.advance(Progress())

    def test_cancel_waits_for_what_is_known_of_a_write(self, stage: Stage) -> None:
        segment, fence = stage.uncertain()
        assert stage.store.cancel(segment.run_id, "8") is RunStatus.UNCERTAIN
        stage.store.reconcile(settlement(segment.run_id, fence, ReconcileVerdict.LANDED))
        assert stage.store.cancel(segment.run_id, "8") is RunStatus.QUEUED
        claimed = stage.claimed(segment.run_id)
        assert stage.store.get(segment.run_id).cancel_requested
        assert claimed.advance(written(fence)) is True

    def test_only_dead_letters_are_retried(self, stage: Stage) -> None:
        ended = stage.started()
        ended.advance(FAILED)
        for run_id in (stage.queued(), stage.started().run_id, stage.waiting().run_id, ended.run_id):
            with pytest.raises(NotRetryable):
                stage.store.retry(run_id)
        with pytest.raises(UnknownRun):
            stage.store.retry(uuid7())
        with pytest.raises(UnknownRun):
            stage.store.cancel(uuid7(), "8")
