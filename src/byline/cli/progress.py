"""What happens while a command waits: on stderr, and only where that is a terminal."""

import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from uuid import UUID

from byline.cli.runs import step_words
from byline.cli.screen import Screen, Style
from byline.errors import BylineError
from byline.runs.steps import Step
from byline.runtime.runtime import MAX_PAGE
from byline.runtime.sync import SyncRuntime

LOOK = 0.3
"""Seconds between two looks at a run's trace."""
AFTER = 2.0
"""Seconds after which a command that shows nothing says that it is still at it."""


@contextmanager
def following(runtime: SyncRuntime, run_id: UUID) -> Generator[None]:
    """Show the steps of a run as they come, while the body executes it."""
    screen = Screen(sys.stderr)
    if not screen.is_terminal:
        yield
        return
    seen = _last_position(runtime, run_id)
    ended = threading.Event()

    def follow() -> None:
        at = seen
        while True:
            over = ended.wait(LOOK)  # and then one look more: the last steps count as well
            try:
                for step in runtime.list_steps(run_id, after=at, limit=MAX_PAGE):
                    at = step.position
                    _show(screen, step)
            except BylineError as error:
                screen.say(f"progress cannot be shown: {error}", style=Style.FAINT)
                return
            if over:
                return

    with _beside(follow, ended):
        yield


@contextmanager
def working(doing: str) -> Generator[None]:
    """Say now and then how long the body has been at it."""
    screen = Screen(sys.stderr)
    if not screen.is_terminal:
        yield
        return
    ended = threading.Event()
    begun = time.monotonic()

    def tell() -> None:
        pause = AFTER
        while not ended.wait(pause):
            screen.say(f"{doing}, {time.monotonic() - begun:.0f} s", style=Style.FAINT)
            pause = min(pause * 2, 60.0)

    with _beside(tell, ended):
        yield


@contextmanager
def _beside(work: Callable[[], None], ended: threading.Event) -> Generator[None]:
    thread = threading.Thread(target=work, name="byline-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _last_position(runtime: SyncRuntime, run_id: UUID) -> int:
    at = 0
    while page := runtime.list_steps(run_id, after=at, limit=MAX_PAGE):
        at = page[-1].position
    return at


def _show(screen: Screen, step: Step) -> None:
    record = "" if step.target is None else f" {step.target.record} {step.target.kind.value}"
    screen.say(f"{step.kind.value}{record} {step_words(step)}".rstrip(), indent=2, style=Style.FAINT)
