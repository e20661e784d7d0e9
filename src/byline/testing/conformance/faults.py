"""What everybody may rely on when the database fails: what is stored is stored once, or an error says it is not."""

# ruff: noqa: D102 - a test's name is its documentation

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from byline.approval.decision import Approve, ReconcileVerdict
from byline.approval.fence import Fence
from byline.errors import StoreUnavailable, UnknownRun
from byline.models.messages import UserMessage
from byline.runs.status import RunStatus, TerminationReason, UncertaintyReason
from byline.runs.steps import NewStep, StepKind
from byline.store.protocol import (
    Beat,
    BecomeUncertain,
    Change,
    HandBack,
    LateReport,
    NewRun,
    Postpone,
    Progress,
    SetFence,
    Settle,
    Suspend,
)
from byline.testing.conformance.segments import DONE
from byline.testing.conformance.stage import (
    EDITOR,
    LEASE,
    PAGE,
    TAKEOVERS,
    Segment,
    Stage,
    StoreCase,
    ruling,
    settlement,
    written,
)
from byline.testing.conformance.verdicts import amendment
from byline.tools.effect import ToolEffect


@dataclass(frozen=True, slots=True)
class Act:
    """One call of a method, and the run to look at afterwards."""

    run_id: UUID
    call: Callable[[], object]


Prepare: TypeAlias = Callable[[Stage], Act]


def _create(lease: float | None) -> Prepare:
    def prepare(stage: Stage) -> Act:
        new = NewRun(
            run_id=uuid7(), agent="editor", actor=EDITOR, messages=(UserMessage("Go."),), dedupe_key=uuid7().hex
        )
        return Act(new.run_id, lambda: stage.store.create(new, lease=lease))

    return prepare


def _claim(stage: Stage, run_id: UUID, takeovers: int = TAKEOVERS) -> Act:
    return Act(run_id, lambda: stage.store.claim(run_id, lease=LEASE, takeovers=takeovers))


def _claim_queued(stage: Stage) -> Act:
    return _claim(stage, stage.queued())


def _take_over(stage: Stage) -> Act:
    run_id = stage.started().run_id
    stage.clock.pass_by(LEASE)
    return _claim(stage, run_id)


def _give_up(stage: Stage) -> Act:
    run_id = stage.started().run_id
    stage.clock.pass_by(LEASE)
    return _claim(stage, run_id, takeovers=0)


def _beat(stage: Stage) -> Act:
    held = stage.started()
    return Act(held.run_id, lambda: stage.store.beat([held.claim], lease=LEASE)[held.claim])


def _advance(change: Change) -> Prepare:
    def prepare(stage: Stage) -> Act:
        return _advancing(stage.started(), change)

    return prepare


def _advancing(segment: Segment, change: Change) -> Act:
    return Act(segment.run_id, lambda: segment.advance(change))


def _suspend(stage: Stage) -> Act:
    segment = stage.started()
    turn = replace(stage.waiting(), run_id=segment.run_id)
    return _advancing(segment, Suspend(turn=turn, messages=(UserMessage("x"),)))


def _record_write(stage: Stage) -> Act:
    segment, fence = stage.fenced()
    return _advancing(segment, written(fence))


def _become_uncertain(stage: Stage) -> Act:
    segment, _ = stage.fenced()
    return _advancing(segment, BecomeUncertain(reason=UncertaintyReason.RAISED))


def _report_late(stage: Stage) -> Act:
    segment, fence = stage.uncertain()
    report = LateReport(report_id=uuid7(), claim=segment.claim, fence=fence, target=PAGE)
    return Act(segment.run_id, lambda: stage.store.report_late(report).settled)


def _release(stage: Stage) -> Act:
    turn = stage.waiting()
    decision = ruling(turn)
    return Act(turn.run_id, lambda: stage.store.decide(decision))


def _decide_partly(stage: Stage) -> Act:
    turn = stage.waiting(calls=2)
    decision = ruling(turn, {turn.calls[0].id: Approve()})
    return Act(turn.run_id, lambda: stage.store.decide(decision))


def _amend(stage: Stage) -> Act:
    turn = stage.waiting()
    change = amendment(turn)
    return Act(turn.run_id, lambda: stage.store.amend(change))


def _reconcile(stage: Stage) -> Act:
    segment, fence = stage.uncertain()
    told = settlement(segment.run_id, fence, ReconcileVerdict.RUN_AGAIN)
    return Act(segment.run_id, lambda: stage.store.reconcile(told))


def _cancel_waiting(stage: Stage) -> Act:
    run_id = stage.waiting().run_id
    return Act(run_id, lambda: stage.store.cancel(run_id, "8"))


def _cancel_running(stage: Stage) -> Act:
    run_id = stage.started().run_id
    return Act(run_id, lambda: stage.store.cancel(run_id, "8"))


def _retry(stage: Stage) -> Act:
    segment = stage.started()
    segment.advance(Settle(status=RunStatus.DEAD_LETTER, reason=TerminationReason.NOT_RETRYABLE))
    return Act(segment.run_id, lambda: stage.store.retry(segment.run_id))


