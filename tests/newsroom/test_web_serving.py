"""The website as a process of its own, and the application that writes on the same site, as people start them."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select

from byline import AgentRuntime, AiActorContext, Decision, Run, WriteFact
from byline.testing import ScriptedModel, call
from examples.newsroom import application
from examples.newsroom.label import LabelRow
from examples.newsroom.models import Page
from examples.newsroom.seed import EDITOR
from examples.newsroom.site import Site
from tests.newsroom.bare import bare_runtime

ROOT = Path(__file__).resolve().parents[2]
SERVED_AT = re.compile(r"http://127\.0\.0\.1:\d+")


async def write_something(runtime: AgentRuntime) -> tuple[Run, Sequence[WriteFact]]:
    """Let the agent write, and leave what it would write then."""
    async with runtime:
        run = await runtime.run(application.AGENT, "Please.", actor=AiActorContext.user(EDITOR))
        assert run.pending is not None
        run = await runtime.decide(run.run_id, Decision.approve(run.pending.digest), actor=application.cli_actor())
        return run, await runtime.writes()


async def test_it_is_served_from_the_command_line_and_catches_up_first(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWSROOM_DIR", str(site.path.parent))
    with site.reading() as session:
        museum = session.scalars(select(Page.id).where(Page.slug == "boathouse-museum")).one()
    describes = call("set_page_metadata", page_id=museum, expected_version=1, description="Nine metres of larch.")
    model = ScriptedModel([[describes], "Done."])
    _, facts = await write_something(bare_runtime(site, model))  # no listener was there
    assert [str(fact.record) for fact in facts] == [f"pages:{museum}"]

    command = [sys.executable, "-m", "examples.newsroom.web", "--port", "0"]  # a free one
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = (SERVED_AT.search(line) for line in iter(process.stderr.readline, ""))
            address = next(found[0] for found in said if found)
            async with httpx.AsyncClient(base_url=address, follow_redirects=True, trust_env=False) as client:
                front, written = await client.get("/"), await client.get("/en/boathouse-museum")
        finally:
            process.terminate()
    assert front.url.path == "/en/home"
    assert "The Sollwick Courier" in front.text
    assert "digitalSourceType" not in front.text
    assert "digitalSourceType" in written.text


async def test_what_is_written_through_the_application_is_labelled(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEWSROOM_DIR", str(site.path.parent))
    run, facts = await write_something(application.runtime())
    assert facts
    with site.reading() as session:
        rows = session.scalars(select(LabelRow)).all()
    assert {row.record for row in rows} == {str(fact.record) for fact in facts}
    assert {row.run for row in rows} == {str(run.run_id)}
