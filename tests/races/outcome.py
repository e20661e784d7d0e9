"""What a race has left behind: in the store, in the ledger, in the feed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from byline import StepKind, WriteFact
from byline.runtime.sync import SyncRuntime
from tests.races.stage import Clock, Round, Site


@dataclass(frozen=True, slots=True)
class Left:
    """What one round left.

    Attributes:
        status, reason: of the run.
        ran: how often the tool wrote.
        heard: how often that was announced.
        facts: how many writes the feed knows.
        outcomes: how its calls ended, by the trace.
    """

    status: str
    reason: str | None
    ran: int
    heard: int
    facts: int
    outcomes: tuple[str, ...]


def left(site: Site, clock: Clock, rounds: Sequence[Round]) -> list[Left]:
    """Look at every round of a race that is over, with a runtime that was not in it."""
    ran, heard = site.lines("ran"), site.lines("heard")
    with site.runtime(clock).sync as runtime:
        facts = Counter(fact.correlation_id for fact in feed(runtime))
        return [_left(runtime, this.run_id, ran, heard, facts) for this in rounds]


def _left(runtime: SyncRuntime, run_id: UUID, ran: Counter[str], heard: Counter[str], facts: Counter[UUID]) -> Left:
    run = runtime.get_run(run_id)
    tools = [step for step in runtime.list_steps(run_id) if step.kind is StepKind.TOOL]
    return Left(
        status=run.status.value,
        reason=None if run.reason is None else run.reason.value,
        ran=ran[str(run_id)],
        heard=heard[str(run_id)],
        facts=facts[run_id],
        outcomes=tuple(str(step.payload["outcome"]) for step in tools),
    )


def feed(runtime: SyncRuntime) -> Iterator[WriteFact]:
    """Read the whole feed, a page at a time."""
    cursor: str | None = None
    while page := runtime.writes(after=cursor, limit=100):
        yield from page
        cursor = page[-1].cursor
