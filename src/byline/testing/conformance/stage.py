"""The stage on which a store is tried: a clock that stands still, and runs brought to where a test begins."""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from byline.actors import AiActorContext, Grant
from byline.approval.decision import Approve, Deny, ReconcileVerdict
from byline.approval.fence import Fence, FenceVerdict
from byline.approval.turn import PendingCall, PendingTurn
from byline.models.messages import AssistantMessage, ModelAnswer, ModelCall, UserMessage
from byline.records import RecordReference, WriteKind
from byline.runs.status import RunStatus, UncertaintyReason
from byline.runs.steps import NewStep, StepKind
from byline.store.protocol import (
    BecomeUncertain,
    Change,
    Claim,
    HandBack,
    NewRun,
    Progress,
    Ruling,
    RunStore,
    SetFence,
    Settlement,
    Suspend,
)
from byline.tools.effect import ToolEffect
from byline.tools.result import WriteTarget

EDITOR = AiActorContext.user("7")
APPROVER = AiActorContext.user("8", grants={Grant.APPROVE, Grant.RECONCILE})
PAGE = WriteTarget(RecordReference("pages", 42), WriteKind.UPDATED)
FILE = WriteTarget(RecordReference("files", "a/b.png"), WriteKind.CREATED)
LEASE, TAKEOVERS = 60.0, 3


class FakeClock:
    """Seconds since the epoch, as the test sets them."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Read the clock."""
        return self.now

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class Segment:
    """A claim with what a segment counts: its next message's number, and the changes it has stored."""

    def __init__(self, store: RunStore, claim: Claim, at: int) -> None:
        self.store, self.claim, self.at, self.revision = store, claim, at, 0

    @property
    def run_id(self) -> UUID:
        """The run."""
        return self.claim.run_id

    def advance(self, change: Change) -> bool:
        """Store a change, and count on."""
        cancel = self.store.advance(self.claim, change, at=self.at, revision=self.revision)
        self.revision += 1
        self.at += len(change.messages) if isinstance(change, Progress | Suspend) else 0
        return cancel


class Stage:
    """A store, a second one on the same database, and ways to bring a run to where a test begins."""

    def __init__(self, store: RunStore, peer: RunStore, clock: FakeClock) -> None:
        self.store, self.peer, self.clock = store, peer, clock

    def started(self, agent: str = "editor", actor: AiActorContext = EDITOR) -> Segment:
        """A run that is claimed by the segment that made it."""
        new = NewRun(run_id=uuid7(), agent=agent, actor=actor, messages=(UserMessage("Describe page 42."),))
        claim = self.store.create(new, lease=LEASE)
        assert isinstance(claim, Claim)
        return Segment(self.store, claim, 1)

    def queued(self) -> UUID:
        """A run that was handed back."""
        segment = self.started()
        segment.advance(HandBack())
        return segment.run_id

    def claimed(self, run_id: UUID) -> Segment:
        """The next segment of a run."""
        claimed = self.store.claim(run_id, lease=LEASE, takeovers=TAKEOVERS)
        assert claimed is not None
        return Segment(self.store, claimed.claim, len(claimed.messages))

    def waiting(self, calls: int = 1, ttl: float | None = None) -> PendingTurn:
        """The waiting turn of a run."""
        segment = self.started()
        return suspend(segment, calls, ttl)

    def fenced(self, effect: ToolEffect = ToolEffect.NON_IDEMPOTENT_WRITE, calls: int = 1) -> tuple[Segment, Fence]:
        """A run whose first call was released, and is about to write."""
        turn = self.waiting(calls)
        self.store.decide(ruling(turn))
        segment = self.claimed(turn.run_id)
        fence = Fence(turn.calls[0].id, "update_page", effect, 1)
        segment.advance(SetFence(fence))
        return segment, fence

    def uncertain(self, calls: int = 1) -> tuple[Segment, Fence]:
        """A run whose write may have landed."""
        segment, fence = self.fenced(calls=calls)
        segment.advance(BecomeUncertain(reason=UncertaintyReason.RAISED))
        return segment, fence

    def claimable(self, limit: int, *agents: str) -> list[UUID]:
        """Which runs can be claimed; without agents, those of the agent that runs are made of here."""
        return [found.run_id for found in self.store.claimable(limit, agents=agents or ("editor",))]

    def status(self, run_id: UUID) -> RunStatus:
        """Where a run stands."""
        return self.store.get(run_id).status


