"""Questions: who decides has read what they decide on, and says yes to exactly that."""

import sys
from typing import Annotated

import typer

from byline.cli.failing import ExitCode, UsageRefused
from byline.cli.screen import Screen

Yes = Annotated[
    bool, typer.Option("--yes", help="Ask no question; needs --digest, that of what you have read (byline show RUN).")
]
Digest = Annotated[
    str | None, typer.Option(metavar="DIGEST", help="The digest of what you have read: anything else is refused.")
]


def check_asking(screen: Screen, *, yes: bool, digest: str | None) -> None:
    """Refuse to decide where nobody reads: without a terminal it takes `--yes` and the digest of what was read.

    Raises:
        UsageRefused: the options do not go together, or nobody can be asked.
    """
    if yes and digest is None:
        raise UsageRefused("--yes goes with --digest: say which turn you have read (byline show RUN prints its digest)")
    if not yes and not screen.can_ask:
        raise UsageRefused(
            "this asks before it decides, and there is no terminal to answer on: "
            "read it with byline show RUN, then give --yes --digest DIGEST"
        )


def shown_on(*, as_json: bool) -> Screen:
    """Where what is decided on is shown: with `--json`, stdout is the program's."""
    return Screen(sys.stderr if as_json else sys.stdout)


def confirm(screen: Screen, question: str, *, no: str = "Nothing was decided.") -> None:
    """Ask, and end the command unless the answer is yes; then it says `no`.

    Raises:
        typer.Exit: it is not (`ExitCode.REFUSED`).
    """
    screen.say()
    if screen.ask(f"{question} [y/N]").lower() not in ("y", "yes"):
        screen.say(no)
        raise typer.Exit(ExitCode.REFUSED)
