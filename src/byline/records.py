"""Which record was written, and what happened to it."""

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from byline.errors import InvalidIdentifier

MAX_PART_BYTES = 255
"""Longest table or uid, in bytes of UTF-8: what an indexed column of every supported database holds."""

_CANONICAL_DECIMAL = re.compile(r"-?[1-9][0-9]*|0")


class WriteKind(StrEnum):
    """What happened to the record. There is no third kind: nothing here deletes."""

    CREATED = "created"
    UPDATED = "updated"


@dataclass(frozen=True, slots=True)
class RecordReference:
    """One row or document of the host's system, printed `pages:42`.

    `table` holds no colon, so the first colon of the printed form separates. A `uid` that is a
    canonical decimal string is the int: `RecordReference("pages", "42") == RecordReference("pages", 42)`.

    Raises:
        InvalidIdentifier: a part is blank, holds a control character or is longer than 255 bytes of UTF-8; the
            table holds a colon; the uid is a bool or no int and no str.
    """

    table: str
    uid: int | str

    def __post_init__(self) -> None:
        if type(self.table) is not str:
            raise InvalidIdentifier(f"a record's table is a str, not {type(self.table).__name__}")
        if ":" in self.table:
            raise InvalidIdentifier("a record's table holds no colon: the first colon separates it from the uid")
        if type(self.uid) not in (int, str):
            raise InvalidIdentifier(f"a record's uid is an int or a str, not {type(self.uid).__name__}")
        text = _printed(self.uid)
        _check_part("table", self.table)
        _check_part("uid", text)
        if type(self.uid) is str and _CANONICAL_DECIMAL.fullmatch(self.uid):
            object.__setattr__(self, "uid", int(self.uid))

    def __str__(self) -> str:
        return f"{self.table}:{self.uid}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the printed form back; `parse(str(r)) == r` for every reference.

        Raises:
            InvalidIdentifier: there is no colon, or a part is no table or uid.
        """
        table, colon, uid = text.partition(":")
        if not colon:
            raise InvalidIdentifier("a record is written table:uid")
        return cls(table, uid)


def _printed(uid: int | str) -> str:
    try:
        return str(uid)
    except ValueError:  # Python refuses to print an int of thousands of digits
        raise InvalidIdentifier(f"a record's uid is at most {MAX_PART_BYTES} bytes long") from None


def _check_part(name: str, value: str) -> None:
    if not value or value != value.strip():
        raise InvalidIdentifier(f"a record's {name} is not blank and has no space around it")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in value):
        raise InvalidIdentifier(f"a record's {name} holds no control character")
    if len(value.encode()) > MAX_PART_BYTES:
        raise InvalidIdentifier(f"a record's {name} is at most {MAX_PART_BYTES} bytes long")
