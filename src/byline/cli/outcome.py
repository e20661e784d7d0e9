"""What a command says of a run that it started, released or settled, and the code that it ends with."""

import typer

from byline.cli.as_json import print_json, run_json
from byline.cli.describing import show_run
from byline.cli.failing import ExitCode
from byline.cli.screen import Screen
from byline.runs.run import Run
from byline.runs.status import RunStatus

_SAD = (RunStatus.FAILED, RunStatus.UNCERTAIN, RunStatus.DEAD_LETTER)
_NEXT = {
    RunStatus.AWAITING_APPROVAL: "byline approve {run}, or byline deny",
    RunStatus.UNCERTAIN: "look at the record, then say what became of it: byline reconcile {run}",
    RunStatus.DEAD_LETTER: "byline retry {run}, or byline cancel",
    RunStatus.QUEUED: "a worker takes it up; without one, byline recover does",
}


def tell(run: Run, *, as_json: bool) -> None:
    """Say how it went, and end with the code that fits.

    Raises:
        typer.Exit: somebody has to look (`ExitCode.ATTENTION`).
    """
    if as_json:
        print_json(run_json(run))
    else:
        screen = Screen()
        show_run(screen, run)
        advice = _NEXT.get(run.status)
        if advice is not None:
            screen.say()
            screen.say(f"Next: {advice.format(run=run.run_id)}")
        if run.status is RunStatus.QUEUED:
            screen.say(f"Follow it: byline steps {run.run_id} --follow")
    if run.status in _SAD:
        raise typer.Exit(ExitCode.ATTENTION)
