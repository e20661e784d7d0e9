"""What becomes of a run whose model failed: whether the model is asked again, and when."""

import random
from dataclasses import dataclass
from typing import Final

from byline.errors import ModelError
from byline.hosted import words_of
from byline.runs.status import TerminationReason
from byline.runs.steps import NewStep, StepKind
from byline.runtime.agent import seconds

LONGEST_RETRY_AFTER: Final = 3_600.0
"""Seconds for which a provider's wish to be left alone is granted, at most: one that asks for a year is asked again."""
MAX_DETAIL: Final = 2_000
"""Most of an error's words that is kept, in characters."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a run waits after its model failed: exponential, with full jitter.

    After the n-th failure without progress it waits a random time of at most `first` times 2 to the n-1, and never more
    than `longest`. What the provider asked for (`ModelError.retry_after`, at most an hour) is waited out before that,
    so that many runs that were told the same time do not all come back at it.

    Attributes:
        first: seconds, the most that is waited after the first failure.
        longest: seconds, the most that is waited after any.

    Raises:
        ConfigurationError: one of these is no time.
    """

    first: float = 2.0
    longest: float = 600.0

    def __post_init__(self) -> None:
        seconds("first", self.first)
        seconds("longest", self.longest)

    def after(self, failures: int, retry_after: float | None = None) -> float:
        """How many seconds to wait after so many failures; `retry_after` is what the provider asked for."""
        asked = min(retry_after, LONGEST_RETRY_AFTER) if retry_after is not None and retry_after > 0 else 0.0
        most = min(self.longest, self.first * 2.0 ** min(failures - 1, 1_000))
        return asked + random.uniform(0, most)  # noqa: S311 - nobody gains by guessing it


def may_answer_later(error: BaseException) -> bool:
    """Whether the same question may be answered later.

    A `ModelError` says so itself. Of what else a model raises, an error of the system counts as one of the line, unless
    it is about a file: a host's own `ChatModel` need not know Byline's errors to be asked again after a broken
    connection. Anything else says nothing, and asking again might cost as much as it is in vain.
    """
    if isinstance(error, ModelError):
        return error.retryable
    return isinstance(error, OSError) and error.filename is None


def final_reason(error: BaseException, failures: int, most: int) -> TerminationReason | None:
    """Why a run whose model has failed so often goes to dead letter; None if the model is asked again."""
    if not may_answer_later(error):
        return TerminationReason.NOT_RETRYABLE
    return TerminationReason.RETRIES_EXHAUSTED if failures > most else None


def retry_after(error: BaseException) -> float | None:
    """After how many seconds the provider wants to be asked again, if it said so in a number."""
    asked: object = error.retry_after if isinstance(error, ModelError) else None
    return asked if isinstance(asked, int | float) else None


def failed_step(error: BaseException) -> NewStep:
    """Record a failure: its kind in the open; the error's words, and the provider's behind them, sealed."""
    theirs = error.detail if isinstance(error, ModelError) else None
    told = "\n".join(filter(None, (words_of(error), theirs)))[:MAX_DETAIL]
    return NewStep(StepKind.MODEL, payload={"failed": type(error).__name__}, detail=told or None)


def because(error: BaseException, failures: int) -> str:
    """Say in the open why a run waits: the error's kind, for its words may hold content (P23)."""
    again = "" if failures == 1 else f", {failures} times without progress"
    return f"its model failed ({type(error).__name__}{again})"
