"""`byline recover`: take up, once, what nobody executes."""

import typer

from byline.cli.application import load
from byline.cli.as_json import print_json
from byline.cli.failing import ExitCode
from byline.cli.options import AsJson
from byline.cli.progress import working
from byline.cli.screen import Column, Screen
from byline.runtime.executor import BATCH


def recover(context: typer.Context, as_json: AsJson = False) -> None:
    """Settle expired approvals, and go on with runs that are queued or that a dead process left."""
    with load(context).opened() as runtime, working("recovering"):
        done = runtime.recover()
    if as_json:
        print_json(
            {
                "executed": [str(run_id) for run_id in done.executed],
                "expired": [str(run_id) for run_id in done.expired],
                "skipped": {str(run_id): why for run_id, why in done.skipped.items()},
            }
        )
    else:
        screen = Screen()
        screen.fields(
            [
                ("taken up", str(len(done.executed))),
                ("expired", str(len(done.expired))),
                ("skipped", str(len(done.skipped))),
            ]
        )
        rows = [(str(run_id), "taken up", "") for run_id in done.executed]
        rows += [(str(run_id), "expired", "its approval came too late: it has failed") for run_id in done.expired]
        rows += [(str(run_id), "skipped", why) for run_id, why in done.skipped.items()]
        if rows:
            screen.say()
            screen.table((Column("RUN"), Column("WHAT"), Column("WHY", flexible=True)), rows)
        if len(done.executed) >= BATCH or len(done.expired) >= BATCH:
            screen.say("\nThere may be more: run it again.")
    if done.skipped:
        raise typer.Exit(ExitCode.ATTENTION)
