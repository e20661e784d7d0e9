"""Pydantic AI's responses as native parts: kept whole, and read back to the letter or not at all."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Final, cast

from pydantic import JsonValue, ValidationError
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse

from byline.errors import NativeUnreadable
from byline.models.messages import NativePart

ADAPTER: Final = "pydantic-ai"
FORMAT: Final = "1"
"""The version of a native part: an object with the `library`'s version and its `response`."""


def native_part(response: ModelResponse) -> NativePart:
    """Keep a response whole."""
    # Pydantic's warnings show the values that are not of their types; who reads the part back finds those.
    (kept,) = ModelMessagesTypeAdapter.dump_python([response], mode="json", warnings=False)
    return NativePart(ADAPTER, FORMAT, {"library": version("pydantic-ai-slim"), "response": kept})


def read_native(native: NativePart) -> ModelResponse | None:
    """Read a response back; None if another adapter wrote it.

    Raises:
        NativeUnreadable: this version cannot read it, or would lose something of it. It says which versions, and
            nothing of the content.
    """
    if native.adapter != ADAPTER:
        return None
    if native.version != FORMAT:
        raise NativeUnreadable(f"an answer is stored in format {native.version!r:.40}; this adapter reads {FORMAT!r}")
    value = native.value if isinstance(native.value, Mapping) else {}
    try:
        (read,) = ModelMessagesTypeAdapter.validate_python([value.get("response")])
        (again,) = ModelMessagesTypeAdapter.dump_python([read], mode="json")
    except ValidationError:  # whose message holds what was said
        read, again = None, None
    if not isinstance(read, ModelResponse) or not _survives(value.get("response"), again):
        here, there = version("pydantic-ai-slim"), value.get("library")
        raise NativeUnreadable(
            f"an answer was stored by Pydantic AI {there!r:.40}, and the installed {here} does not read it whole"
        )
    return read


def _survives(stored: JsonValue, again: object) -> bool:
    """Whether all that was stored is in what was read. A field that a later version adds does no harm."""
    match stored, again:
        case dict(), dict():
            read = cast("dict[str, object]", again)
            return all(value is None or _survives(value, read.get(key)) for key, value in stored.items())
        case list(), list():
            items = cast("list[object]", again)
            return len(stored) == len(items) and all(map(_survives, stored, items))
        case _:
            return type(stored) is type(again) and stored == again
