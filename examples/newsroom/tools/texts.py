"""What a model may hand in: ids and texts, bounded and clean.

A text is brought to Unicode's normal form C, and its spaces are tidied, before anybody is asked: what the approver
reads is what will be written. Characters that would make it look like another text are refused.
"""

import re
import unicodedata
from typing import Annotated

from pydantic import BeforeValidator, Field

_DECEIVING = re.compile(
    "[\u200b\u2060\ufeff"  # of no width
    "\u202a-\u202e\u2066-\u2069"  # turn the direction of what follows
    "\U000e0000-\U000e007f]"  # tags: text that no screen shows
)


def one_line(text: object) -> object:
    """Tidy a text into one line; anything but a text is left to the check of its type."""
    if not isinstance(text, str):
        return text
    return " ".join(_clean(re.sub(r"[\t\r\n]", " ", text)).split())


def paragraphs(text: object) -> object:
    """Tidy a text of several lines: no spaces at their ends, one empty line between two paragraphs."""
    if not isinstance(text, str):
        return text
    lines = _clean(re.sub(r"\r\n?", "\n", text).replace("\t", " "), allowed="\n").split("\n")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()


def _clean(text: str, *, allowed: str = "") -> str:
    if any(unicodedata.category(c) in ("Cc", "Cs", "Co", "Zl", "Zp") and c not in allowed for c in text):
        raise ValueError("control characters are not allowed")
    if _DECEIVING.search(text):
        raise ValueError("characters that hide or turn text are not allowed")
    return unicodedata.normalize("NFC", text)


Id = Annotated[int, Field(ge=1, le=2**53 - 1)]
Version = Annotated[int, Field(ge=1, le=2**53 - 1)]
Position = Annotated[int, Field(ge=0, le=1_000_000)]
Title = Annotated[str, BeforeValidator(one_line), Field(min_length=1, max_length=120)]
Description = Annotated[str, BeforeValidator(one_line), Field(min_length=1, max_length=300)]
Heading = Annotated[str, BeforeValidator(one_line), Field(max_length=120)]
Body = Annotated[str, BeforeValidator(paragraphs), Field(min_length=1, max_length=5_000)]
AlternativeText = Annotated[str, BeforeValidator(one_line), Field(min_length=1, max_length=250)]
OwnAlternativeText = Annotated[str, BeforeValidator(one_line), Field(max_length=250)]
Words = Annotated[str, BeforeValidator(one_line), Field(min_length=2, max_length=80)]