class StoreCase:
    """What an implementation provides in order to be tried."""

    def make_store(self, clock: Callable[[], float]) -> RunStore:
        """Make a store that is not open yet, on an empty database of its own, with the clock of the test."""
        raise NotImplementedError

    def make_peer(self, store: RunStore, clock: Callable[[], float]) -> RunStore:
        """Make a second store, not open yet, on the database of the first; or return the first."""
        raise NotImplementedError

    def commit_fails(self, store: RunStore, times: int) -> AbstractContextManager[object]:
        """Let COMMIT fail, so that nothing is stored, the next so many times."""
        raise NotImplementedError

    def answer_is_lost(self, store: RunStore, times: int) -> AbstractContextManager[object]:
        """Let COMMIT raise although it succeeded, the next so many times."""
        raise NotImplementedError

    def is_locked(self, store: RunStore, seconds: float) -> AbstractContextManager[object]:
        """Hold the database's write lock in another connection, from now on, for so long."""
        raise NotImplementedError

    @contextmanager
    def new_stage(self) -> Generator[Stage]:
        """Open a stage."""
        clock = FakeClock()
        store = self.make_store(clock)
        store.open()
        peer = self.make_peer(store, clock)
        peer.open()
        yield Stage(store, peer, clock)
        peer.close()
        store.close()

    @pytest.fixture
    def stage(self) -> Iterator[Stage]:
        """A stage for one test."""
        with self.new_stage() as stage:
            yield stage


def suspend(segment: Segment, calls: int = 1, ttl: float | None = None) -> PendingTurn:
    """Let a segment end in a turn that waits."""
    asked = ModelAnswer(calls=tuple(ModelCall("update_page") for _ in range(calls)))
    message = AssistantMessage(asked, tuple(uuid7() for _ in range(calls)))
    turn = PendingTurn(
        run_id=segment.run_id,
        suspension=segment.store.get(segment.run_id).suspension + 1,
        agent="editor",
        second_approver=False,
        calls=tuple(pending(call_id) for call_id in message.call_ids),
    )
    step = NewStep(StepKind.SUSPENDED, payload={"calls": calls})
    segment.advance(Suspend(turn=turn, ttl=ttl, messages=(message,), steps=(step,)))
    return turn


def pending(call_id: UUID, title: str = "Old") -> PendingCall:
    """A call that waits."""
    return PendingCall(
        id=call_id,
        tool="update_page",
        effect=ToolEffect.NON_IDEMPOTENT_WRITE,
        arguments={"page_id": 42, "title": title},
        needs_decision=True,
        parameters={"type": "object"},
    )


def ruling(turn: PendingTurn, verdicts: Mapping[UUID, Approve | Deny] | None = None) -> Ruling:
    """A decision on a turn; without verdicts it approves every call."""
    return Ruling(
        decision_id=uuid7(),
        run_id=turn.run_id,
        digest=turn.digest,
        actor=APPROVER,
        verdicts=dict.fromkeys(turn.waiting, Approve()) if verdicts is None else verdicts,
        waiting=turn.waiting,
    )


def settlement(
    run_id: UUID, fence: Fence, verdict: ReconcileVerdict, *denied: UUID, target: WriteTarget = PAGE
) -> Settlement:
    """A person's word on an uncertain call."""
    landed = target if verdict is ReconcileVerdict.LANDED else None
    known = FenceVerdict(verdict, landed, APPROVER.id, frozenset(denied))
    return Settlement(decision_id=uuid7(), run_id=run_id, digest=fence.digest(run_id), actor=APPROVER, verdict=known)


def written(fence: Fence, target: WriteTarget = PAGE) -> Progress:
    """The stored result of a fenced call that wrote."""
    steps = (
        NewStep(StepKind.TOOL, fence.call_id, {"tool": fence.tool}),
        NewStep(StepKind.WRITE, fence.call_id, target=target),
    )
    return Progress(steps=steps, clears=fence.call_id)


def race(*contestants: Callable[[], object]) -> Sequence[object]:
    """Start all of them behind one barrier, each in a thread; what each returned or raised, in their order."""
    outcomes: list[object] = [AssertionError("did not end")] * len(contestants)
    barrier = threading.Barrier(len(contestants))

    def run(number: int, contestant: Callable[[], object]) -> None:
        barrier.wait()
        try:
            outcomes[number] = contestant()
        except Exception as error:  # noqa: BLE001 - the outcome is judged by the test
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=entry) for entry in enumerate(contestants)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
