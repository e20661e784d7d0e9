"""What a broker's worker does with a message: the run whose id it is goes on, or it is said why not, and that is all.

Whatever a message holds, it is taken from the broker: what it was about stands in the store, for whoever looks (P17).
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from byline.errors import BylineError, ConfigurationError, InvalidIdentifier, RuntimeClosed
from byline.hosted import where_raised
from byline.runs.run import parse_run_id
from byline.runtime.runtime import AgentRuntime

EXECUTE: Final = "byline.execute"
"""The name of the task that goes on with a run. Its one argument is the run's id."""

_log = logging.getLogger(__name__)


def run_id_of(arguments: Sequence[object], named: Mapping[str, object]) -> UUID | None:
    """Read a message's arguments. What is no run id is logged, without what it holds, and is None."""
    try:
        if len(arguments) == 1 and not named:
            return parse_run_id(arguments[0])
    except InvalidIdentifier:
        pass
    _log.warning("A message that is no run id was dropped", extra={"action": "message_dropped"})
    return None


@contextmanager
def contained(what: str, run_id: UUID | None = None) -> Generator[None]:
    """Say what came to nothing, and let the worker go on with the next message."""
    try:
        yield
    except RuntimeClosed:
        pass  # this worker stops, and said so
    except Exception as error:  # noqa: BLE001 - whatever it is, the store has what others go on from
        why = str(error) if isinstance(error, BylineError) else where_raised(error)
        extra = {"action": "came_to_nothing", "run_id": None if run_id is None else str(run_id)}
        _log.error("%s: %s", what, why, extra=extra)


def checked_builder(build: Callable[[], AgentRuntime]) -> Callable[[], AgentRuntime]:
    """Refuse what builds no runtime.

    Raises:
        ConfigurationError: it cannot be called. What is returned raises it where none is built, or one without agents.
    """
    if not callable(build):
        raise ConfigurationError("a worker's runtime is given as a function that builds it, in each worker process")

    def built() -> AgentRuntime:
        runtime = build()
        if not isinstance(runtime, AgentRuntime):
            raise ConfigurationError(f"{build!r:.200} returns an AgentRuntime, not {type(runtime).__name__}")
        if not runtime.agents:
            raise ConfigurationError("a worker without agents would execute nothing: load some with agents=[…]")
        return runtime

    return built
