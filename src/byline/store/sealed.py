"""Where sealed values are: every column that holds them, how they are counted by key, and how they are sealed anew."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    LargeBinary,
    Table,
    Update,
    and_,
    bindparam,
    case,
    func,
    literal,
    or_,
    select,
    update,
)

from byline.store.rows import AnyRow, Values, reason_owner
from byline.store.sealing import header_of, key_id_of
from byline.store.tables import decision, message, run, step

LONGEST_HEADER: Final = 2 + 64


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """One column of sealed values.

    Attributes:
        table: its table's name within a seal.
        column: the column.
        run_id: the column of the run that a value belongs to.
        owner: what a value is sealed for within its run.
    """

    table: str
    column: Column[Any]
    run_id: Column[Any]
    owner: Callable[[AnyRow], object]

    @property
    def rows(self) -> Table:
        """The table."""
        return self.column.table

    @property
    def key(self) -> Sequence[Column[Any]]:
        """The columns of its primary key."""
        return list(self.rows.primary_key.columns)

    def has_key(self, key_id: str) -> ColumnElement[bool]:
        """Whether a value is sealed with this key."""
        header = header_of(key_id)
        return func.substr(self.column, 1, len(header), type_=LargeBinary()) == literal(header, LargeBinary())

    def count(self, connection: Connection, key_ids: Sequence[str]) -> tuple[int, list[int]]:
        """Count the values: all, and those of each key. One look at the table."""
        each = [func.coalesce(func.sum(case((self.has_key(key_id), 1), else_=0)), 0) for key_id in key_ids]
        total, *found = connection.execute(select(func.count(self.column), *each)).one()
        return int(total), [int(number) for number in found]

    def any_but(self, connection: Connection, key_ids: Sequence[str]) -> str | None:
        """The id of the key of some value that is sealed with none of these."""
        others = [~self.has_key(key_id) for key_id in key_ids]
        head = func.substr(self.column, 1, LONGEST_HEADER, type_=LargeBinary())
        found = connection.execute(select(head).where(self.column.is_not(None), *others).limit(1)).scalar()
        return None if found is None else key_id_of(bytes(found))

    def page(self, connection: Connection, but: str, after: Sequence[object], limit: int) -> Sequence[AnyRow]:
        """Values that are sealed with another key than `but`, in the order of their rows, those behind `after`."""
        query = select(*self.key, self.run_id.label("the_run"), self.column.label("sealed"))
        query = query.where(self.column.is_not(None), ~self.has_key(but)).order_by(*self.key).limit(limit)
        if after:
            query = query.where(_behind(self.key, after))
        return connection.execute(query).all()

    def place(self, row: AnyRow) -> tuple[str, str, UUID, object]:
        """What a value of a page is sealed for."""
        return self.table, self.column.name, row.the_run, self.owner(row)

    def replacing(self) -> Update:
        """UPDATE of one value, if it is still the one that was read."""
        same = [part == bindparam(f"key_{part.name}", type_=part.type) for part in self.key]
        read = self.column == bindparam("read", type_=self.column.type)
        return update(self.rows).where(*same, read).values({self.column.name: bindparam("anew")})

    def replacement(self, row: AnyRow, anew: bytes) -> Values:
        """The values of that UPDATE."""
        return {"read": row.sealed, "anew": anew} | {f"key_{part.name}": getattr(row, part.name) for part in self.key}


SEALED: Final = (
    SealedColumn("message", message.c.body, message.c.run_id, lambda row: row.seq),
    SealedColumn("run", run.c.turn, run.c.id, lambda _: ""),
    SealedColumn("run", run.c.output, run.c.id, lambda _: ""),
    SealedColumn("step", step.c.detail, step.c.run_id, lambda row: row.id),
    SealedColumn("decision", decision.c.reason, decision.c.run_id, lambda row: reason_owner(row.id, row.call_id)),
)
"""Every column that holds sealed values. A test compares it with the tables."""


def count_by_key(connection: Connection, key_ids: Sequence[str]) -> dict[str, int]:
    """Count the sealed values by key: these ones, and whichever others there are."""
    counted = dict.fromkeys(key_ids, 0)
    for column in SEALED:
        while True:
            ids = list(counted)
            total, found = column.count(connection, ids)
            other = column.any_but(connection, ids) if total > sum(found) else None
            if other is None:
                break
            counted[other] = 0
        for key_id, number in zip(ids, found, strict=True):
            counted[key_id] += number
    return counted


def count_of(connection: Connection, key_id: str) -> tuple[int, int]:
    """Count the sealed values: all, and those of this key."""
    counted = [column.count(connection, [key_id]) for column in SEALED]
    return sum(total for total, _ in counted), sum(found for _, [found] in counted)


def pages(
    read: Callable[[Callable[[Connection], Sequence[AnyRow]]], Sequence[AnyRow]], but: str, size: int
) -> Iterator[tuple[SealedColumn, Sequence[AnyRow]]]:
    """Every value that is sealed with another key than `but`, in pages, each read in a transaction of its own."""
    for column in SEALED:
        after: Sequence[object] = ()
        while True:
            found = read(partial(column.page, but=but, after=after, limit=size))
            if found:
                yield column, found
            if len(found) < size:
                break
            after = [getattr(found[-1], part.name) for part in column.key]


def _behind(key: Sequence[Column[Any]], after: Sequence[object]) -> ColumnElement[bool]:
    first, *rest = key
    value = literal(after[0], first.type)
    if not rest:
        return first > value
    return or_(first > value, and_(first == value, _behind(rest, after[1:])))
