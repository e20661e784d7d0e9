"""What people read: lines, fields and tables, no wider than the terminal and coloured only on one."""

import io
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TextIO, TypeAlias

from byline.cli.output import write
from byline.cli.visible import cells, cut, visible, wrap

NARROWEST = 40
"""Columns below which a terminal is written to as if it had this many."""
LEAST = 8
"""Columns that a shortened cell keeps at least."""
GAP = "  "


class Style(StrEnum):
    """How a text stands out, where there are colours. It means nothing that the words do not say."""

    PLAIN = ""
    BOLD = "1"
    FAINT = "2"
    BAD = "31"
    GOOD = "32"
    WAITS = "33"


@dataclass(frozen=True, slots=True)
class Styled:
    """A text that stands out."""

    text: str
    style: Style


Words: TypeAlias = str | Styled


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. One that is `flexible` is shortened where there is no room.

    `planned` is how wide it is, at least, in a table whose rows are not known beforehand.
    """

    title: str
    flexible: bool = False
    planned: int = 0


class Screen:
    """Writes to one stream. Every text is made visible here, so that nothing stored reaches a terminal raw.

    The width is that of the terminal, or `COLUMNS`; without either, nothing is cut or wrapped. Colours are off when the
    stream is no terminal, with `NO_COLOR`, and on a dumb terminal.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        if isinstance(self._stream, io.TextIOWrapper):
            self._stream.reconfigure(errors="backslashreplace")  # a screen without this character shows its number
        self.is_terminal = self._stream.isatty()
        self.width = self._measure()
        self._colours = (
            self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "", "dumb")
        )

    def _measure(self) -> int | None:
        columns = os.environ.get("COLUMNS", "")
        if columns.isdecimal() and int(columns):
            return max(int(columns), NARROWEST)
        if not self.is_terminal:
            return None
        try:
            return max(os.get_terminal_size(self._stream.fileno()).columns, NARROWEST)
        except OSError:  # a stream that only says it is a terminal
            return 80

    def say(self, text: str = "", *, indent: int = 0, hang: int = 0, style: Style = Style.PLAIN) -> None:
        """Write a text, wrapped, each line with the same indent; what goes on below it hangs further in."""
        for line in text.split("\n"):
            margin = indent
            for part in self._wrapped(visible(line), indent + hang):
                self._write(" " * margin + self._styled(part, style) if part else "")
                margin = indent + hang

    def whole(self, text: str) -> None:
        """Write a line that is not wrapped: a key, or a path, is copied from it."""
        self._write(visible(text))

    def fields(self, pairs: Iterable[tuple[str, Words]], *, indent: int = 0) -> None:
        """Write names and values, the values one below the other."""
        shown = [(name, value) for name, value in pairs if value != ""]
        # A long name (an argument's is the model's or the tool's) must not push the values off the screen.
        names = [cut(visible(name), 30) for name, _ in shown]
        beyond = max(map(cells, names), default=0) + len(GAP)
        for name, (_, words) in zip(names, shown, strict=True):
            text, style = (words.text, words.style) if isinstance(words, Styled) else (words, Style.PLAIN)
            label = " " * indent + self._styled(name, Style.FAINT) + " " * (beyond - cells(name))
            for line in text.split("\n"):
                for part in self._wrapped(visible(line), indent + beyond):
                    self._write(label + self._styled(part, style))
                    label = " " * (indent + beyond)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Words]]) -> None:
        """Write a table; flexible columns are shortened where it would be wider than the terminal."""
        body = [[_plain(words) for words in row] for row in rows]
        texts = [[(visible(text), style) for text, style in row] for row in body]
        widths = [
            max([cells(column.title), *(cells(row[at][0]) for row in texts)]) for at, column in enumerate(columns)
        ]
        self._shrink(columns, widths)
        self._row([(column.title, Style.BOLD) for column in columns], widths)
        for row in texts:
            self._row(row, widths)

    def growing_table(self, columns: Sequence[Column], rows: Iterable[Sequence[Words]]) -> None:
        """Write a table whose rows come one by one, each as it comes."""
        self._growing_row(columns, [(column.title, Style.BOLD) for column in columns])
        for row in rows:
            self._growing_row(columns, [(visible(text), style) for text, style in map(_plain, row)])

    def _growing_row(self, columns: Sequence[Column], row: Sequence[tuple[str, Style]]) -> None:
        widths = [
            max(column.planned, cells(column.title), cells(text))
            for column, (text, _) in zip(columns, row, strict=True)
        ]
        self._shrink(columns, widths)
        self._row(row, widths)

    def _shrink(self, columns: Sequence[Column], widths: list[int]) -> None:
        flexible = [at for at, column in enumerate(columns) if column.flexible]
        if self.width is None or not flexible:
            return
        over = sum(widths) + len(GAP) * (len(widths) - 1) - self.width
        while over > 0:
            widest = max(flexible, key=lambda at: widths[at])
            others = [widths[at] for at in flexible if at != widest]
            spare = widths[widest] - max([LEAST, *others])  # down to the next widest, then in turn
            if widths[widest] <= LEAST:
                return
            taken = min(over, max(spare, 1))
            widths[widest] -= taken
            over -= taken

    def _row(self, row: Sequence[tuple[str, Style]], widths: Sequence[int]) -> None:
        parts: list[str] = []
        for (text, style), width in zip(row, widths, strict=True):
            short = cut(text, width)
            parts.append(self._styled(short, style) + " " * (width - cells(short)))
        self._write(GAP.join(parts).rstrip())

    def ask(self, question: str) -> str:
        """Write a question and read a line from the terminal; an end of input is an empty answer."""
        write(self._stream, visible(question) + " ")
        answer = sys.stdin.readline()
        if not answer.endswith("\n"):
            self._write("")
        return answer.strip()

    @property
    def can_ask(self) -> bool:
        """Whether somebody reads this stream and can answer."""
        return self.is_terminal and sys.stdin.isatty()

    def _wrapped(self, line: str, indent: int) -> list[str]:
        return [line] if self.width is None else wrap(line, max(self.width - indent, LEAST))

    def _styled(self, text: str, style: Style) -> str:
        return f"\x1b[{style.value}m{text}\x1b[0m" if self._colours and style and text else text

    def _write(self, line: str) -> None:
        write(self._stream, line + "\n")


def _plain(words: Words) -> tuple[str, Style]:
    return (words.text, words.style) if isinstance(words, Styled) else (words, Style.PLAIN)


def local(at: datetime) -> str:
    """Show a time in the zone of this machine, to the second."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
