"""`byline cancel` and `byline retry`."""

import typer

from byline.cli.application import load
from byline.cli.as_json import print_json, run_json
from byline.cli.options import AsJson, RunArgument, find_run
from byline.cli.outcome import tell
from byline.cli.progress import following
from byline.cli.screen import Screen
from byline.runs.status import RunStatus


def cancel(context: typer.Context, run: RunArgument, as_json: AsJson = False) -> None:
    """Cancel a run. A write in flight ends and is announced; an uncertain one has to be settled first."""
    application = load(context)
    actor = application.actor()
    with application.opened() as runtime:
        cancelled = runtime.cancel(find_run(runtime, run), actor=actor)
    if as_json:
        print_json(run_json(cancelled))
        return
    screen = Screen()
    match cancelled.status:
        case RunStatus.CANCELLED:
            screen.say(f"Cancelled: {cancelled.run_id}")
        case RunStatus.UNCERTAIN:
            screen.say("Asked for. A write may have landed: the run is cancelled once that is settled.")
            screen.say(f"Next: byline reconcile {cancelled.run_id}")
        case _:
            screen.say(f"Asked for. The run is {cancelled.status.value}; no further call of it begins.")


def retry(context: typer.Context, run: RunArgument, as_json: AsJson = False) -> None:
    """Take a run in dead letter up where it stood, with its budget restored."""
    with load(context).opened() as runtime:
        run_id = find_run(runtime, run)
        with following(runtime, run_id):
            retried = runtime.retry(run_id)
    tell(retried, as_json=as_json)
