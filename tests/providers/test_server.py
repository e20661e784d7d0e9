"""The model server of the examples plays its parts over each protocol, and says how to use it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from byline import Decision, PydanticAiModel, RunStatus
from byline.models import ModelRequest
from byline.models.messages import UserMessage
from examples.model_server.rules import SAYS_NOTHING, by_the_script
from examples.model_server.server import ModelServer, saying
from examples.newsroom.application import make_runtime
from examples.newsroom.authority import NewsroomAuthority
from examples.newsroom.model import PROMPT
from examples.newsroom.seed import APPROVER, EDITOR, build_site
from tests.providers.test_replay import MESSAGES, RESPONSES, STREAMED

ROOT = Path(__file__).resolve().parents[2]
MODELS = ["openai-chat:local", RESPONSES, MESSAGES, STREAMED]


@pytest.mark.parametrize("deny", [False, True], ids=["approved", "one denied"])
@pytest.mark.parametrize("model", MODELS)
async def test_it_plays_the_newsrooms_part(server: ModelServer, tmp_path: Path, model: str, deny: bool) -> None:
    server.respond = saying(by_the_script)
    site = build_site(tmp_path / "site.db")
    people = NewsroomAuthority(site)
    asker, approver = people.load(EDITOR), people.load(APPROVER)
    assert asker is not None
    assert approver is not None
    decided: list[str] = []
    async with make_runtime(site, model=PydanticAiModel(model)) as runtime:
        run = await runtime.run("editor", PROMPT, actor=asker)
        while run.status is RunStatus.AWAITING_APPROVAL:
            assert run.pending is not None
            decided += [call.tool for call in run.pending.calls]
            digest = run.pending.digest
            word = Decision.deny(digest, "Not now.") if deny and len(decided) == 1 else Decision.approve(digest)
            run = await runtime.decide(run.run_id, word, actor=approver)
        assert run.status is RunStatus.COMPLETED
        assert len(await runtime.writes()) == (2 if deny else 3)
    assert decided == ["set_page_metadata", "set_alternative_text", "create_translation_draft"]
    assert ("has no new description" in str(run.output)) is deny


@pytest.mark.parametrize("model", MODELS)
async def test_it_has_no_part_with_other_tools(server: ModelServer, model: str) -> None:
    server.respond = saying(by_the_script)
    answer = await PydanticAiModel(model).answer(ModelRequest("", (UserMessage("Hello?"),), ()))
    assert (answer.text, answer.calls) == (SAYS_NOTHING, ())


def test_it_says_how_to_use_it() -> None:
    command = [sys.executable, "-m", "examples.model_server", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            lines = [started.stdout.readline() for _ in range(5)]
        finally:
            started.terminate()
    assert re.search(
        r"OPENAI_BASE_URL=http://127.0.0.1:\d+/v1 OPENAI_API_KEY=local make demo MODEL=openai:local", lines[1]
    )
    assert "Ctrl-C" in lines[4]
