"""Points in time as people write them on a command line: a date, a time, or how long ago."""

import re
from datetime import UTC, datetime, timedelta

from byline.errors import InvalidIdentifier

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(r"([0-9]{1,9})([smhdw])")


def duration(text: str) -> timedelta:
    """Read a duration such as `90s`, `15m`, `24h`, `7d` or `2w`.

    Raises:
        InvalidIdentifier: it is none.
    """
    found = _AGE.fullmatch(text.strip().lower())
    try:
        if found is not None:
            return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        pass
    raise InvalidIdentifier(f"{text!r} is no duration: write 90s, 15m, 24h, 7d or 2w")


def moment(text: str, now: datetime | None = None) -> datetime:
    """Read a date, a time (ISO 8601; without a zone, this machine's), or a duration before now.

    Raises:
        InvalidIdentifier: it is none of them.
    """
    try:
        if _AGE.fullmatch(text.strip().lower()):
            return (now or datetime.now(UTC)) - duration(text)
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError, OSError):
        raise InvalidIdentifier(
            f"{text!r} is no time: write 2026-11-30, 2026-11-30T18:30, or how long ago (24h, 7d)"
        ) from None
