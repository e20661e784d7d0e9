"""The application: the site, its tools, its authority and its agent, put together.

`byline --app examples.newsroom.application:runtime runs` works on it. Two variables of the environment say which site
and who sits there: `NEWSROOM_DIR`, the folder of its files (`newsroom` by default, made if it is not there), and
`NEWSROOM_USER`, an account of the site (the approver by default). They stand for what your application knows of its
own; a web application takes the person from its session. A third one, `NEWSROOM_MODEL`, names the model.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from byline import Agent, AgentRuntime, AiActorContext, Authority, ChatModel, Listener, NotAllowed
from examples.newsroom.authority import NewsroomAuthority
from examples.newsroom.label import TransparencyLabel
from examples.newsroom.model import INSTRUCTIONS, scripted_model
from examples.newsroom.seed import APPROVER, build_site
from examples.newsroom.site import Site
from examples.newsroom.tools import READING, WRITING

AGENT = "editor"
SITE_FILE = "site.db"
STORE_FILE = "byline.db"


def make_runtime(
    site: Site,
    *,
    model: ChatModel | str | None = None,
    listeners: Iterable[Listener] = (),
    authority: Authority | None = None,
    lease: float = 60.0,
    beat: float = 15.0,
) -> AgentRuntime:
    """Build the runtime, with a store of its own beside the site's file.

    Args:
        site: the site.
        model: who answers, or its name, such as `openai:gpt-5`; the scripted one by default.
        listeners: told of every announced write.
        authority: who may do what; the site's own accounts and rights by default.
        lease: seconds that a claim holds without a heartbeat.
        beat: seconds between heartbeats.
    """
    editor = Agent(
        name=AGENT,
        model=scripted_model() if model is None else model,
        tools=[*READING, *WRITING],
        instructions=INSTRUCTIONS,
    )
    return AgentRuntime(
        store=f"sqlite:///{quote(str(site.path.parent / STORE_FILE))}",  # a URL: a folder's name may hold a `?`
        agents=[editor],
        listeners=listeners,
        authority=NewsroomAuthority(site) if authority is None else authority,
        resources=site,
        lease=lease,
        beat=beat,
    )


def runtime() -> AgentRuntime:
    """Build the runtime of the site in `NEWSROOM_DIR`. What is written through it is labelled for visitors."""
    site = open_site()
    return make_runtime(site, model=os.environ.get("NEWSROOM_MODEL") or None, listeners=[TransparencyLabel(site)])


def cli_actor() -> AiActorContext:
    """Say who sits at this command line.

    Raises:
        NotAllowed: there is no such account, or it is closed.
    """
    actor = NewsroomAuthority(open_site()).load(os.environ.get("NEWSROOM_USER", APPROVER))
    if actor is None:
        raise NotAllowed("NEWSROOM_USER is no open account of the newsroom")
    return actor


def open_site() -> Site:
    """Open the site in `NEWSROOM_DIR`; its first day, if there is none yet."""
    folder = Path(os.environ.get("NEWSROOM_DIR", "newsroom"))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder.resolve() / SITE_FILE
    return Site(file) if file.exists() else build_site(file)
