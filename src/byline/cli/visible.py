"""Stored text on a terminal: nothing in it steers the screen, and its width is known.

What a model, a tool or a person of the host wrote may hold escape sequences, control characters, and marks that turn
the direction of writing. All of that is shown by its number, never sent.
"""

import json
import unicodedata

from pydantic import JsonValue

ELLIPSIS = "…"


def visible(text: str) -> str:
    """Show every character that does not print as an escape: a line of text stays one line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible_json(value: JsonValue) -> str:
    """Write a value as JSON in which every character prints. It reads back as the same value."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(c) for c in text)


def _cells_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def cut(text: str, width: int) -> str:
    """Shorten a text to a width; what was cut is marked with `…`."""
    if cells(text) <= width:
        return text
    kept, room = "", max(width - 1, 0)
    for character in text:
        room -= _cells_of(character)
        if room < 0:
            break
        kept += character
    return kept + ELLIPSIS


def wrap(text: str, width: int) -> list[str]:
    """Break a line at its spaces into lines of at most `width`; a word that is longer is broken as well."""
    lines: list[str] = []
    line, room = "", width
    for word in text.split(" "):
        needed = cells(word) + (1 if line else 0)
        if needed <= room:
            line += f" {word}" if line else word
            room -= needed
            continue
        if line:
            lines.append(line)
        line, room = "", width
        for character in word:
            if _cells_of(character) > room:
                lines.append(line)
                line, room = "", width
            line += character
            room -= _cells_of(character)
    lines.append(line)
    return lines
