"""The steps of a run's trace, and the facts of its writes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from uuid import UUID

from pydantic import JsonValue

from byline.records import RecordReference, WriteKind
from byline.tools.result import WriteTarget


class StepKind(StrEnum):
    """What a step records."""

    MODEL = "model"
    SUSPENDED = "suspended"
    TOOL = "tool"
    WRITE = "write"
    UNCERTAIN = "uncertain"
    RECONCILED = "reconciled"
    HANDED_BACK = "handed_back"
    TAKEN_OVER = "taken_over"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class NewStep:
    """A step to be stored.

    Attributes:
        kind: what it records.
        call_id: the call it belongs to, if any.
        payload: metadata only: names, outcomes, counts, durations; never content. `byline.runs.keeping` lists the keys
            that are stored at each privacy level; another one is not.
        target: with `WRITE` only: the record and what happened to it.
        detail: content that whoever looks after a run needs (a refusal's reason, an error's text): sealed, and deleted
            when the run settles.
        content: all that was said, for the levels that keep it: it takes the place of the detail there.
    """

    kind: StepKind
    call_id: UUID | None = None
    payload: Mapping[str, JsonValue] = field(default_factory=lambda: MappingProxyType({}))
    target: WriteTarget | None = None
    detail: str | None = None
    content: str | None = None


def never_ran(calls: Iterable[tuple[UUID, str]], outcome: str, tools: Collection[str]) -> tuple[NewStep, ...]:
    """Record the calls that the end of a run left without a result: every call has one (langgraph, report 18).

    Args:
        calls: the calls, with the names of their tools.
        outcome: how they ended, as `CallOutcome` says it.
        tools: names of tools. What a model called that is none is the model's own text, and not kept (P23).
    """
    return tuple(
        NewStep(StepKind.TOOL, call_id, {"tool": tool if tool in tools else None, "outcome": outcome})
        for call_id, tool in calls
    )


@dataclass(frozen=True, slots=True)
class Step:
    """A stored step of a run's trace. `position` grows; it is the cursor of `list_steps(after=…)`."""

    position: int
    run_id: UUID
    kind: StepKind
    at: datetime
    call_id: UUID | None
    payload: Mapping[str, JsonValue]
    target: WriteTarget | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class WriteFact:
    """One announced write, as the feed and `writes_of` give it.

    Attributes:
        cursor: hand it to `writes(after=…)` to read on from here.
        correlation_id: the run that wrote.
        record: the record.
        kind: created or updated.
        at: when it was recorded, by the store's clock.
    """

    cursor: str
    correlation_id: UUID
    record: RecordReference
    kind: WriteKind
    at: datetime
