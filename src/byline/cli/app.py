"""The commands, put together. See the package's docstring for how to add one."""

import signal
import threading
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from byline.cli import db, decide, doctor, end, keys, purge, reconcile, recover, runs, start, worker, writes
from byline.cli.application import ENVIRONMENT_VARIABLE
from byline.cli.failing import ExitCode, ending
from byline.cli.output import open_closed_streams

_SETTINGS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="byline",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain text: it is the same on a screen, in a pipe and in the documentation
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)


@app.callback()
def choose(
    context: typer.Context,
    app: Annotated[
        str | None,
        typer.Option(
            envvar=ENVIRONMENT_VARIABLE,
            metavar="MODULE:ATTRIBUTE",
            help="Your application: an AgentRuntime, or a function that returns one. Who you are is what cli_actor() "
            "of the same module says.",
        ),
    ] = None,
) -> None:
    """Look at the runs of AI agents, decide on what they want to write, and settle what nobody else can know."""
    context.obj = app


def add(command: Callable[..., None], name: str, group: typer.Typer = app) -> None:
    """Register a command, so that it ends as every command does."""
    group.command(name)(ending(command))


add(start.run, "run")
add(runs.runs, "runs")
add(runs.show, "show")
add(runs.steps, "steps")
add(decide.approve, "approve")
add(decide.deny, "deny")
add(reconcile.reconcile, "reconcile")
add(end.cancel, "cancel")
add(end.retry, "retry")
add(writes.writes, "writes")
add(recover.recover, "recover")
add(worker.worker, "worker")
add(purge.purge, "purge")
add(db.current, "current", db.group)
add(db.upgrade, "upgrade", db.group)
app.add_typer(db.group, name="db")
add(keys.list_keys, "list", keys.group)
add(keys.add, "add", keys.group)
add(keys.activate, "activate", keys.group)
add(keys.reseal, "reseal", keys.group)
add(keys.drop, "drop", keys.group)
app.add_typer(keys.group, name="keys")
add(doctor.doctor, "doctor")


def main() -> None:
    """Run the command line: the console script `byline`, and `python -m byline`."""
    open_closed_streams()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    app()


def _terminate(_signal: int, _frame: object) -> NoReturn:
    # Raised where the command waits: the runtime finishes the write in flight and hands the run back.
    raise SystemExit(ExitCode.TERMINATED)
