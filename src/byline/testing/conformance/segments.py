"""What a segment may rely on: creation and guarded changes."""

# ruff: noqa: D102 - a test's name is its documentation

from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta

import pytest
from uuid_utils.compat import uuid7

from byline.actors import AiActorContext, Grant
from byline.approval.decision import ReconcileVerdict
from byline.approval.fence import Fence
from byline.errors import (
    CancelRequested,
    ClaimLost,
    DedupeConflict,
    StoreError,
    UnknownRun,
)
from byline.models.messages import (
    AssistantMessage,
    Message,
    ModelAnswer,
    ModelCall,
    NativePart,
    ToolMessage,
    UserMessage,
)
from byline.runs.status import RunStatus, TerminationReason, UncertaintyReason
from byline.runs.steps import NewStep, StepKind
from byline.store.protocol import (
    BecomeUncertain,
    Change,
    Claim,
    HandBack,
    NewRun,
    Progress,
    SetFence,
    Settle,
    StoredRun,
    Suspend,
)
from byline.testing.conformance.stage import (
    EDITOR,
    LEASE,
    PAGE,
    Stage,
    StoreCase,
    ruling,
    settlement,
    suspend,
    written,
)
from byline.tools.effect import ToolEffect

DONE = Settle(status=RunStatus.COMPLETED, reason=TerminationReason.ANSWERED, output="Done \N{SNOWMAN}.")


def _new(dedupe_key: str | None = None, actor: AiActorContext = EDITOR, agent: str = "editor") -> NewRun:
    return NewRun(run_id=uuid7(), agent=agent, actor=actor, messages=(UserMessage("Go."),), dedupe_key=dedupe_key)


class CreationConformance(StoreCase):
    """`create`."""

    def test_created_for_the_caller_it_runs_under_claim_1(self, stage: Stage) -> None:
        actor = AiActorContext.service("import", grants={Grant.RECONCILE, Grant.APPROVE})
        new = _new(actor=actor)
        assert stage.store.create(new, lease=LEASE) == Claim(new.run_id, 1)
        run = stage.store.get(new.run_id)
        assert (run.status, run.claim, run.agent, run.actor) == (RunStatus.RUNNING, 1, "editor", actor)
        assert (run.suspension, run.takeovers, run.cancel_requested, run.fence) == (0, 0, False, None)
        assert run.created_at.timestamp() == run.updated_at.timestamp() == stage.clock.now

    def test_created_for_nobody_it_is_queued(self, stage: Stage) -> None:
        new = _new()
        assert stage.store.create(new, lease=None) is None
        assert stage.claimable(10) == [new.run_id]

    def test_same_dedupe_key_gives_the_first_run(self, stage: Stage) -> None:
        first, second = _new("order-1"), _new("order-1")
        stage.store.create(first, lease=None)
        found = stage.store.create(second, lease=LEASE)
        assert isinstance(found, StoredRun)
        assert (found.run_id, found.status) == (first.run_id, RunStatus.QUEUED)
        with pytest.raises(UnknownRun):
            stage.store.get(second.run_id)

    @pytest.mark.parametrize("other", [_new("k", AiActorContext.user("9")), _new("k", agent="clerk")])
    def test_dedupe_key_of_someone_else_is_refused(self, stage: Stage, other: NewRun) -> None:
        stage.store.create(_new("k"), lease=None)
        with pytest.raises(DedupeConflict):
            stage.store.create(replace(other, run_id=uuid7()), lease=None)


