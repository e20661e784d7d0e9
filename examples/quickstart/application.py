"""The application: the site, its tools, its authority and its listener, put together."""

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from byline import Agent, AgentRuntime, Listener
from examples.quickstart.authority import SiteAuthority
from examples.quickstart.listener import VisitorsMark
from examples.quickstart.model import INSTRUCTIONS, scripted_model
from examples.quickstart.site import Site
from examples.quickstart.tools import add_content_element, read_page, update_page_metadata

LEASE = 3.0
"""Seconds. Short, so that a demo of a crash need not wait for long; 60, the default, suits real runs better."""
BEAT = 1.0


def build_runtime(site: Site, folder: Path, *, listeners: Iterable[Listener] = ()) -> AgentRuntime:
    """Build the runtime, with a store of its own beside the site's file."""
    editor = Agent(
        name="editor",
        model=scripted_model(),
        tools=[read_page, update_page_metadata, add_content_element],
        instructions=INSTRUCTIONS,
    )
    return AgentRuntime(
        store=f"sqlite:///{quote(str(folder / 'byline.db'))}",  # a URL: a folder's name may hold a `?` or a `%`
        agents=[editor],
        listeners=[VisitorsMark(site), *listeners],
        authority=SiteAuthority(site),
        resources=site,
        lease=LEASE,
        beat=BEAT,
    )
