"""`byline worker`: take up what is due, until it is told to stop."""

import contextlib
import os
import signal
import sys
import threading
from typing import Annotated, NoReturn

import typer

from byline.cli.application import load
from byline.cli.failing import ExitCode
from byline.cli.screen import Screen

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STOPPING = b"byline worker: stopping when the steps in flight are done; one more signal ends it at once\n"


def worker(
    context: typer.Context,
    concurrency: Annotated[int, typer.Option(min=1, max=10_000, help="How many runs at a time.")] = 50,
    poll: Annotated[
        float, typer.Option(min=0.01, metavar="SECONDS", help="Between two looks for runs that nobody told of.")
    ] = 1.0,
) -> None:
    """Take up the runs that are due, many at once, until it is told to stop.

    The first Ctrl-C or SIGTERM: it claims nothing more, finishes the steps in flight (within the runtime's grace) and
    hands its runs back. The second one ends it at once, which the next worker treats as a crash.
    """
    application = load(context)
    with application.opened() as runtime:
        _stop_at_signals()
        Screen(sys.stderr).say(f"byline worker: at work for {application.name}, {concurrency} runs at a time")
        runtime.work(concurrency=concurrency, poll=poll)


def _stop_at_signals() -> None:
    """Let the first signal end what waits here, and the second one the process."""

    def stop(number: int, _frame: object) -> NoReturn:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        with contextlib.suppress(OSError):  # nobody reads
            # Past the stream's buffer, which the signal may have interrupted.
            os.write(sys.stderr.fileno(), _STOPPING)
        raise SystemExit(ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.TERMINATED)

    if threading.current_thread() is threading.main_thread():
        for each in _SIGNALS:
            signal.signal(each, stop)