def _expire(stage: Stage) -> Act:
    run_id = stage.waiting(ttl=1).run_id
    stage.clock.pass_by(1)
    return Act(run_id, lambda: len(stage.store.expire(9)))


WRITING: dict[str, Prepare] = {
    "create": _create(LEASE),
    "create queued": _create(None),
    "claim": _claim_queued,
    "claim, taking over": _take_over,
    "claim, giving up": _give_up,
    "beat": _beat,
    "progress": _advance(Progress(messages=(UserMessage("x"),), steps=(NewStep(StepKind.MODEL, detail="d"),))),
    "fence": _advance(SetFence(Fence(uuid7(), "t", ToolEffect.IDEMPOTENT_WRITE, 1))),
    "record a write": _record_write,
    "suspend": _suspend,
    "hand back": _advance(HandBack(steps=(NewStep(StepKind.HANDED_BACK),))),
    "become uncertain": _become_uncertain,
    "postpone": _advance(
        Postpone(because="E", delay=9, steps=(NewStep(StepKind.MODEL, payload={"failed": "E"}, detail="d"),))
    ),
    "settle": _advance(DONE),
    "dead letter": _advance(Settle(status=RunStatus.DEAD_LETTER, reason=TerminationReason.NOT_RETRYABLE)),
    "report late": _report_late,
    "release": _release,
    "decide partly": _decide_partly,
    "amend": _amend,
    "reconcile": _reconcile,
    "cancel": _cancel_waiting,
    "ask to cancel": _cancel_running,
    "retry": _retry,
    "expire": _expire,
}


def picture(stage: Stage, run_id: UUID) -> object:
    """All that can be read of a run, without its ids."""
    try:
        run = stage.store.get(run_id)
    except UnknownRun:
        return None
    steps = [
        (step.kind, step.payload, step.target, step.detail)
        for step in stage.store.list_steps(run_id, after=0, limit=99)
    ]
    feed = stage.store.writes(after=None, table=None, record=None, since=None, limit=99)
    writes = [fact.record for fact in feed if fact.correlation_id == run_id]
    fence = None if run.fence is None else (run.fence.tool, run.fence.effect, run.fence.attempt)
    said = [type(verdict.verdict) for verdict in run.decided.values()]
    standing = (run.status, run.reason, run.claim, run.suspension, run.cancel_requested, run.output)
    budget = (run.takeovers, run.model_failures)
    return (*standing, *budget, fence, run.fence_verdict, run.turn is not None, said, steps, writes)


class FaultConformance(StoreCase):
    """Every writing method under every fault; every reading one under a lock."""

    plain: ClassVar[dict[str, tuple[object, object]]] = {}

    @pytest.mark.parametrize("method", WRITING)
    def test_commit_that_fails_once_is_made_again(self, stage: Stage, method: str) -> None:
        plain, act = self._plainly(method), WRITING[method](stage)
        with self.commit_fails(stage.store, 1):
            result = act.call()
        assert (_kind(result), picture(stage, act.run_id)) == plain

    @pytest.mark.parametrize("method", WRITING)
    def test_commit_whose_answer_is_lost_stands_once(self, stage: Stage, method: str) -> None:
        plain, act = self._plainly(method), WRITING[method](stage)
        with self.answer_is_lost(stage.store, 1):
            result = act.call()
        assert (_kind(result), picture(stage, act.run_id)) == plain

    @pytest.mark.parametrize("method", WRITING)
    def test_commit_that_never_succeeds_stores_nothing(self, stage: Stage, method: str) -> None:
        act = WRITING[method](stage)
        before = picture(stage, act.run_id)
        with self.commit_fails(stage.store, 1000), pytest.raises(StoreUnavailable) as caught:
            act.call()
        assert caught.value.__cause__ is not None
        assert picture(stage, act.run_id) == before

    @pytest.mark.parametrize("method", WRITING)
    def test_lock_held_for_200_ms_is_waited_for(self, stage: Stage, method: str) -> None:
        plain, act = self._plainly(method), WRITING[method](stage)
        with self.is_locked(stage.store, 0.2):
            result = act.call()
        assert (_kind(result), picture(stage, act.run_id)) == plain

    def test_readers_do_not_mind_a_lock(self, stage: Stage) -> None:
        run_id = stage.queued()
        with self.is_locked(stage.store, 0.2):
            assert stage.claimable(1) == [run_id]
            assert stage.store.get(run_id).run_id == run_id
            assert len(stage.store.list_runs(status=None, agent=None, after=None, limit=1)) == 1
            assert stage.store.list_steps(run_id, after=0, limit=1) == []
            assert stage.store.writes(after=None, table=None, record=None, since=None, limit=1) == []
            assert stage.store.late_reports(conflicts_only=False, limit=1) == []

    def _plainly(self, method: str) -> tuple[object, object]:
        """What the method comes to when nothing fails."""
        if method not in self.plain:
            with self.new_stage() as stage:
                act = WRITING[method](stage)
                self.plain[method] = _kind(act.call()), picture(stage, act.run_id)
        return self.plain[method]


def _kind(result: object) -> object:
    """A result without its ids."""
    return result if isinstance(result, RunStatus | bool | int | Beat) else type(result)
