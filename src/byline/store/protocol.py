"""What a store must do. Small and sync: each method is one transaction, and safe to call from any thread.

Every store passes the conformance suite in `byline.testing`. Times are the database's: a worker's
clock is never asked. Where the answer to a COMMIT was lost, a method looks what stands there and
goes on from that (P16); it raises `StoreUnavailable` only when it cannot find out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

from byline.actors import AiActorContext
from byline.approval.decision import Approve, CallVerdict, Deny
from byline.approval.fence import Fence, FenceVerdict
from byline.approval.turn import PendingTurn
from byline.models.messages import Message
from byline.privacy import PrivacyLevel
from byline.records import RecordReference
from byline.runs.run import Reason
from byline.runs.status import RunStatus, TerminationReason, UncertaintyReason
from byline.runs.steps import NewStep, Step, WriteFact
from byline.tools.result import WriteTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run to be created, with the transcript it begins with."""

    run_id: UUID
    agent: str
    actor: AiActorContext
    messages: tuple[Message, ...]
    dedupe_key: str | None = None
    privacy: PrivacyLevel = PrivacyLevel.METADATA


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of one segment to execute a run. `number` grows with every claim of the run.

    `privacy` is the run's level: the strictest under which it was created or claimed so far. The store keeps of the
    segment's steps what that level allows (`byline.runs.keeping`).
    """

    run_id: UUID
    number: int
    privacy: PrivacyLevel = field(default=PrivacyLevel.METADATA, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """One run row, read and unsealed. `problem` says what could not be unsealed, and then that is None."""

    run_id: UUID
    agent: str
    actor: AiActorContext
    status: RunStatus
    reason: Reason | None
    claim: int
    suspension: int
    takeovers: int
    model_failures: int
    """How often its model has failed since its last progress."""
    cancel_requested: bool
    created_at: datetime
    updated_at: datetime
    fence: Fence | None
    fence_verdict: FenceVerdict | None
    turn: PendingTurn | None
    decided: Mapping[UUID, CallVerdict] = field(default_factory=lambda: MappingProxyType({}))
    """Verdicts on the calls of the latest suspension."""
    turn_digest: str | None = None
    """The digest of the latest suspension's turn. It stays when the turn is deleted."""
    reconciled: frozenset[str] = frozenset()
    """The digests of the uncertain calls of the latest suspension that somebody, or a fact, has settled."""
    output: str | None = None
    problem: str | None = None
    purged_at: datetime | None = None
    """When its content and trace were deleted."""
    read_at: datetime | None = field(default=None, compare=False)
    """When it was read, by the database's clock."""
    deferred_because: str | None = None
    """Why whoever tried to execute it last could not; None once it is claimed."""
    due_at: datetime | None = None
    """From when on a QUEUED run is listed as claimable; when a RUNNING one's lease ends, or an approval expires."""
    privacy: PrivacyLevel = PrivacyLevel.METADATA
    """The strictest level under which the run was created or claimed."""


class Claimable(NamedTuple):
    """A run that can be claimed, and since when: since it was queued, or its lease expired."""

    since: datetime
    run_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A claimed run, with all that is needed to go on.

    Attributes:
        claim: the claim.
        run: the row after the claim.
        messages: the transcript; its length is the next message's sequence number.
        taken_over: the run was RUNNING under a lease that had expired.
        release_age: seconds since somebody last released a call of the turn, by the database's clock; None if nobody
            did. A denial or a fact releases nothing, and a word to run an uncertain write again only that one.
        verdict_age: seconds since the standing verdict on the fenced call; None without one.
    """

    claim: Claim
    run: StoredRun
    messages: tuple[Message, ...]
    taken_over: bool
    release_age: float | None
    verdict_age: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Finished steps. `clears` names the fenced call whose result is among them. Resets both counts of the budget."""

    messages: tuple[Message, ...] = ()
    steps: tuple[NewStep, ...] = ()
    clears: UUID | None = None


