"""What executors may rely on: who may claim a run, for how long, and which runs wait to be claimed."""

# ruff: noqa: D102 - a test's name is its documentation

from dataclasses import replace
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from byline.approval.decision import ReconcileVerdict
from byline.approval.fence import Fence
from byline.errors import (
    ClaimLost,
    UnknownRun,
)
from byline.models.messages import (
    UserMessage,
)
from byline.runs.status import RunStatus, TerminationReason, UncertaintyReason
from byline.runs.steps import NewStep, StepKind
from byline.store.protocol import (
    Beat,
    BecomeUncertain,
    Change,
    Claim,
    HandBack,
    Progress,
    SetFence,
    Suspend,
)
from byline.testing.conformance.segments import DONE
from byline.testing.conformance.stage import (
    LEASE,
    TAKEOVERS,
    Stage,
    StoreCase,
    settlement,
    suspend,
)
from byline.tools.effect import ToolEffect


class ClaimConformance(StoreCase):
    """`claim`, `beat`, `claimable`: one executor at a time, by the database's clock."""

    def test_claim_of_a_queued_run_grows(self, stage: Stage) -> None:
        run_id = stage.queued()
        claimed = stage.store.claim(run_id, lease=LEASE, takeovers=TAKEOVERS)
        assert claimed is not None
        assert (claimed.claim, claimed.taken_over, claimed.release_age) == (Claim(run_id, 2), False, None)
        assert (claimed.run.status, claimed.run.claim) == (RunStatus.RUNNING, 2)
        assert claimed.messages == (UserMessage("Describe page 42."),)

    def test_what_runs_waits_or_has_ended_is_not_claimed(self, stage: Stage) -> None:
        ended = stage.started()
        ended.advance(DONE)
        ids = [stage.started().run_id, stage.waiting().run_id, stage.uncertain()[0].run_id, ended.run_id]
        assert [stage.store.claim(run_id, lease=LEASE, takeovers=9) for run_id in ids] == [None] * 4
        with pytest.raises(UnknownRun):
            stage.store.claim(uuid7(), lease=LEASE, takeovers=9)

    def test_expired_lease_is_taken_over_and_not_a_moment_before(self, stage: Stage) -> None:
        first = stage.started()
        stage.clock.pass_by(LEASE - 0.001)
        assert stage.store.claim(first.run_id, lease=LEASE, takeovers=TAKEOVERS) is None
        assert stage.claimable(10) == []
        stage.clock.pass_by(0.001)
        assert stage.claimable(10) == [first.run_id]
        claimed = stage.store.claim(first.run_id, lease=LEASE, takeovers=TAKEOVERS)
        assert claimed is not None
        assert (claimed.taken_over, claimed.run.takeovers, claimed.claim.number) == (True, 1, 2)

    def test_lost_claim_stores_nothing_more(self, stage: Stage) -> None:
        zombie = stage.started()
        stage.clock.pass_by(LEASE)
        stage.claimed(zombie.run_id)
        before = stage.store.get(zombie.run_id)
        fence = Fence(uuid7(), "t", ToolEffect.IDEMPOTENT_WRITE, 1)
        turn = replace(stage.waiting(), run_id=zombie.run_id)
        changes: list[Change] = [
            Progress(messages=(UserMessage("x"),), steps=(NewStep(StepKind.MODEL),)),
            SetFence(fence),
            Suspend(turn=turn),
            HandBack(steps=(NewStep(StepKind.HANDED_BACK),)),
            BecomeUncertain(reason=UncertaintyReason.RAISED),
            DONE,
        ]
        for change in changes:
            with pytest.raises(ClaimLost):
                zombie.advance(change)
        assert stage.store.beat([zombie.claim], lease=LEASE) == {zombie.claim: Beat(False, False)}
        assert stage.store.get(zombie.run_id) == before
        assert stage.store.list_steps(zombie.run_id, after=0, limit=9) == []

    def test_beat_extends_the_lease(self, stage: Stage) -> None:
        held, other = stage.started(), stage.started()
        for _ in range(4):
            stage.clock.pass_by(LEASE / 2)
            beats = stage.store.beat([held.claim, Claim(other.run_id, 7), Claim(uuid7(), 1)], lease=LEASE)
            assert beats[held.claim] == Beat(True, False)
            assert [beat.held for beat in beats.values()] == [True, False, False]
        assert stage.claimable(10) == [other.run_id]
        assert stage.store.beat([], lease=LEASE) == {}

    def test_beat_tells_of_a_cancel(self, stage: Stage) -> None:
        held = stage.started()
        stage.store.cancel(held.run_id, "8")
        assert stage.store.beat([held.claim], lease=LEASE) == {held.claim: Beat(True, True)}

    def test_takeovers_without_progress_end_in_dead_letter(self, stage: Stage) -> None:
        segment = stage.started()
        for _ in range(TAKEOVERS):
            stage.clock.pass_by(LEASE)
            segment = stage.claimed(segment.run_id)
        stage.clock.pass_by(LEASE)
        assert stage.store.claim(segment.run_id, lease=LEASE, takeovers=TAKEOVERS) is None
        run = stage.store.get(segment.run_id)
        assert (run.status, run.reason) == (RunStatus.DEAD_LETTER, TerminationReason.RETRIES_EXHAUSTED)
        stage.store.retry(segment.run_id)
        again = stage.store.claim(segment.run_id, lease=LEASE, takeovers=TAKEOVERS)
        assert again is not None
        assert (again.run.takeovers, len(again.messages)) == (0, 1)

    def test_progress_restores_the_takeovers(self, stage: Stage) -> None:
        segment = stage.started()
        for _ in range(2 * TAKEOVERS):
            stage.clock.pass_by(LEASE)
            segment = stage.claimed(segment.run_id)
            segment.advance(Progress(steps=(NewStep(StepKind.MODEL),)))
        assert stage.store.get(segment.run_id).takeovers == 0

    def test_a_stored_turn_restores_the_takeovers(self, stage: Stage) -> None:
        segment = stage.started()
        stage.clock.pass_by(LEASE)
        segment = stage.claimed(segment.run_id)
        suspend(segment)
        assert stage.store.get(segment.run_id).takeovers == 0

    def test_a_verdict_restores_the_takeovers(self, stage: Stage) -> None:
        segment, fence = stage.fenced(ToolEffect.IDEMPOTENT_WRITE)
        stage.clock.pass_by(LEASE)
        stage.claimed(segment.run_id)
        stage.clock.pass_by(LEASE)
        assert stage.store.claim(segment.run_id, lease=LEASE, takeovers=1) is None
        stage.store.reconcile(settlement(segment.run_id, fence, ReconcileVerdict.LANDED))
        assert stage.store.get(segment.run_id).takeovers == 0

    @pytest.mark.parametrize(
        "effect, reason",
        [
            (ToolEffect.NON_IDEMPOTENT_WRITE, UncertaintyReason.INTERRUPTED),
            (ToolEffect.IDEMPOTENT_WRITE, UncertaintyReason.NOT_REPEATABLE),
        ],
    )
    def test_takeovers_end_in_uncertainty_while_the_fence_stands(
        self, stage: Stage, effect: ToolEffect, reason: UncertaintyReason
    ) -> None:
        segment, fence = stage.fenced(effect)
        stage.clock.pass_by(LEASE)
        assert stage.store.claim(segment.run_id, lease=LEASE, takeovers=0) is None
        run = stage.store.get(segment.run_id)
        assert (run.status, run.reason, run.fence) == (RunStatus.UNCERTAIN, reason, fence)
        assert stage.store.list_steps(segment.run_id, after=0, limit=9)[-1].kind is StepKind.UNCERTAIN
        with pytest.raises(ClaimLost):  # it has not stored that itself
            segment.advance(BecomeUncertain(reason=UncertaintyReason.RAISED))

    @pytest.mark.parametrize("verdict", list(ReconcileVerdict))
    def test_a_word_outlives_takeovers_without_progress(self, stage: Stage, verdict: ReconcileVerdict) -> None:
        segment, fence = stage.uncertain()
        told = settlement(segment.run_id, fence, verdict)
        stage.store.reconcile(told)
        for _ in range(2):
            assert stage.store.claim(segment.run_id, lease=LEASE, takeovers=0) is not None
            stage.clock.pass_by(LEASE)
            assert stage.store.claim(segment.run_id, lease=LEASE, takeovers=0) is None
            run = stage.store.get(segment.run_id)
            assert (run.status, run.fence, run.fence_verdict) == (RunStatus.QUEUED, fence, told.verdict)
            assert stage.claimable(9) == [segment.run_id]

    def test_a_word_to_run_it_again_is_spent_with_the_next_fence(self, stage: Stage) -> None:
        segment, fence = stage.uncertain()
        stage.store.reconcile(settlement(segment.run_id, fence, ReconcileVerdict.RUN_AGAIN))
        segment = stage.claimed(segment.run_id)
        segment.advance(SetFence(replace(fence, attempt=2)))
        stage.clock.pass_by(LEASE)
        assert stage.store.claim(segment.run_id, lease=LEASE, takeovers=0) is None
        assert stage.status(segment.run_id) is RunStatus.UNCERTAIN

    def test_a_fact_that_leads_nowhere_ends_in_uncertainty(self, stage: Stage) -> None:
        segment, fence = stage.uncertain()
        landed = settlement(segment.run_id, fence, ReconcileVerdict.LANDED)
        stage.store.reconcile(replace(landed, actor=None, verdict=replace(landed.verdict, actor_id=None)))
        stage.claimed(segment.run_id)
        stage.clock.pass_by(LEASE)
        assert stage.store.claim(segment.run_id, lease=LEASE, takeovers=0) is None
        assert stage.status(segment.run_id) is RunStatus.UNCERTAIN

    def test_what_is_to_be_cancelled_ends_cancelled_when_its_takeovers_are_spent(self, stage: Stage) -> None:
        segment = stage.started()
        stage.store.cancel(segment.run_id, "8")
        stage.clock.pass_by(LEASE)
        assert stage.store.claim(segment.run_id, lease=LEASE, takeovers=0) is None
        run = stage.store.get(segment.run_id)
        assert (run.status, run.reason) == (RunStatus.CANCELLED, TerminationReason.CANCELLED)
        assert stage.store.list_steps(segment.run_id, after=0, limit=9)[-1].payload["status"] == "cancelled"

    def test_the_longest_waiting_comes_first(self, stage: Stage) -> None:
        expired = stage.started()
        stage.clock.pass_by(LEASE + 1)
        second = stage.queued()
        stage.clock.pass_by(1)
        third = stage.queued()
        assert stage.claimable(10) == [expired.run_id, second, third]
        assert stage.claimable(1) == [expired.run_id]

    def test_each_page_goes_on_behind_the_one_before(self, stage: Stage) -> None:
        expired = [stage.started().run_id for _ in range(2)]
        stage.clock.pass_by(LEASE + 1)
        together = sorted(stage.queued() for _ in range(3))  # at one time: their ids are their order
        pages: list[UUID] = []
        after = None
        while page := stage.store.claimable(2, agents=["editor", "clerk"], after=after):
            pages += [found.run_id for found in page]
            after = page[-1]
        assert pages == [*sorted(expired), *together]

    def test_only_runs_of_the_named_agents_are_listed(self, stage: Stage) -> None:
        segment = stage.started(agent="clerk")
        segment.advance(HandBack())
        stage.clock.pass_by(1)
        mine = stage.queued()
        assert stage.claimable(9) == [mine]
        assert stage.claimable(9, "clerk", "editor") == [segment.run_id, mine]
        assert stage.store.claimable(9, agents=()) == []
