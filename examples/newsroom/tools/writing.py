"""The one way in which every tool here writes.

A tool plans: it finds the record as the acting user, checks their right on it, and says what it would change or add
(`Update`, `Creation`). The preview shows the plan, and the execution makes it anew and carries it out. So both check
the same, and whatever has happened in between counts. One transaction holds the change of one record and its entry
in the history. The record is read back inside it; if it does not hold what was planned, nothing is committed.

**What changed since it was read.** The reading tools say each record's version. Who changes a record, or makes
something from it, names the version that they read as `expected_version`. The row's own version must be the same when
the call is executed, so what a colleague wrote after the model read, or after the approver read the preview, is
never overwritten unseen: the call is refused, and the model reads again. The version is an argument, so that the
approver's digest binds it. A preview could not hand it on: nothing of it reaches the execution.

**What has landed already.** The history keeps the key of each call, unique, in the transaction of its write. So "did
this call land?" has a certain answer: `verify` gives it, and a call that comes again (after a crash, or because
a person took it for lost) finds its own entry and writes nothing.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from byline import Landed, NotLanded, RecordReference, ToolContext, ToolError, ToolResult, WriteKind
from examples.newsroom.models import ContentElement, File, FileReference, HistoryEntry, Page
from examples.newsroom.rights import Record
from examples.newsroom.tools.desk import Desk, reading, site_of, writing

CHANGED = "This has changed since it was read, so nothing was written. Read it again."
SAME = "It is so already."

TIMEOUT = 15.0
"""Seconds for one attempt: longer than a session waits for its turn to write."""

Value = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Update:
    """Columns of one record are to be set.

    `shown` says it to the approver, as unified diffs.
    """

    record: Page | ContentElement | File
    values: Mapping[str, Value]
    expected_version: int
    shown: Sequence[str]


@dataclass(frozen=True, slots=True)
class Creation:
    """One record is to be added. `sources`: what it is made from, with the versions that were read."""

    record: Page | ContentElement | FileReference
    sources: Sequence[tuple[Page | ContentElement, int]]
    shown: Sequence[str]


Plan = Update | Creation


def show(context: ToolContext, plan: Callable[[Desk], Plan]) -> list[str]:
    """Say what would happen.

    Raises:
        ToolError: the tool would refuse.
    """
    with reading(context) as desk:
        planned = plan(desk)
        if isinstance(planned, Update) and not _changes(planned):
            return [f"{reference(planned.record)}: no change. {SAME}"]
        _check_versions(planned)
        return list(planned.shown)


def write(context: ToolContext, plan: Callable[[Desk], Plan]) -> ToolResult:
    """Write it, once, and say what stands now.

    Raises:
        ToolError: nothing was written.
    """
    with writing(context) as session:
        earlier = _earlier(session, context)
        if earlier is not None:
            return ToolResult.unchanged("This call has landed already.", earlier.record, earlier.kind)
        planned = plan(Desk(session, context.actor.id))
        if isinstance(planned, Update) and not _changes(planned):
            return ToolResult.unchanged(SAME, reference(planned.record), WriteKind.UPDATED)
        _check_versions(planned)
        before, after = _carried_out(session, planned)
        record = reference(planned.record)
        session.add(
            HistoryEntry(
                record_table=record.table,
                record_uid=record.uid,
                at=datetime.now(UTC),
                editor=context.actor.id,
                before=before,
                after=after,
                run=None if context.run is None else str(context.run),
                call=context.idempotency_key,
            )
        )
        text = "\n".join([f"{record} stands now so:", *facts(planned.record)])
    kind = WriteKind.UPDATED if isinstance(planned, Update) else WriteKind.CREATED
    return ToolResult.text(text).with_write_target(record, kind)


def landed(context: ToolContext) -> Landed | NotLanded:
    """Look in the history whether this call has landed."""
    with site_of(context).reading() as session:
        return _earlier(session, context) or NotLanded()


def reference(record: Record) -> RecordReference:
    """Name a record as it is announced."""
    return RecordReference(record.__tablename__, record.id)


def facts(record: Record) -> list[str]:
    """Say what a record holds, a column in each line."""
    return [f"{name}: {value}" for name, value in _values(record).items()]


def diff(name: str, before: Sequence[str], after: Sequence[str]) -> str:
    """Show what is replaced, as a unified diff."""
    lines = difflib.unified_diff(list(before), list(after), f"{name}, now", f"{name}, then", n=2, lineterm="")
    return "\n".join(lines)


def _changes(planned: Update) -> bool:
    now = _values(planned.record)
    return any(now[name] != value for name, value in planned.values.items())


def _check_versions(planned: Plan) -> None:
    read = [(planned.record, planned.expected_version)] if isinstance(planned, Update) else planned.sources
    if any(record.version != expected for record, expected in read):
        raise ToolError(CHANGED)


def _carried_out(session: Session, planned: Plan) -> tuple[dict[str, Value] | None, dict[str, Value]]:
    """Write the record, read it back, and return its columns before and after."""
    record = planned.record
    if isinstance(planned, Update):
        wanted = dict(planned.values)
        before = {name: value for name, value in _values(record).items() if name in wanted}
        for name, value in wanted.items():
            setattr(record, name, value)
    else:
        before = None
        session.add(record)
        wanted = {name: value for name, value in _values(record).items() if name not in ("id", "version")}
    session.flush()
    session.refresh(record)
    after = {name: value for name, value in _values(record).items() if name in wanted}
    if after != wanted:
        raise ToolError("The site did not take it as it was given, and nothing was written.")
    return before, after


def _values(record: Record) -> dict[str, Value]:
    return {column.key: getattr(record, column.key) for column in record.__mapper__.column_attrs}


def _earlier(session: Session, context: ToolContext) -> Landed | None:
    """Find what this very call has written before."""
    by_key = select(HistoryEntry).where(HistoryEntry.call == context.idempotency_key)
    entry = session.scalars(by_key).one_or_none()
    if entry is None:
        return None
    kind = WriteKind.CREATED if entry.before is None else WriteKind.UPDATED
    return Landed(RecordReference(entry.record_table, entry.record_uid), kind)
