"""What readers may rely on: lists in pages, and the feed of writes."""

# ruff: noqa: D102 - a test's name is its documentation

from datetime import datetime, timedelta
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from byline.approval.decision import Approve
from byline.errors import InvalidIdentifier, UnknownRun
from byline.records import RecordReference, WriteKind
from byline.runs.status import RunStatus, TerminationReason
from byline.runs.steps import NewStep, StepKind
from byline.store.protocol import Progress, Settle, Trace
from byline.testing.conformance.stage import FILE, PAGE, Stage, StoreCase, ruling
from byline.tools.result import WriteTarget


class ReadConformance(StoreCase):
    """The lists, `get`, `writes`."""

    def test_unknown_run(self, stage: Stage) -> None:
        with pytest.raises(UnknownRun):
            stage.store.get(uuid7())
        with pytest.raises(UnknownRun):
            stage.store.list_steps(uuid7(), after=0, limit=1)
        with pytest.raises(UnknownRun):
            stage.store.trace(uuid7(), after=0, limit=1)

    def test_runs_are_listed_newest_first_in_pages(self, stage: Stage) -> None:
        queued = [stage.queued() for _ in range(3)]
        clerk = stage.started("clerk").run_id
        turn = stage.waiting(calls=2)
        stage.store.decide(ruling(turn, {turn.calls[0].id: Approve()}))
        newest_first = [turn.run_id, clerk, *reversed(queued)]

        def page(
            *, status: RunStatus | None = None, agent: str | None = None, after: UUID | None = None, limit: int = 10
        ) -> list[UUID]:
            runs = stage.store.list_runs(status=status, agent=agent, after=after, limit=limit)
            return [run.run_id for run in runs]

        assert page() == newest_first
        assert page(limit=2) == newest_first[:2]
        assert page(limit=2, after=newest_first[1]) == newest_first[2:4]
        assert page(status=RunStatus.QUEUED, after=queued[2]) == newest_first[3:]
        assert page(agent="clerk") == [clerk]
        assert page(agent="clerk", status=RunStatus.QUEUED) == []
        waiting = stage.store.list_runs(status=RunStatus.AWAITING_APPROVAL, agent="editor", after=None, limit=9)
        assert waiting == [stage.store.get(turn.run_id)]
        assert set(waiting[0].decided) == {turn.calls[0].id}

    def test_steps_are_listed_in_pages(self, stage: Stage) -> None:
        segment, other = stage.started(), stage.started()
        # A key that the privacy level allows: another one is not stored.
        steps = [NewStep(StepKind.MODEL, uuid7(), {"calls": n}, detail=f"d{n}" if n % 2 else None) for n in range(5)]
        segment.advance(Progress(steps=tuple(steps[:3])))
        other.advance(Progress(steps=(NewStep(StepKind.MODEL),)))
        segment.advance(Progress(steps=tuple(steps[3:])))
        listed = stage.store.list_steps(segment.run_id, after=0, limit=9)
        assert [(s.kind, s.call_id, s.payload, s.target, s.detail) for s in listed] == [
            (s.kind, s.call_id, s.payload, s.target, s.detail) for s in steps
        ]
        assert [step.position for step in listed] == sorted({step.position for step in listed})
        assert stage.store.list_steps(segment.run_id, after=listed[1].position, limit=2) == listed[2:4]
        assert {(step.run_id, step.at.timestamp()) for step in listed} == {(segment.run_id, stage.clock.now)}

    def test_a_trace_says_whether_its_run_has_ended(self, stage: Stage) -> None:
        turn, dead = stage.waiting(), stage.started()
        settled = NewStep(StepKind.SETTLED, payload={"status": "dead_letter"})
        gone = TerminationReason.MODEL_FAILED
        dead.advance(Settle(status=RunStatus.DEAD_LETTER, reason=gone, output=None, steps=(settled,)))
        for run_id in (turn.run_id, dead.run_id):
            before = stage.store.list_steps(run_id, after=0, limit=9)
            assert stage.store.trace(run_id, after=0, limit=9) == Trace(before, ended=False)
            stage.peer.cancel(run_id, "9")
            steps = stage.store.list_steps(run_id, after=0, limit=9)
            assert stage.store.trace(run_id, after=0, limit=9) == Trace(steps, ended=True)
            assert stage.store.trace(run_id, after=before[-1].position, limit=1) == Trace(
                steps[len(before) :][:1], True
            )
            assert stage.store.trace(run_id, after=steps[-1].position, limit=9) == Trace([], ended=True)

    def test_writes_are_fed_in_order_and_read_on_from_any_of_them(self, stage: Stage) -> None:
        targets = [PAGE, FILE, WriteTarget(RecordReference("pages", 7), WriteKind.CREATED), PAGE]
        segments = [stage.started(), stage.started()]
        for number, target in enumerate(targets):
            stage.clock.pass_by(1)
            steps = (NewStep(StepKind.TOOL), NewStep(StepKind.WRITE, uuid7(), target=target))
            segments[number % 2].advance(Progress(steps=steps))

        def feed(
            *,
            after: str | None = None,
            table: str | None = None,
            record: RecordReference | None = None,
            since: datetime | None = None,
            limit: int = 10,
        ) -> list[WriteTarget]:
            facts = stage.store.writes(after=after, table=table, record=record, since=since, limit=limit)
            return [WriteTarget(fact.record, fact.kind) for fact in facts]

        facts = stage.store.writes(after=None, table=None, record=None, since=None, limit=10)
        assert [fact.correlation_id for fact in facts] == [segments[n % 2].run_id for n in range(4)]
        assert feed() == targets
        assert type(facts[0].record.uid) is int
        for number, fact in enumerate(facts):
            assert feed(after=fact.cursor) == targets[number + 1 :]
        assert feed(limit=1, after=facts[0].cursor) == targets[1:2]
        assert feed(table="pages") == [targets[0], *targets[2:]]
        assert feed(record=PAGE.record) == [PAGE, PAGE]
        assert feed(record=PAGE.record, after=facts[0].cursor) == [PAGE]
        assert feed(record=PAGE.record, table="files") == []
        assert feed(since=facts[1].at) == targets[1:]
        assert feed(since=facts[1].at, table="pages", after=facts[2].cursor) == targets[3:]
        assert feed(since=facts[3].at + timedelta(seconds=1)) == []

    @pytest.mark.parametrize("cursor", ["", "1", "1-", "2-1", "1--1", "1-01", "1-1 ", "1-\u0661", "x", "1-" + "9" * 40])
    def test_cursor_of_another_feed_is_refused(self, stage: Stage, cursor: str) -> None:
        with pytest.raises(InvalidIdentifier):
            stage.store.writes(after=cursor, table=None, record=None, since=None, limit=1)

    def test_naive_time_is_refused(self, stage: Stage) -> None:
        naive = stage.store.get(stage.queued()).created_at.replace(tzinfo=None)
        with pytest.raises(InvalidIdentifier):
            stage.store.writes(after=None, table=None, record=None, since=naive, limit=1)
