"""The newsroom's runtime with the listeners that a test gives it, and no other: so that one may be out of order."""

from collections.abc import Iterable
from urllib.parse import quote

from byline import Agent, AgentRuntime, Listener
from byline.testing import ScriptedModel
from examples.newsroom.application import AGENT, STORE_FILE
from examples.newsroom.authority import NewsroomAuthority
from examples.newsroom.site import Site
from examples.newsroom.tools import READING, WRITING


def bare_runtime(site: Site, model: ScriptedModel, listeners: Iterable[Listener] = ()) -> AgentRuntime:
    """Build it over the store that the application uses."""
    return AgentRuntime(
        store=f"sqlite:///{quote(str(site.path.parent / STORE_FILE))}",
        agents=[Agent(name=AGENT, model=model, tools=[*READING, *WRITING])],
        listeners=listeners,
        authority=NewsroomAuthority(site),
        resources=site,
    )
