"""What the host's own code raises where Byline asks it something: what goes on, and what may be said of it."""

import asyncio
import traceback
from collections.abc import Iterator


def goes_on(error: BaseException) -> bool:
    """Whether this is not the asked code's own: an interrupt, or the cancellation of whoever asked.

    Call it in the task in which the error was caught.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | GeneratorExit)


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
