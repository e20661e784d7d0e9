"""The store against a small model of it: what any order of claims, crashes, words and late returns may come to.

Several segments, dead ones among them, try what they may at any time; a COMMIT fails now and then, or its answer is
lost. The model says what must come of it. Longer: `make test ARGS="--hypothesis-profile=long -k StoreModel"`.
"""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeVar
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from uuid_utils.compat import uuid7

from byline.approval.decision import Approve, Deny, ReconcileVerdict
from byline.approval.fence import Fence
from byline.approval.turn import PendingTurn
from byline.errors import (
    AlreadyDecided,
    ApprovalExpired,
    CancelRequested,
    ClaimLost,
    NotDecidable,
    NotRetryable,
    RunFinished,
    StaleDecision,
    StoreError,
)
from byline.models.messages import UserMessage
from byline.records import RecordReference, WriteKind
from byline.runs.status import MOVES, RunStatus, TerminationReason, UncertaintyReason
from byline.runs.steps import NewStep, StepKind
from byline.store.protocol import (
    BecomeUncertain,
    Change,
    Claim,
    HandBack,
    LateReport,
    NewRun,
    Progress,
    Release,
    RunStore,
    SetFence,
    Settle,
    StoredRun,
)
from byline.testing.conformance.stage import EDITOR, LEASE, Segment, ruling, settlement, suspend, written
from byline.tools.effect import ToolEffect
from byline.tools.result import WriteTarget
from tests.store.sqlite import SqliteFile

T = TypeVar("T")

BUDGET: Final = 1
"""Take-overs without progress."""
TTL: Final = 100.0
RUNS: Final = st.integers(0, 1)
WHO: Final = st.tuples(RUNS, st.sampled_from([0, 0, 0, 1, 2]))
"""Of which run the worker is, and how many came after it."""
WAITS, QUEUED, RUNNING = RunStatus.AWAITING_APPROVAL, RunStatus.QUEUED, RunStatus.RUNNING
UNCERTAIN, DEAD_LETTER, CANCELLED = RunStatus.UNCERTAIN, RunStatus.DEAD_LETTER, RunStatus.CANCELLED


ENDS_OF_A_CANCEL: Final = [
    Settle(status=status, reason=TerminationReason.CANCELLED, steps=(NewStep(StepKind.SETTLED),))
    for status in (RunStatus.FAILED, CANCELLED)
]
LEAVING: Final = [
    HandBack(),
    *(Release(because="No key.", delay=30, taken_over=taken_over) for taken_over in (False, True)),
    Settle(status=RunStatus.COMPLETED, reason=TerminationReason.ANSWERED, output="Done."),
    Settle(status=DEAD_LETTER, reason=TerminationReason.MODEL_FAILED),
    *ENDS_OF_A_CANCEL,
]


@dataclass
class Known:
    """What the model knows of a run."""

    run_id: UUID
    status: RunStatus
    due: float | None
    claim: int = 0
    takeovers: int = 0
    cancel: bool = False
    fence: Fence | None = None
    word: Literal["person", "fact"] | None = None
    """Who said what is known of the fenced call."""
    last_fence: Fence | None = None
    turns: list[PendingTurn] = field(default_factory=list)
    words: list[tuple[UUID, int, WriteTarget | None]] = field(default_factory=list)
    """What was said of which call's attempt; None where it did not land."""
    reports: dict[tuple[UUID, int], tuple[bool, bool]] = field(default_factory=dict)
    """Of which call and claim it was reported late; whether that settled the run, and whether it is a conflict."""
    facts: list[UUID] = field(default_factory=list)
    """The calls of its facts."""
    workers: "list[Worker]" = field(default_factory=list)
    """All that ever claimed it, the latest last."""

    def move(self, status: RunStatus, due: float | None = None) -> None:
        self.status, self.due = status, due

    def settle_call(self, target: WriteTarget | None, word: Literal["person", "fact"], now: float) -> None:
        assert self.fence is not None
        self.words.append((self.fence.call_id, self.fence.attempt, target))
        self.word, self.takeovers = word, 0
        self.move(QUEUED, now)

    def become_uncertain(self, now: float) -> None:
        self.move(UNCERTAIN)
        self.word = None
        assert self.fence is not None
        open_reports = [key for key, marks in self.reports.items() if key[0] == self.fence.call_id and not any(marks)]
        if open_reports:
            self.reports[max(open_reports, key=lambda key: key[1])] = (True, False)
            self.settle_call(target_of(self.fence.call_id), "fact", now)