@dataclass(frozen=True, slots=True)
class SetFence:
    """Set the fence, or set it again for a further attempt of the same call. Refused once a cancel was requested."""

    fence: Fence


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    """RUNNING to AWAITING_APPROVAL. Refused once a cancel was requested. Resets both counts of the budget.

    `ttl` is the approval's, in seconds.
    """

    turn: PendingTurn
    ttl: float | None = None
    messages: tuple[Message, ...] = ()
    steps: tuple[NewStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandBack:
    """RUNNING to QUEUED. Impossible while the fence stands without a verdict. Refused once a cancel was requested.

    A fence whose verdict stands keeps it, also after a cancel: the next segment tells what is known, and nobody is
    asked again.
    """

    steps: tuple[NewStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """RUNNING to QUEUED, because this process cannot go on: as `HandBack`, and due again only after a delay.

    A take-over that led here is not spent. Nobody is told by a step: it may come again and again.

    Attributes:
        because: why, in the open: it names no content.
        delay: seconds, on the database's clock, until it is due again. Whoever is asked for this run claims it before.
        taken_over: whether this segment had taken the run over.
    """

    because: str
    delay: float
    taken_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Postpone:
    """RUNNING to QUEUED (`MODEL_FAILED`), because the model failed and may answer later. Counts a failure.

    Impossible while the fence stands, whatever is known of its call. Refused once a cancel was requested. A take-over
    that led here is not spent.

    Attributes:
        because: why, in the open: it names no content.
        delay: seconds, on the database's clock, before which nobody claims it, not even who is asked for this run: a
            provider that asked for patience gets it, however many wake-ups come.
        taken_over: whether this segment had taken the run over.
        steps: the failure, as the trace keeps it.
    """

    because: str
    delay: float
    taken_over: bool = False
    steps: tuple[NewStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BecomeUncertain:
    """RUNNING to UNCERTAIN. Only while the fence stands, and the fence stays. A late report settles it at once."""

    reason: UncertaintyReason
    steps: tuple[NewStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """RUNNING to COMPLETED, FAILED, CANCELLED or DEAD_LETTER. Impossible while the fence stands.

    COMPLETED and DEAD_LETTER are refused once a cancel was requested: who was told that a run is to be
    cancelled finds it cancelled. A terminal status deletes what is sealed: transcript, turn, reasons, and the
    trace's details, unless the run's privacy level keeps these. Dead letter keeps it all.
    """

    status: RunStatus
    reason: TerminationReason
    output: str | None = None
    steps: tuple[NewStep, ...] = ()


Change: TypeAlias = Progress | SetFence | Suspend | HandBack | Release | Postpone | BecomeUncertain | Settle


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat found: whether the claim is still held, and whether its run is to be cancelled."""

    held: bool
    cancel_requested: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A decision to be stored. `decision_id` makes it recognisable after an ambiguous COMMIT.

    Attributes:
        waiting: the ids of all calls of the turn that need a decision: it is released once each has one.
        ttl: the loaded agent's, in seconds since the turn began to wait; the stricter of it and the stored one holds.
    """

    decision_id: UUID
    run_id: UUID
    digest: str
    actor: AiActorContext
    verdicts: Mapping[UUID, Approve | Deny]
    waiting: frozenset[UUID]
    ttl: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Amendment:
    """A turn with changed arguments that takes the place of a waiting one, to be decided anew.

    Attributes:
        digest: the digest of the turn that was read.
        changed: the ids of the calls whose arguments the actor changed.
        turn: the new turn; its suspension is one more than the stored one.
        verdicts: what the same decision says of other calls. Its denials stay with the new turn, as all that were
            given before do; its releases do not: they were of the turn that was read.
        ttl: the approval's time to live in seconds, or None; the turn that waits has not waited longer.
    """

    decision_id: UUID
    run_id: UUID
    digest: str
    actor: AiActorContext
    changed: frozenset[UUID]
    turn: PendingTurn
    verdicts: Mapping[UUID, Approve | Deny] = field(default_factory=lambda: MappingProxyType({}))
    ttl: float | None = None
    steps: tuple[NewStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """A verdict on an uncertain call. `actor` is None when a fact says so (the tool's verify)."""

    decision_id: UUID
    run_id: UUID
    digest: str
    actor: AiActorContext | None
    verdict: FenceVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class LateReport:
    """What a segment that had lost its claim, or its patience, saw a call do.

    Attributes:
        settled: whether this report settled the run; set by the store.
        conflict: whether the run had been decided otherwise before; set by the store.
    """

    report_id: UUID
    claim: Claim
    fence: Fence
    target: WriteTarget
    settled: bool = False
    conflict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """What was deleted. Two of them add up.

    Attributes:
        outputs: answers that were older than the runtime's `output_ttl`.
        runs: runs whose content and trace were deleted; their provenance stays.
        dead_letters: how many of those stood in dead letter. They are FAILED now (`RETENTION`).
        forgotten: runs of which nothing is left.
    """

    outputs: int = 0
    runs: int = 0
    dead_letters: int = 0
    forgotten: int = 0

    def __add__(self, other: "Purged") -> "Purged":
        """Add what was deleted before, or after."""
        return Purged(
            outputs=self.outputs + other.outputs,
            runs=self.runs + other.runs,
            dead_letters=self.dead_letters + other.dead_letters,
            forgotten=self.forgotten + other.forgotten,
        )


@dataclass(frozen=True, slots=True)
class Trace:
    """A page of a run's trace.

    Attributes:
        steps: those behind the position that was asked for, in order.
        ended: whether the run had ended when they were read: then none comes any more, but those of late reports.
    """

    steps: Sequence[Step]
    ended: bool


def was_released(turn_digest: str | None, reason: str | None, digest: object) -> bool:
    """Whether a run that waits no more left its latest turn by a decision, and that is the turn of this digest.

    Args:
        turn_digest: the run's.
        reason: the run's.
        digest: what a decision carries.
    """
    return digest == turn_digest and reason not in (TerminationReason.CANCELLED, TerminationReason.APPROVAL_EXPIRED)


class RunStore(Protocol):
    """Where runs live. Every method is one transaction.

    Raises, from any method:
        StoreUnavailable: the store did not answer; nothing is known to have been stored.
        KeyMissing: a sealed value needs a key that is not here. The run stays.
        UnknownRun: there is no such run.
    """

    @property
    def concurrency(self) -> int:
        """How many threads may usefully call at once."""
        ...

    def open(self) -> None:
        """Connect, and bring an embedded file up to date.

        Raises:
            StoreError, SchemaMismatch, KeyMissing: it cannot be used, and what to do.
        """
        ...

    def close(self) -> None:
        """Disconnect. A second call does nothing."""
        ...

    def create(self, new: NewRun, *, lease: float | None) -> Claim | StoredRun | None:
        """Create a run: claimed by the caller for `lease` seconds, or QUEUED with None.

        Returns:
            The claim; None for a queued run; or the run that has the same dedupe key, and nothing was created.

        Raises:
            DedupeConflict: that run is another agent's or acts for another actor.
        """
        ...

    def claim(
        self, run_id: UUID, *, lease: float, takeovers: int, privacy: PrivacyLevel = PrivacyLevel.METADATA
    ) -> Claimed | None:
        """Claim a QUEUED run, or a RUNNING one whose lease has expired, by compare-and-swap; a deferred one at once.

        A QUEUED one whose model failed (`Postpone`) is claimed by nobody before it is due.

        The run's privacy level becomes the stricter of its own and `privacy`; where that makes it stricter, the
        details that its trace has so far are deleted.

        A RUNNING one that has been taken over `takeovers` times without progress is claimed no more:
        it goes to DEAD_LETTER (`RETRIES_EXHAUSTED`), to CANCELLED if that was requested, or to UNCERTAIN while its
        fence stands. If what a person said of the fenced call stands, it goes back to QUEUED: a word is not lost.

        Returns:
            None if there is nothing to claim: another segment has it, or it waits or has ended.
        """
        ...

    def beat(self, claims: Collection[Claim], *, lease: float) -> Mapping[Claim, Beat]:
        """Extend the leases of claims that are still held."""
        ...

    def advance(self, claim: Claim, change: Change, *, at: int, revision: int) -> bool:
        """Store what a segment did.

        Args:
            claim: the segment's claim.
            change: what happened.
            at: the sequence number of the first of the change's messages.
            revision: how many changes this claim has stored before: 0 for its first. After an
                ambiguous COMMIT it tells whether this one stands.

        Returns:
            Whether a cancel has been requested.

        Raises:
            ClaimLost: the run is not RUNNING under this claim. Nothing was stored.
            CancelRequested: after a cancel came a fence, or an end that is not the cancel's: `Suspend`, `HandBack`,
                `Release`, `Postpone`, or `Settle` as COMPLETED or DEAD_LETTER. Nothing was stored.
        """
        ...

    def defer(self, run_id: UUID, because: str, *, delay: float) -> None:
        """Say why this process could not claim a run, and let it be due again only after a delay.

        A QUEUED run, or a RUNNING one whose lease has expired, stays as it is otherwise: its fence too. `claimable`
        does not list it before; `claim` takes it at once, since nobody holds it. Any other run stays as it is.

        Args:
            run_id: the run.
            because: why, in the open: it names no content.
            delay: seconds, on the database's clock.
        """
        ...

    def report_late(self, report: LateReport) -> LateReport:
        """Append what a call did after its claim was lost: the one insert that needs no live claim.

        It settles a run that is still UNCERTAIN on that call as landed; on one decided otherwise it is a conflict.
        A write that it does not settle, and that no verdict names, becomes a WRITE step here: it was announced.
        One that comes before the run has become uncertain settles it as soon as it does, unless it is in conflict. A
        second report of the same call and claim changes nothing.
        """
        ...

    def decide(self, ruling: Ruling) -> RunStatus:
        """Append verdicts, and queue the run once every waiting call has one.

        Returns:
            QUEUED, or AWAITING_APPROVAL while a call is undecided.

        Raises:
            RunFinished: it has ended, or is uncertain or in dead letter. Where it got there from the release of this
                very turn, that is an AlreadyDecided as well: who decides second is told so, however fast the run was.
            ApprovalExpired: by the database's clock.
            AlreadyDecided: a named call has a verdict, or the turn has been released.
            StaleDecision: the digest is not the waiting turn's.
        """
        ...

    def amend(self, amendment: Amendment) -> None:
        """Put a turn with changed arguments in the place of the waiting one.

        Raises:
            RunFinished, ApprovalExpired, AlreadyDecided, StaleDecision: as `decide` does, for the changed calls and for
                those that the decision says something else of.
        """
        ...

    def reconcile(self, settlement: Settlement) -> None:
        """Store a verdict on the uncertain call; the run becomes QUEUED and keeps its fence until the result is stored.

        Resets both counts of the budget.

        Raises:
            RunFinished: the run is not uncertain and never was on this call.
            AlreadyDecided: somebody, or a fact, was first.
            StaleDecision: the digest is of another call or attempt.
        """
        ...

    def cancel(self, run_id: UUID, actor_id: str) -> RunStatus:
        """Cancel a run that no segment holds; ask it of one that runs, or that is uncertain.

        Under an expired lease, no segment holds it: whoever might still execute it stores nothing more.

        Returns:
            CANCELLED, or the status in which the request now stands.

        Raises:
            RunFinished: it has ended before.
        """
        ...

    def retry(self, run_id: UUID) -> None:
        """Queue a run that is in dead letter, with its budget restored.

        Raises:
            NotRetryable: it is not in dead letter.
        """
        ...

    def expire(self, limit: int, *, ttls: Mapping[str, float] | None = None) -> Sequence[UUID]:
        """Settle waiting runs whose approval has expired as FAILED (`APPROVAL_EXPIRED`).

        Args:
            limit: how many at most.
            ttls: of the loaded agents, by their names, in seconds since a turn began to wait: the stricter of them and
                the stored expiry holds.
        """
        ...

    def purge(self, limit: int, *, older_than: float) -> Purged:
        """Delete the content and the trace of runs that ended more than so many seconds ago, the oldest first.

        What stays: the run's row, its WRITE steps, who decided what, and late reports. A run in dead letter becomes
        FAILED (`RETENTION`). No other run is touched.

        Args:
            limit: how many runs at most; fewer means that there are no more.
            older_than: seconds, on the database's clock.
        """
        ...

    def purge_provenance(self, limit: int, *, older_than: float) -> Purged:
        """Delete all that is left of runs that were purged, and ended more than so many seconds ago.

        A cursor of the feed that was read before goes on behind what is gone.
        """
        ...

    def purge_outputs(self, limit: int, *, older_than: float) -> Purged:
        """Delete the answers of runs that were completed more than so many seconds ago."""
        ...

    def claimable(self, limit: int, *, agents: Collection[str], after: Claimable | None = None) -> Sequence[Claimable]:
        """List runs of these agents that are QUEUED or RUNNING under an expired lease, the longest waiting first.

        One that was deferred is listed once its delay is over.

        Args:
            limit: how many at most; fewer means that there are no more.
            agents: their agents' names.
            after: the last one of the page before: a page costs the same however many came before it.
        """
        ...

    def get(self, run_id: UUID) -> StoredRun:
        """Read one run."""
        ...

    def list_runs(
        self, *, status: RunStatus | None, agent: str | None, after: UUID | None, limit: int
    ) -> Sequence[StoredRun]:
        """List runs, newest first, those after (older than) the run `after`: a constant number of queries."""
        ...

    def list_steps(self, run_id: UUID, *, after: int, limit: int) -> Sequence[Step]:
        """List steps of a run with a position above `after`."""
        ...

    def trace(self, run_id: UUID, *, after: int, limit: int) -> Trace:
        """List steps as `list_steps` does, and say whether the run has ended.

        A watcher counts on two things. Where it has ended, the steps that were stored with its end are seen as well.
        And a step that is seen is never followed by one of a lower position: whoever stores steps of a run does so one
        after the other, each behind the COMMIT of the one before.
        """
        ...

    def writes(
        self,
        *,
        after: str | None,
        table: str | None,
        record: RecordReference | None,
        since: datetime | None,
        limit: int,
    ) -> Sequence[WriteFact]:
        """List announced writes behind the cursor, in an order in which a reader never misses a late commit.

        Raises:
            InvalidIdentifier: the cursor is none of this feed's.
        """
        ...

    def census(self, limit: int) -> Sequence[tuple[RunStatus, int, float]]:
        """Count the runs that have not ended, in one query, whatever number of runs has ended.

        Args:
            limit: how many of each status are counted at most, those created first.

        Returns:
            For each status that is not terminal: how many runs stand in it, and how many seconds ago, by the database's
            clock, the one of them that has not moved for longest did; 0 if there is none.
        """
        ...

    def late_reports(self, *, conflicts_only: bool, limit: int) -> Sequence[LateReport]:
        """List late reports, newest first."""
        ...
