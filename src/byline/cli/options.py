"""Options and arguments that several commands share."""

from typing import Annotated
from uuid import UUID

import typer

from byline.errors import InvalidIdentifier, UnknownRun
from byline.runtime.sync import SyncRuntime

LEAST_OF_AN_ID = 8
"""Hexadecimal digits of a run's id that a command needs at least."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, or its beginning (8 digits or more) if no other has it.")
]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="How many at most.")]


def find_run(runtime: SyncRuntime, text: str) -> UUID:
    """Read a run's id, or find the one run whose id begins so.

    Raises:
        InvalidIdentifier: it is neither, or more than one run begins so.
        UnknownRun: none does.
    """
    digits = text.strip().lower().replace("-", "")
    if not LEAST_OF_AN_ID <= len(digits) <= 32 or any(digit not in "0123456789abcdef" for digit in digits):
        raise InvalidIdentifier(f"{text!r} is no run's id, nor {LEAST_OF_AN_ID} or more digits that one begins with")
    if len(digits) == 32:
        return UUID(digits)
    beyond = (int(digits, 16) + 1) << (4 * (32 - len(digits)))  # ids below this one, the highest first
    after = UUID(int=beyond) if beyond < 2**128 else None
    begun = [run.run_id for run in runtime.list_runs(after=after, limit=2) if run.run_id.hex.startswith(digits)]
    if not begun:
        raise UnknownRun(f"there is no run {text}…")
    if len(begun) > 1:
        raise InvalidIdentifier(f"more than one run begins with {text}: give more of its id")
    return begun[0]
