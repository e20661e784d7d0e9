"""Which JSON values Byline carries, and the one way to read and to write them.

What is shown to an approver, digested, stored and executed must be one value on every side: in
Python, in a host's database, in a browser. So what some side would change or refuse is refused here.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import NoReturn, cast

from pydantic import JsonValue

MAX_DEPTH = 64
"""How deep lists and objects may be nested."""
MAX_PATH_CHARACTERS = 200
"""Most of a value's path that a message repeats."""


class NotPlainJson(ValueError):
    """A value is no JSON, or one that some side would change. The message names its path, never the value."""

    def __init__(self, path: str, fault: str) -> None:
        shown = path if len(path) <= MAX_PATH_CHARACTERS else path[:MAX_PATH_CHARACTERS] + "…"
        super().__init__(f"{shown}: {fault}")


def canonical_json(value: JsonValue | Mapping[str, JsonValue]) -> str:
    """Write a value in the one form that is digested and compared: sorted keys, no spaces, no escapes.

    Raises:
        ValueError: a float is not finite.
    """
    plain = dict(value) if isinstance(value, Mapping) else value
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def read_json(text: str, path: str) -> JsonValue:
    """Read JSON text strictly. `path` says in an error's message what the text is.

    Raises:
        NotPlainJson: the text is no JSON, repeats a key in an object, or holds what `plain_json` refuses.
    """

    def without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):  # readers differ in which one they take
            raise NotPlainJson(path, "an object repeats a key")
        return found

    def no_constant(_name: str) -> NoReturn:
        raise NotPlainJson(path, "a number that JSON does not know")

    try:
        value: object = json.loads(text, object_pairs_hook=without_repeats, parse_constant=no_constant)
    except RecursionError:
        raise NotPlainJson(path, _TOO_DEEP) from None
    except json.JSONDecodeError as error:
        raise NotPlainJson(path, f"no JSON: {error.msg} at character {error.pos}") from None
    except NotPlainJson:
        raise
    except ValueError:  # Python refuses to read an int of thousands of digits
        raise NotPlainJson(path, _TOO_LONG) from None
    return plain_json(value, path)


def plain_json(value: object, path: str, depth: int = 0) -> JsonValue:
    """Return a copy made of plain dicts, lists, strings and numbers only.

    Args:
        value: what to copy.
        path: where it stands, for an error's message.
        depth: how deep it stands there.

    Raises:
        NotPlainJson: a value is no JSON, an integer has more than 64 bits (what a database's column and a
            record's id hold), a float is not finite, a text or a key holds a NUL (databases refuse it) or
            half a surrogate pair, or the nesting is deeper than 64 levels (or endless).
    """
    if depth > MAX_DEPTH:
        raise NotPlainJson(path, _TOO_DEEP)
    match value:
        case None | bool():
            return value
        case int():
            if not -(2**63) <= value < 2**63:
                raise NotPlainJson(path, _TOO_LONG)
            return int(value)  # an IntEnum becomes an int
        case float():
            if not math.isfinite(value):
                raise NotPlainJson(path, "a float that JSON cannot hold")
            return float(value)
        case str():
            return _plain_text(value, path)
        case list():
            items = cast("list[object]", value)
            return [plain_json(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(items)]
        case Mapping():
            return dict(_plain_items(cast("Mapping[object, object]", value), path, depth + 1))
        case _:
            raise NotPlainJson(path, f"a {type(value).__name__}, which JSON cannot hold")


def _plain_items(value: Mapping[object, object], path: str, depth: int) -> Iterator[tuple[str, JsonValue]]:
    for key, item in value.items():
        if not isinstance(key, str):
            raise NotPlainJson(path, f"a key that is a {type(key).__name__}, not a str")
        name = _plain_text(key, f"a key of {path}")
        yield name, plain_json(item, f"{path}.{name}", depth)


def _plain_text(text: str, path: str) -> str:
    if "\0" in text:
        raise NotPlainJson(path, "a text with a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NotPlainJson(path, "no valid Unicode text") from None
    return str.__str__(text)  # a StrEnum becomes a str


_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_TOO_LONG = "an integer of more than 64 bits"