class AdvanceConformance(StoreCase):
    """`advance`: each change, what it refuses, and what it leaves behind."""

    def test_transcript_comes_back_as_it_was_said(self, stage: Stage) -> None:
        segment = stage.started()
        call_id = uuid7()
        native = NativePart("x", "1", {"signature": "a\u0000b", "deep": [1.5, None, {"\N{SNOWMAN}": True}]})
        asked = ModelAnswer("", (ModelCall("read", '{"a": "\\ud83d"}', "call_0"),), native=native)
        said: tuple[Message, ...] = (AssistantMessage(asked, (call_id,)), ToolMessage(call_id, "read", "text"))
        segment.advance(Progress(messages=said[:1]))
        segment.advance(Progress(messages=said[1:]))
        segment.advance(HandBack())
        claimed = stage.store.claim(segment.run_id, lease=LEASE, takeovers=0)
        assert claimed is not None
        assert claimed.messages[1:] == said

    def test_same_change_again_is_stored_once(self, stage: Stage) -> None:
        segment, fence = stage.fenced()
        for change in (SetFence(fence), written(fence)):
            revision = 0 if isinstance(change, SetFence) else 1
            for _ in range(2):
                assert stage.store.advance(segment.claim, change, at=segment.at, revision=revision) is False
        assert len(stage.store.writes(after=None, table=None, record=None, since=None, limit=9)) == 1
        with pytest.raises(StoreError):
            stage.store.advance(segment.claim, Progress(), at=segment.at, revision=7)

    def test_fence_is_set_once_and_again_for_a_later_attempt(self, stage: Stage) -> None:
        segment, fence = stage.fenced()
        for wrong in (fence, replace(fence, call_id=uuid7(), attempt=2)):
            with pytest.raises(StoreError):
                segment.advance(SetFence(wrong))
        segment.advance(SetFence(replace(fence, attempt=2)))
        assert stage.store.get(segment.run_id).fence == replace(fence, attempt=2)

    def test_only_the_result_of_its_call_clears_a_fence(self, stage: Stage) -> None:
        segment, fence = stage.fenced()
        segment.advance(Progress(steps=(NewStep(StepKind.TOOL),)))
        segment.advance(Progress(clears=uuid7()))
        assert stage.store.get(segment.run_id).fence == fence
        segment.advance(written(fence))
        run = stage.store.get(segment.run_id)
        assert (run.fence, run.fence_verdict) == (None, None)

    def test_nothing_leaves_its_segment_while_the_fence_stands(self, stage: Stage) -> None:
        segment, fence = stage.fenced()
        turn = replace(stage.waiting(), run_id=segment.run_id, suspension=2)
        settlements = [
            Settle(status=status, reason=TerminationReason.CANCELLED)
            for status in (RunStatus.CANCELLED, RunStatus.FAILED, RunStatus.DEAD_LETTER)
        ]
        changes: list[Change] = [Suspend(turn=turn), HandBack(), DONE, *settlements]
        for change in changes:
            with pytest.raises(StoreError, match="fence"):
                segment.advance(change)
        run = stage.store.get(segment.run_id)
        assert (run.status, run.fence) == (RunStatus.RUNNING, fence)

    @pytest.mark.parametrize("cancelled", [False, True])
    @pytest.mark.parametrize("verdict", list(ReconcileVerdict))
    def test_a_fence_is_handed_back_with_its_verdict(
        self, stage: Stage, verdict: ReconcileVerdict, cancelled: bool
    ) -> None:
        segment, fence = stage.uncertain()
        told = settlement(segment.run_id, fence, verdict)
        stage.store.reconcile(told)
        segment = stage.claimed(segment.run_id)
        if cancelled:
            stage.store.cancel(segment.run_id, "8")
        assert segment.advance(HandBack()) is cancelled
        run = stage.store.get(segment.run_id)
        assert (run.status, run.fence, run.fence_verdict) == (RunStatus.QUEUED, fence, told.verdict)
        segment = stage.claimed(segment.run_id)
        segment.advance(Progress(clears=fence.call_id))
        with pytest.raises(CancelRequested) if cancelled else nullcontext():
            segment.advance(HandBack())

    def test_nothing_is_uncertain_without_a_fence(self, stage: Stage) -> None:
        with pytest.raises(StoreError):
            stage.started().advance(BecomeUncertain(reason=UncertaintyReason.RAISED))

    def test_uncertain_keeps_its_fence(self, stage: Stage) -> None:
        segment, fence = stage.fenced()
        segment.advance(BecomeUncertain(reason=UncertaintyReason.UNNAMED))
        run = stage.store.get(segment.run_id)
        assert (run.status, run.reason, run.fence) == (RunStatus.UNCERTAIN, UncertaintyReason.UNNAMED, fence)
        assert stage.claimable(10) == []

    def test_suspended_turn_comes_back_with_its_expiry(self, stage: Stage) -> None:
        turn = stage.waiting(calls=2, ttl=90)
        run = stage.store.get(turn.run_id)
        assert run.turn is not None
        assert (run.status, run.suspension, run.turn.digest) == (RunStatus.AWAITING_APPROVAL, 1, turn.digest)
        assert run.turn.expires_at == run.updated_at + timedelta(seconds=90)
        assert run.turn == replace(turn, expires_at=run.turn.expires_at)

    def test_suspension_number_never_repeats(self, stage: Stage) -> None:
        turn = stage.waiting()
        stage.store.decide(ruling(turn))
        segment = stage.claimed(turn.run_id)
        with pytest.raises(StoreError):
            segment.advance(Suspend(turn=turn))
        assert suspend(segment).suspension == 2

    def test_cancel_stops_what_has_not_begun(self, stage: Stage) -> None:
        segment = stage.started()
        assert stage.store.cancel(segment.run_id, "8") is RunStatus.RUNNING
        fence = Fence(uuid7(), "t", ToolEffect.IDEMPOTENT_WRITE, 1)
        turn = replace(stage.waiting(), run_id=segment.run_id)
        for change in (SetFence(fence), Suspend(turn=turn)):
            with pytest.raises(CancelRequested):
                segment.advance(change)
        dead = Settle(status=RunStatus.DEAD_LETTER, reason=TerminationReason.NOT_RETRYABLE)
        for end in (HandBack(), DONE, dead):
            with pytest.raises(CancelRequested):
                segment.advance(end)
        run = stage.store.get(segment.run_id)
        assert (run.status, run.fence, run.cancel_requested) == (RunStatus.RUNNING, None, True)

    def test_cancel_lets_a_write_in_flight_be_recorded(self, stage: Stage) -> None:
        segment, fence = stage.fenced()
        stage.store.cancel(segment.run_id, "8")
        assert segment.advance(written(fence)) is True
        cancelled = Settle(status=RunStatus.CANCELLED, reason=TerminationReason.CANCELLED)
        assert segment.advance(cancelled) is True
        assert stage.status(segment.run_id) is RunStatus.CANCELLED
        assert len(stage.store.writes(after=None, table=None, record=None, since=None, limit=9)) == 1

    def test_settled_run_keeps_its_answer_and_its_facts_only(self, stage: Stage) -> None:
        segment, fence = stage.fenced()
        detail = NewStep(StepKind.TOOL, fence.call_id, {"outcome": "refused"}, detail="a reason")
        segment.advance(Progress(messages=(ToolMessage(fence.call_id, "t", "x"),), steps=(detail,)))
        segment.advance(written(fence))
        assert stage.store.list_steps(segment.run_id, after=0, limit=9)[1].detail == "a reason"
        segment.advance(replace(DONE, steps=(replace(detail, kind=StepKind.SETTLED),)))
        run = stage.store.get(segment.run_id)
        assert (run.status, run.reason, run.output) == (RunStatus.COMPLETED, DONE.reason, DONE.output)
        assert (run.turn, run.problem, set(run.decided)) == (None, None, {fence.call_id})
        steps = stage.store.list_steps(segment.run_id, after=0, limit=9)
        assert [step.detail for step in steps] == [None] * 5
        assert [step.target for step in steps if step.target] == [PAGE]

    def test_dead_letter_keeps_what_it_needs_to_go_on(self, stage: Stage) -> None:
        segment = stage.started()
        failed = NewStep(StepKind.MODEL, detail="429")
        segment.advance(Settle(status=RunStatus.DEAD_LETTER, reason=TerminationReason.NOT_RETRYABLE, steps=(failed,)))
        assert stage.store.get(segment.run_id).reason is TerminationReason.NOT_RETRYABLE
        assert stage.store.list_steps(segment.run_id, after=0, limit=9)[0].detail == "429"
        stage.store.retry(segment.run_id)
        assert stage.claimed(segment.run_id).at == 1

    def test_only_an_end_settles(self, stage: Stage) -> None:
        for status in (RunStatus.QUEUED, RunStatus.UNCERTAIN, RunStatus.AWAITING_APPROVAL):
            with pytest.raises(StoreError):
                stage.started().advance(Settle(status=status, reason=TerminationReason.ANSWERED))

    def test_terminal_means_terminal(self, stage: Stage) -> None:
        segment = stage.started()
        segment.advance(DONE)
        with pytest.raises(ClaimLost):
            segment.advance(Progress())
        assert stage.claimable(9) == []
        assert stage.store.claim(segment.run_id, lease=LEASE, takeovers=9) is None
