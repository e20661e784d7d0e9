"""`byline purge`: delete what is kept for no longer."""

import sys
from typing import Annotated

import typer

from byline.cli.ages import duration
from byline.cli.application import load
from byline.cli.as_json import print_json
from byline.cli.failing import ExitCode, UsageRefused
from byline.cli.options import AsJson
from byline.cli.screen import Screen
from byline.store.protocol import Purged


def purge(
    context: typer.Context,
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Since a run ended, such as 30d or 8w.")],
    provenance_older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Delete also what runs wrote and who decided it, if they ended before that."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask no question.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete content and traces of runs that ended long ago. What they wrote, and who decided it, stays.

    It works in short transactions beside workers. It may be broken off: the next one goes on.
    """
    age = duration(older_than)
    longer = None if provenance_older_than is None else duration(provenance_older_than)
    progress = Screen(sys.stderr)
    _confirm(progress, older_than, provenance_older_than, yes=yes)

    def show(so_far: Purged) -> None:
        if progress.is_terminal:
            progress.say(f"{so_far.runs} runs purged, {so_far.forgotten} forgotten …")

    with load(context).opened() as runtime:
        done = runtime.purge(older_than=age, provenance_older_than=longer, progress=show)
    if as_json:
        print_json(
            {
                "outputs": done.outputs,
                "runs": done.runs,
                "dead_letters": done.dead_letters,
                "forgotten": done.forgotten,
            }
        )
        return
    Screen().fields(
        [
            ("answers deleted", str(done.outputs)),
            ("runs purged", f"{done.runs}, of them {done.dead_letters} in dead letter"),
            ("runs forgotten", str(done.forgotten)),
        ]
    )


def _confirm(screen: Screen, age: str, longer: str | None, *, yes: bool) -> None:
    """Ask before anything is deleted.

    Raises:
        UsageRefused: nobody can be asked.
        typer.Exit: the answer is not yes.
    """
    if yes:
        return
    if not screen.can_ask:
        raise UsageRefused("this asks before it deletes, and there is no terminal to answer on: give --yes")
    screen.say(f"Content and traces of runs that ended more than {age} ago will be deleted.")
    if longer is not None:
        screen.say(f"Of those that ended more than {longer} ago, nothing will be left: not what they wrote either.")
    if screen.ask("Delete them? [y/N]").lower() not in ("y", "yes"):
        screen.say("Nothing was deleted.")
        raise typer.Exit(ExitCode.REFUSED)
