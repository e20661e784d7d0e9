"""`byline run`: start a run, and go on with it until it waits or ends."""

from typing import Annotated

import typer

from byline.cli.application import load
from byline.cli.options import AsJson
from byline.cli.outcome import tell
from byline.cli.progress import working


def run(
    context: typer.Context,
    agent: Annotated[str, typer.Argument(help="The agent's name.")],
    prompt: Annotated[str, typer.Argument(help="What you want.")],
    dedupe_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Start nothing if a run has this key; show that one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start a run, and show where it stands: what waits, what it answered, or what went wrong."""
    application = load(context)
    actor = application.actor()
    with application.opened() as runtime, working("the agent is at work"):
        started = runtime.run(agent, prompt, actor=actor, dedupe_key=dedupe_key)
    tell(started, as_json=as_json)
