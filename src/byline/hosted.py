"""What the host's own code raises where Byline asks it something: what goes on, and what may be said of it."""

import asyncio
import traceback
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from byline.errors import ToolContractBroken

T = TypeVar("T")

MAX_TEXT_BYTES = 50_000
"""Longest text that reaches the model, in bytes of UTF-8."""
TRUNCATED = "\n[truncated by Byline]"
PATIENCE = 0.5
"""Seconds that cancelled code gets to end before it is left to itself."""


def goes_on(error: BaseException) -> bool:
    """Whether this is not the asked code's own: an interrupt, or the cancellation of whoever asked.

    Call it in the task in which the error was caught.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | GeneratorExit)


async def within(seconds: float | None, asked: Awaitable[T]) -> T:
    """Wait for the host's own code, or a model, for so long and no longer.

    It runs in a task of its own: one that does not obey its cancellation is left to itself and holds up nobody, and a
    SystemExit ends neither that task nor the event loop, but arrives here.

    Raises:
        TimeoutError: it took longer.
    """
    task = asyncio.create_task(_kept(asked))
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            task.cancel()
            await asyncio.wait({task}, timeout=PATIENCE)
            raise TimeoutError(f"no answer within {seconds} s")
    except asyncio.CancelledError:
        task.cancel()
        raise
    kept = task.result()
    if isinstance(kept, _Raised):
        raise kept.error
    return kept


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException


async def _kept(asked: Awaitable[T]) -> T | _Raised:
    try:
        return await asked
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
        return _Raised(error)


def bounded_text(text: str, limit: int) -> str:
    """Cut a text to `limit` bytes of UTF-8, at a character's border; half a surrogate pair becomes U+FFFD.

    Raises:
        ToolContractBroken: it is no str.
    """
    if not isinstance(text, str):
        raise ToolContractBroken(f"a result's text is a str, not {type(text).__name__}")
    # UTF-16 joins two halves that Python kept apart, and makes one U+FFFD of a half on its own.
    data = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    if len(data) <= limit:
        return data.decode()
    return data[: limit - len(TRUNCATED)].decode("utf-8", "ignore") + TRUNCATED


def words_of(error: BaseException) -> str:
    """What an error of the host's code or of a model says, as valid Unicode and bounded; whatever its `__str__` does.

    It may hold content: it is for the model or for a sealed detail, and for no log (P23).
    """
    try:
        return bounded_text(str.__str__(str(error)), MAX_TEXT_BYTES)
    except BaseException as failure:
        if goes_on(failure):
            raise
        return f"a {type(error).__name__}, which does not say what is wrong"


def where_raised(error: BaseException) -> str:
    """Say which type of exception was raised, and where: a traceback without what the exceptions say.

    A message of the host's code may hold content (an argument, a title), and a log is no place for it (P23).
    """
    told = [f"{type(cause).__qualname__}, raised at\n{_frames(cause)}" for cause in _chain(error)]
    return "caused by ".join(told).rstrip()


def _frames(error: BaseException) -> str:
    return "".join(traceback.format_tb(error.__traceback__)) or "  (nowhere)\n"


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
