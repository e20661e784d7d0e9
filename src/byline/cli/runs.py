"""`byline runs`, `byline show` and `byline steps`: what is stored. They execute nothing."""

import sys
from collections.abc import Iterable
from typing import Annotated

import typer
from pydantic import JsonValue

from byline.cli.application import load
from byline.cli.as_json import print_json, run_json, step_json
from byline.cli.describing import show_run, show_runs
from byline.cli.failing import ExitCode
from byline.cli.options import AsJson, Limit, RunArgument, find_run
from byline.cli.screen import Column, Screen, local
from byline.cli.visible import visible_json
from byline.runs.status import RunStatus
from byline.runs.steps import Step
from byline.runtime.runtime import MAX_PAGE

STEP_COLUMNS = (
    Column("POSITION"),
    Column("AT", planned=19),
    Column("STEP", planned=11),
    Column("RECORD", flexible=True, planned=14),
    Column("WHAT", flexible=True),
)


def runs(
    context: typer.Context,
    status: Annotated[RunStatus | None, typer.Option(help="Only runs that stand there.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    after: Annotated[str | None, typer.Option(metavar="RUN", help="Go on behind this run of the page before.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List runs, the newest first."""
    with load(context).opened() as runtime:
        start = None if after is None else find_run(runtime, after)
        found = list(runtime.list_runs(status=status, agent=agent, after=start, limit=limit))
    if as_json:
        for run in found:
            print_json(run_json(run))
        return
    screen = Screen()
    if not found:
        screen.say("There is no run." if after is None else "There are no more runs.")
        return
    show_runs(screen, found)
    if len(found) == limit:
        screen.say(f"\nThere may be more: byline runs --after {found[-1].run_id}")


def show(context: typer.Context, run: RunArgument, as_json: AsJson = False) -> None:
    """Show one run: what waits, with arguments and previews, or what is uncertain, or how it ended."""
    with load(context).opened() as runtime:
        found = runtime.get_run(find_run(runtime, run))
    if as_json:
        print_json(run_json(found))
    else:
        show_run(Screen(), found)


def steps(
    context: typer.Context,
    run: RunArgument,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with the steps to come, until the run ends.")] = False,
    as_json: AsJson = False,
) -> None:
    """List all steps of a run's trace, the oldest first."""
    found: list[Step] = []
    with load(context).opened() as runtime:
        run_id = find_run(runtime, run)
        if follow:
            _follow(runtime.watch(run_id), as_json=as_json)
            return
        while page := runtime.list_steps(run_id, after=found[-1].position if found else 0, limit=MAX_PAGE):
            found += page
    if as_json:
        for step in found:
            print_json(step_json(step))
        return
    Screen().table(STEP_COLUMNS, [step_row(step) for step in found])


def _follow(coming: Iterable[Step], *, as_json: bool) -> None:
    try:
        if as_json:
            for step in coming:
                print_json(step_json(step))
        else:
            Screen().growing_table(STEP_COLUMNS, map(step_row, coming))
    except KeyboardInterrupt:  # nothing was executed here: there is nothing to finish, and nothing to recover
        Screen(sys.stderr).say("\nbyline: no longer followed. The run itself goes on.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def step_row(step: Step) -> tuple[str, str, str, str, str]:
    """Write a step as a row of `STEP_COLUMNS`."""
    record = "" if step.target is None else f"{step.target.record} {step.target.kind.value}"
    return (str(step.position), local(step.at), step.kind.value, record, step_words(step))


def step_words(step: Step) -> str:
    """Say in a line what a step records."""
    told = [(name, value) for name, value in step.payload.items() if value is not None]
    words = [f"{name}={_value(value)}" for name, value in told]
    return " ".join(words if step.detail is None else [*words, step.detail])


def _value(value: JsonValue) -> str:
    match value:
        case str():
            return value
        case float():
            return f"{value:.3f}"
        case _:
            return visible_json(value)
