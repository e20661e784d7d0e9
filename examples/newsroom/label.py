"""A transparency label: a page tells its visitors, and their machines, where AI had a part in what they read.

A recipe to begin with, for duties such as those of Article 50 of the EU AI Act (Regulation (EU) 2024/1689); no legal
advice. Byline ships no listener: what an announcement is good for is the host's to say. `docs/recipes` explains it.

- A label belongs to a *record* and a run, as the announcement does. Which pages show that record is asked when a page
  is shown, and not stored: a label goes along when an element is moved, and shows when a draft is published.
- A label is kept when a person edits the record later, since the edit may be a comma. It is taken back by a person
  who says so (`withdraw`), and shows again once an AI writes the record again.
- For machines, a page says where it comes from in schema.org's words: `digitalSourceType`, whose values are the IPTC's
  digital source types (https://schema.org/digitalSourceType, https://cv.iptc.org/newscodes/digitalsourcetype/).
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Final

from sqlalchemy import select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from byline import AfterAiRecordWrittenEvent, AgentRuntime, RecordReference, WriteFact, WriteKind
from examples.newsroom.models import UtcTime
from examples.newsroom.site import Site

DIGITAL_SOURCE: Final = {
    WriteKind.CREATED: "https://schema.org/TrainedAlgorithmicMediaDigitalSource",
    WriteKind.UPDATED: "https://schema.org/CompositeWithTrainedAlgorithmicMediaDigitalSource",
}
"""Made by a trained model; or made by people and a trained model together."""

LABELLED: Final = frozenset({"pages", "content_elements", "files", "file_references"})
"""The tables whose records visitors see."""


class LabelBase(DeclarativeBase):
    """The label's own tables, in the site's database."""

    type_annotation_map: ClassVar = {datetime: UtcTime}


class LabelRow(LabelBase):
    """A run wrote a record: one row, however often that is announced."""

    __tablename__ = "ai_labels"

    run: Mapped[str] = mapped_column(primary_key=True)
    record: Mapped[str] = mapped_column(primary_key=True, index=True)
    kind: Mapped[str] = mapped_column()
    written_at: Mapped[datetime] = mapped_column()
    withdrawn_at: Mapped[datetime | None] = mapped_column()
    withdrawn_by: Mapped[str | None] = mapped_column()


class ReadSoFar(LabelBase):
    """How far the feed of writes was read: one row."""

    __tablename__ = "ai_labels_read"

    id: Mapped[int] = mapped_column(primary_key=True)
    cursor: Mapped[str] = mapped_column()


@dataclass(frozen=True, slots=True)
class Label:
    """An AI created or updated this record, and nobody has taken that back."""

    record: RecordReference
    kind: WriteKind

    @property
    def digital_source(self) -> str:
        """The term of schema.org for it."""
        return DIGITAL_SOURCE[self.kind]


class TransparencyLabel:
    """The listener. It labels each record that an AI wrote and that visitors may see.

    It may be told twice, by threads of several processes, and then labels once: the key of a row is (run, record). It
    is told after the commit, and has a connection of its own. What it missed, it reads from the feed: `catch_up`.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        create_label_tables(site)

    def __call__(self, event: AfterAiRecordWrittenEvent) -> None:
        """Label the record that the event names."""
        with self._site.writing() as session:
            _label(session, str(event.correlation_id), event.record, event.kind, datetime.now(UTC))

    async def catch_up(self, runtime: AgentRuntime, *, at_once: int = 500) -> int:
        """Label what was written since the last time, and remember how far that was.

        To be called when the site starts, and after an outage. What was labelled already stays as it is, so it does no
        harm to call it while announcements come in, nor to break it off.

        Args:
            runtime: the open runtime whose feed is read.
            at_once: how many facts are read, and labelled in one transaction.

        Returns:
            How many facts were read.
        """
        read = 0
        cursor = await asyncio.to_thread(self._read_so_far)
        while facts := await runtime.writes(after=cursor, limit=at_once):
            cursor = facts[-1].cursor
            await asyncio.to_thread(self._label_all, facts, cursor)
            read += len(facts)
        return read

    def withdraw(self, record: RecordReference, *, by: str) -> int:
        """Take back the labels of a record: a person has written it anew, and says so.

        Args:
            record: the record, such as `pages:42`.
            by: who says so. Whether they may is the caller's to check.

        Returns:
            How many labels were taken back.
        """
        with self._site.writing() as session:
            standing = [row for row in _rows(session, [str(record)]) if _stands(row)]
            for row in standing:
                row.withdrawn_at, row.withdrawn_by = datetime.now(UTC), by
            return len(standing)

    def _read_so_far(self) -> str | None:
        with self._site.reading() as session:
            return session.scalar(select(ReadSoFar.cursor))

    def _label_all(self, facts: Collection[WriteFact], cursor: str) -> None:
        with self._site.writing() as session:
            for fact in facts:
                _label(session, str(fact.correlation_id), fact.record, fact.kind, fact.at)
            session.merge(ReadSoFar(id=1, cursor=cursor))


def create_label_tables(site: Site) -> None:
    """Make the tables that are not there yet."""
    with site.writing() as session:
        LabelBase.metadata.create_all(session.connection())


def labels_of(session: Session, records: Collection[RecordReference]) -> list[Label]:
    """Find the labels of records, in the order of the records: one each, "created" before "updated"."""
    found: dict[str, WriteKind] = {}
    for row in _rows(session, [str(record) for record in records]):
        if _stands(row) and found.get(row.record) is not WriteKind.CREATED:
            found[row.record] = WriteKind(row.kind)
    return [Label(record, found[str(record)]) for record in records if str(record) in found]


def _rows(session: Session, records: Collection[str]) -> list[LabelRow]:
    return list(session.scalars(select(LabelRow).where(LabelRow.record.in_(records))))


def _stands(row: LabelRow) -> bool:
    return row.withdrawn_at is None or row.withdrawn_at < row.written_at


def _label(session: Session, run: str, record: RecordReference, kind: WriteKind, at: datetime) -> None:
    if record.table not in LABELLED:
        return
    row = session.get(LabelRow, (run, str(record)))
    if row is None:
        session.add(LabelRow(run=run, record=str(record), kind=kind.value, written_at=at))
        session.flush()  # so that a second fact of the same page of the feed finds it
        return
    row.written_at = max(row.written_at, at)
    if kind is WriteKind.CREATED:  # what a run has made stays made by it, also if it changes it afterwards
        row.kind = kind.value
