"""How a command ends: its exit code, and what it says when it was refused."""

import functools
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import ParamSpec, TypeVar

import typer

from byline.cli.application import ApplicationFailed
from byline.cli.output import OutputLost
from byline.cli.screen import Screen, Style
from byline.errors import (
    AlreadyDecided,
    BylineError,
    ConfigurationError,
    InvalidArguments,
    InvalidIdentifier,
    KeyInUse,
    KeyMissing,
    NotAllowed,
    NotDecidable,
    NotRetryable,
    SealBroken,
    StaleDecision,
    StoreError,
    StoreUnavailable,
    ToolNotLoaded,
    UnknownAgent,
    UnknownCall,
    UnknownKey,
    UnknownRun,
)

P = ParamSpec("P")
T = TypeVar("T")


class ExitCode(IntEnum):
    """What a command returns to the shell."""

    DONE = 0
    """It was done. A run that was started or released has been completed, waits for a person, or is queued."""
    REFUSED = 1
    """Nothing was done: it was refused, or answered with no. Of `doctor`: something needs a person."""
    USAGE = 2
    """The command line or the application is wrong. Nothing was done."""
    STORE = 3
    """The store cannot be used: it does not answer, its schema is another, a key is missing."""
    ATTENTION = 4
    """It was done, and somebody has to look: the run is uncertain, in dead letter, or has failed."""
    INTERRUPTED = 130
    """Ctrl-C. A write in flight was finished and recorded; its run was handed back."""
    UNREAD = 141
    """What it said could not be written: its reader has gone, or the disk is full. What was done stays done."""
    TERMINATED = 143
    """SIGTERM, likewise."""


class UsageRefused(BylineError):
    """The options do not go together."""


# The first that fits.
_CODES: dict[type[BylineError], ExitCode] = {
    KeyInUse: ExitCode.REFUSED,
    UnknownKey: ExitCode.REFUSED,
    StoreError: ExitCode.STORE,
    ConfigurationError: ExitCode.USAGE,
    InvalidIdentifier: ExitCode.USAGE,
    InvalidArguments: ExitCode.USAGE,
    UsageRefused: ExitCode.USAGE,
}

# The first that fits. A message that says itself what to do has no entry.
_ADVICE: tuple[tuple[type[BylineError], str], ...] = (
    (StaleDecision, "read it again: byline show RUN"),
    (AlreadyDecided, "byline show RUN and byline steps RUN say what was decided"),
    (NotDecidable, "byline show RUN says where it stands"),
    (NotAllowed, "who you are comes from the application's cli_actor(), what you may do from its authority"),
    (ToolNotLoaded, "use the application that has it, or deny or cancel the run"),
    (NotRetryable, "byline show RUN says where it stands"),
    (UnknownRun, "byline runs lists them"),
    (UnknownCall, "byline show RUN lists the calls"),
    (UnknownAgent, "byline doctor lists the agents of this application"),
    (KeyMissing, "byline doctor says which runs need a key, byline keys list which are here"),
    (KeyInUse, "byline keys list says which key seals, and how many values need each"),
    (UnknownKey, "byline keys list lists them"),
    (SealBroken, "restore a backup of the row, or of the key"),
    (StoreUnavailable, "look whether the database answers; byline show RUN says then what stands"),
)


def exit_code(error: BylineError) -> ExitCode:
    """Return the exit code of an error."""
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), ExitCode.REFUSED)


def report(error: BylineError) -> None:
    """Say on stderr what was refused, and what to do."""
    screen = Screen(sys.stderr)
    if isinstance(error, ApplicationFailed) and error.__cause__ is not None:
        # The host's own code failed: its author needs to see where. The loader's frames are of no use to them.
        trace = "".join(traceback.format_exception(error.__cause__))
        screen.say(trace.rstrip())
    screen.say(f"byline: {error}", style=Style.BAD)
    advice = next((advice for kind, advice in _ADVICE if isinstance(error, kind)), None)
    if advice is not None:
        screen.say(f"what to do: {advice}", indent=2)


def ending(command: Callable[P, T]) -> Callable[P, T]:
    """Let a command end as it should: a `BylineError` is one clear line and its exit code, not a traceback."""

    @functools.wraps(command)
    def ended(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except BylineError as error:
            with suppress(OutputLost):  # the code says it where nothing else can
                report(error)
            raise typer.Exit(exit_code(error)) from None
        except OutputLost as lost:
            with suppress(OutputLost):
                Screen(sys.stderr).say(f"byline: {lost}. What was done stays done.", style=Style.BAD)
            raise typer.Exit(ExitCode.UNREAD) from None
        except KeyboardInterrupt:
            with suppress(OutputLost):
                Screen(sys.stderr).say(
                    "\nbyline: interrupted. A write in flight was finished and recorded; byline recover goes on."
                )
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    return ended
