"""The application that the command line's tests name: `--app tests.cli.program:runtime`.

Where the host is, which script the model plays and how the runtime is set come from the environment, so that a command
in this process and one in a process of its own find the same.
"""

import os
from pathlib import Path

from byline import AgentRuntime, AiActorContext
from byline.models.scripted import Turn
from byline.testing import call
from tests.host import BOB, Host, Settings

SET = call("set_description", page_id=42, description="We are open.")
ADD = call("add_element", page_id=42, text="Come in.")
HOSTILE = "We\x1b[2J\x1b]0;owned\x07 are\r open\u202e.\x9b31m"
SCRIPTS: dict[str, list[Turn]] = {
    "set": [[SET], "Done."],
    "add": [[ADD], "Done."],
    "two": [[SET, ADD], "Both done."],
    "hostile": [[call("set_description", page_id=42, description=HOSTILE)], HOSTILE],
    "words": ["Nothing to do."],
    "read": [[call("read_page", page_id=42)], "Read."],
}


def runtime() -> AgentRuntime:
    settings: Settings = {"recover": True} if os.environ.get("PROGRAM_RECOVERS") else {}
    if os.environ.get("PROGRAM_QUEUES"):
        settings["execution"] = "queued"
    host = Host(Path(os.environ["PROGRAM_HOST"]))
    script = SCRIPTS[os.environ.get("PROGRAM_SCRIPT", "set")]
    return host.runtime(script, store=os.environ.get("PROGRAM_STORE"), **settings)


def cli_actor() -> AiActorContext:
    return BOB


def broken() -> AgentRuntime:
    raise RuntimeError("the settings are not there")


NOT_A_RUNTIME = 7