@dataclass
class Worker:
    """A segment, and the fence that it believes in. It may have lost its claim long ago."""

    segment: Segment
    fence: Fence | None


def target_of(call_id: UUID) -> WriteTarget:
    """Each call writes a record of its own: so a fact says which call it is of."""
    return WriteTarget(RecordReference("pages", str(call_id)), WriteKind.UPDATED)


class StoreModel(RuleBasedStateMachine):
    """The store, and what must come of each thing that is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.left = ExitStack()
        self.case = SqliteFile()
        self.case.folder = Path(self.left.enter_context(tempfile.TemporaryDirectory()))
        self.stage = self.left.enter_context(self.case.new_stage())
        self.known: dict[UUID, Known] = {}
        self.before: dict[UUID, StoredRun] = {}
        self.facts: list[UUID] = []
        self.told: list[UUID] = []
        self.cursor: str | None = None
        self.broken: Literal["fails", "is lost"] | None = None

    def teardown(self) -> None:
        self.left.close()

    def run_at(self, which: int) -> Known:
        return list(self.known.values())[which % len(self.known)]

    def worker_at(self, who: tuple[int, int]) -> Worker:
        """One that claimed a run, and perhaps lost it; of the first run, if nobody has claimed that one."""
        which, later = who
        workers = self.run_at(which).workers or self.run_at(0).workers
        return workers[max(-1 - later, -len(workers))]

    def some_stand_in(self, status: RunStatus) -> bool:
        """Whether it is worth while to try what is for runs of this status."""
        return any(known.status is status for known in self.known.values())

    @property
    def now(self) -> float:
        return self.stage.clock.now

    def ask(self, store: RunStore, question: Callable[[], T]) -> T:
        """Ask the store something that it stores, with the next COMMIT broken if that is to be."""
        broken, self.broken = self.broken, None
        breaking = {"fails": self.case.commit_fails, "is lost": self.case.answer_is_lost}
        with breaking[broken](store, 1) if broken is not None else nullcontext():
            return question()

    def holder(self, worker: Worker) -> Known | None:
        """The run that a worker still holds."""
        known = self.known[worker.segment.run_id]
        held = known.status is RUNNING and known.claim == worker.segment.claim.number
        return known if held else None

    def advance(self, worker: Worker, change: Change, *, refused: type[StoreError] | None) -> None:
        """Let a worker store a change, or see it refused."""
        store = worker.segment.store
        if refused is None:
            cancel = self.ask(store, lambda: worker.segment.advance(change))
            assert cancel is self.known[worker.segment.run_id].cancel
            return
        with pytest.raises(StoreError) as raised:
            self.ask(store, lambda: worker.segment.advance(change))
        assert type(raised.value) is refused

    # -- what happens around the runs

    @rule(seconds=st.sampled_from([1, LEASE / 2, LEASE + 1, TTL]))
    def time_passes(self, seconds: float) -> None:
        self.stage.clock.pass_by(seconds)

    @rule(how=st.sampled_from(["fails", "is lost"]))
    def the_next_commit(self, how: Literal["fails", "is lost"]) -> None:
        self.broken = how

    # -- what a host does

    @initialize()
    def start(self) -> None:
        """Begin a run, as its first worker does."""
        known = Known(uuid7(), RUNNING, self.now + LEASE, claim=1)
        claim = self.create(known, LEASE)
        assert isinstance(claim, Claim)
        assert claim.number == 1
        known.workers.append(Worker(Segment(self.stage.store, claim, 1), None))

    @precondition(lambda self: len(self.known) < 2)
    @rule()
    def enqueue(self) -> None:
        assert self.create(Known(uuid7(), QUEUED, self.now), None) is None

    def create(self, known: Known, lease: float | None) -> object:
        new = NewRun(run_id=known.run_id, agent="editor", actor=EDITOR, messages=(UserMessage("Describe it."),))
        self.known[new.run_id] = known
        return self.ask(self.stage.store, lambda: self.stage.store.create(new, lease=lease))

    @precondition(lambda self: any(known.turns for known in self.known.values()))
    @rule(which=RUNS, old=st.sampled_from([False, False, True]), verdict=st.sampled_from([Approve(), Deny("No.")]))
    def decide(self, which: int, old: bool, verdict: Approve | Deny) -> None:
        known = self.run_at(which)
        if not known.turns:
            return
        turn = known.turns[0 if old else -1]
        said = ruling(turn, dict.fromkeys(turn.waiting, verdict))
        if known.status.is_terminal or known.status in (UNCERTAIN, DEAD_LETTER):
            refused: type[NotDecidable] = RunFinished
        elif turn is not known.turns[-1]:
            refused = StaleDecision
        elif known.status is not WAITS:
            refused = AlreadyDecided
        elif known.due is not None and known.due <= self.now:
            refused = ApprovalExpired
        else:
            assert self.ask(self.stage.peer, lambda: self.stage.peer.decide(said)) is QUEUED
            known.move(QUEUED, self.now)
            return
        with pytest.raises(refused):
            self.ask(self.stage.peer, lambda: self.stage.peer.decide(said))

    @precondition(lambda self: self.some_stand_in(UNCERTAIN))
    @rule(which=RUNS, landed=st.booleans())
    def reconcile(self, which: int, landed: bool) -> None:
        known = self.run_at(which)
        if known.last_fence is None:
            return
        verdict = ReconcileVerdict.LANDED if landed else ReconcileVerdict.RUN_AGAIN
        written = target_of(known.last_fence.call_id)
        said = settlement(known.run_id, known.last_fence, verdict, target=written)
        if known.status is UNCERTAIN:
            self.ask(self.stage.peer, lambda: self.stage.peer.reconcile(said))
            known.settle_call(written if landed else None, "person", self.now)
        else:
            with pytest.raises(NotDecidable):
                self.ask(self.stage.peer, lambda: self.stage.peer.reconcile(said))

    @precondition(lambda self: sum(known.claim for known in self.known.values()) > 2)
    @rule(which=RUNS)
    def cancel(self, which: int) -> None:
        known = self.run_at(which)

        def cancel() -> RunStatus:
            return self.stage.peer.cancel(known.run_id, "9")

        if known.status.is_terminal:
            with pytest.raises(RunFinished):
                self.ask(self.stage.peer, cancel)
            return
        known.cancel = True
        held = known.status is RUNNING and known.due is not None and known.due > self.now
        if not held and known.fence is None:
            known.move(CANCELLED)
        assert self.ask(self.stage.peer, cancel) is known.status

    @precondition(lambda self: self.some_stand_in(DEAD_LETTER))
    @rule(which=RUNS)
    def retry(self, which: int) -> None:
        known = self.run_at(which)
        if known.status is not DEAD_LETTER:
            with pytest.raises(NotRetryable):
                self.ask(self.stage.peer, lambda: self.stage.peer.retry(known.run_id))
            return
        self.ask(self.stage.peer, lambda: self.stage.peer.retry(known.run_id))
        known.takeovers = 0
        known.move(QUEUED, self.now)

    @precondition(lambda self: self.some_stand_in(WAITS))
    @rule()
    def expire(self) -> None:
        over = [each for each in self.known.values() if each.status is WAITS and each.due and each.due <= self.now]
        assert set(self.ask(self.stage.store, lambda: self.stage.store.expire(9))) == {each.run_id for each in over}
        for known in over:
            known.move(RunStatus.FAILED)

    # -- what workers do

    @rule(which=RUNS, elsewhere=st.booleans())
    def crash_and_take_over(self, which: int, elsewhere: bool) -> None:
        self.stage.clock.pass_by(LEASE + 1)
        self.claim(self.run_at(which), elsewhere)

    @rule(which=RUNS, elsewhere=st.booleans())
    def wake_up(self, which: int, elsewhere: bool) -> None:
        """A wake-up, which may come late or twice."""
        self.claim(self.run_at(which), elsewhere)

    def claim(self, known: Known, elsewhere: bool) -> None:
        store = self.stage.peer if elsewhere else self.stage.store
        expired = known.status is RUNNING and known.due is not None and known.due <= self.now
        given_up = expired and known.takeovers >= BUDGET
        if given_up:
            self.broken = None  # if the answer is lost, what was queued by it is claimed: right, and another rule's
        claimed = self.ask(store, lambda: store.claim(known.run_id, lease=LEASE, takeovers=BUDGET))
        if given_up:
            self.give_up(known)
        if given_up or not (known.status is QUEUED or expired):
            assert claimed is None
            return
        assert claimed is not None
        assert claimed.taken_over is expired
        known.claim += 1
        known.takeovers += expired
        known.move(RUNNING, self.now + LEASE)
        assert claimed.claim == Claim(known.run_id, known.claim)  # a number that nobody had before
        known.workers.append(Worker(Segment(store, claimed.claim, len(claimed.messages)), known.fence))

    def give_up(self, known: Known) -> None:
        if known.fence is None:
            known.move(CANCELLED if known.cancel else DEAD_LETTER)
        elif known.word == "person":
            known.move(QUEUED, self.now)
        else:
            known.become_uncertain(self.now)

    @rule()
    def beat(self) -> None:
        """All of them, dead or alive: at most one holds each run."""
        beating = [worker for known in self.known.values() for worker in known.workers]
        claims = [worker.segment.claim for worker in beating]
        beats = self.ask(self.stage.store, lambda: self.stage.store.beat(claims, lease=LEASE))
        for worker in beating:
            known, beat = self.holder(worker), beats[worker.segment.claim]
            assert beat.held is (known is not None)
            assert beat.cancel_requested is self.known[worker.segment.run_id].cancel
            if known is not None:
                known.due = self.now + LEASE

    @rule(who=WHO)
    def finish_a_read(self, who: tuple[int, int]) -> None:
        worker = self.worker_at(who)
        known = self.holder(worker)
        self.advance(worker, Progress(steps=(NewStep(StepKind.TOOL),)), refused=None if known else ClaimLost)
        if known is not None:
            known.takeovers = 0

    @rule(who=WHO, effect=st.sampled_from([ToolEffect.IDEMPOTENT_WRITE, ToolEffect.NON_IDEMPOTENT_WRITE]))
    def set_fence(self, who: tuple[int, int], effect: ToolEffect) -> None:
        """Before a new call, or before a further attempt of the one that the fence stands before."""
        worker = self.worker_at(who)
        known, old = self.holder(worker), worker.fence
        fence = Fence(old.call_id if old else uuid7(), "update_page", effect, old.attempt + 1 if old else 1)
        refused = ClaimLost if known is None else CancelRequested if known.cancel else None
        self.advance(worker, SetFence(fence), refused=refused)
        if known is not None and not known.cancel:
            worker.fence = known.fence = known.last_fence = fence
            known.word = None

    @rule(who=WHO)
    def return_from_the_write(self, who: tuple[int, int]) -> None:
        """Who has lost the claim meanwhile says so as a late report."""
        worker = self.worker_at(who)
        fence, known = worker.fence, self.holder(worker)
        if fence is None:
            return
        self.advance(worker, written(fence, target_of(fence.call_id)), refused=None if known else ClaimLost)
        if known is not None:
            worker.fence = known.fence = known.word = None
            known.takeovers = 0
            self.store_fact(known, fence.call_id)
        else:
            self.report_late(worker.segment, fence)

    def report_late(self, segment: Segment, fence: Fence) -> None:
        known, target = self.known[segment.run_id], target_of(fence.call_id)
        late = LateReport(report_id=uuid7(), claim=segment.claim, fence=fence, target=target)
        stored = self.ask(segment.store, lambda: segment.store.report_late(late))
        key = fence.call_id, segment.claim.number
        if key not in known.reports:
            told = [said for call_id, attempt, said in known.words if (call_id, attempt) == (key[0], fence.attempt)]
            conflict = any(said != target for said in told)
            uncertain = known.status is UNCERTAIN and known.fence is not None and known.fence.call_id == key[0]
            known.reports[key] = uncertain and not conflict, conflict
            if uncertain and not conflict:
                known.settle_call(target, "fact", self.now)
            elif (conflict or not told) and key[0] not in known.facts:
                self.store_fact(known, key[0])
            assert (stored.settled, stored.conflict) == known.reports[key]

    def store_fact(self, known: Known, call_id: UUID) -> None:
        known.facts.append(call_id)
        self.facts.append(call_id)

    # -- how a run leaves its worker

    @rule(who=WHO, change=st.sampled_from(LEAVING))
    def leave(self, who: tuple[int, int], change: HandBack | Release | Settle) -> None:
        worker = self.worker_at(who)
        known = self.holder(worker)
        ends = isinstance(change, Settle)
        if known is None:
            refused: type[StoreError] | None = ClaimLost
        elif known.fence is not None:
            refused = StoreError if ends or known.word is None else None
        else:
            refused = CancelRequested if known.cancel and change not in ENDS_OF_A_CANCEL else None
        self.advance(worker, change, refused=refused)
        if known is None or refused is not None:
            return
        match change:
            case Settle(status=status):
                known.move(status)
            case HandBack():
                known.move(QUEUED, self.now)
            case Release(delay=delay, taken_over=taken_over):
                known.takeovers = max(0, known.takeovers - taken_over)
                known.move(QUEUED, self.now + delay)

    @rule(who=WHO, ttl=st.sampled_from([None, TTL]))
    def suspend(self, who: tuple[int, int], ttl: float | None) -> None:
        worker = self.worker_at(who)
        known = self.holder(worker)
        if known is None or known.fence is not None or known.cancel:
            refused = ClaimLost if known is None else StoreError if known.fence else CancelRequested
            with pytest.raises(StoreError) as raised:
                suspend(worker.segment, ttl=ttl)
            assert type(raised.value) is refused
            return
        known.turns.append(self.ask(worker.segment.store, lambda: suspend(worker.segment, ttl=ttl)))
        known.takeovers = 0
        known.move(WAITS, None if ttl is None else self.now + ttl)

    @rule(who=WHO)
    def become_uncertain(self, who: tuple[int, int]) -> None:
        worker = self.worker_at(who)
        known = self.holder(worker)
        refused = ClaimLost if known is None else StoreError if known.fence is None else None
        self.advance(worker, BecomeUncertain(reason=UncertaintyReason.RAISED), refused=refused)
        if known is not None and refused is None:
            known.become_uncertain(self.now)

    # -- what holds at all times

    @invariant()
    def the_store_is_as_the_model(self) -> None:
        stored = {run.run_id: run for run in self.stage.peer.list_runs(status=None, agent=None, after=None, limit=9)}
        assert stored.keys() == self.known.keys()
        for run_id, run in stored.items():
            known = self.known[run_id]
            assert (run.status, run.claim, run.fence) == (known.status, known.claim, known.fence)
            assert (run.takeovers, run.cancel_requested) == (known.takeovers, known.cancel)
            assert (run.fence_verdict is not None) is (known.word is not None)
            assert 0 <= run.takeovers <= BUDGET
            before = self.before.get(run_id, run)
            assert run.status is before.status or run.status in MOVES[before.status]
            assert run == before or not before.status.is_terminal
        self.before = stored

    @invariant()
    def what_is_due_is_listed(self) -> None:
        due = {
            each.run_id for each in self.known.values() if each.status in (QUEUED, RUNNING) and is_due(each, self.now)
        }
        assert set(self.stage.claimable(9)) == due

    @invariant()
    def the_feed_tells_each_fact_once(self) -> None:
        while page := self.stage.peer.writes(after=self.cursor, table=None, record=None, since=None, limit=2):
            self.told += [UUID(str(fact.record.uid)) for fact in page]
            self.cursor = page[-1].cursor
        assert self.told == self.facts


def is_due(known: Known, now: float) -> bool:
    """Whether the time that a run waits for has come."""
    return known.due is not None and known.due <= now


StoreModel.TestCase.settings = settings(
    max_examples=max(1, settings().max_examples // 4), stateful_step_count=50, deadline=None
)
TestStoreModel = pytest.mark.promise("P18", "P20")(StoreModel.TestCase)
