"""What a provider said goes back to it as it said it: through a suspension, and from another process."""

import json
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from byline import (
    AssistantMessage,
    Decision,
    ModelAnswer,
    ModelCall,
    PydanticAiModel,
    RunStatus,
    ToolMessage,
    UserMessage,
)
from byline.models.messages import ModelRequest
from examples.model_server.server import ModelServer
from tests.providers.stage import (
    ALICE,
    BOB,
    Turn,
    as_sent,
    assistant_messages,
    playing,
    read_page,
    runtime,
    tool_results,
)

ROOT = Path(__file__).resolve().parents[2]
CHAT, RESPONSES, MESSAGES, STREAMED = (
    "openai-chat:local",
    "openai:gpt-5",
    "anthropic:local",
    "anthropic:claude-opus-4-8",  # its answers may be so long that they are streamed
)
PATHS = {
    CHAT: "/v1/chat/completions",
    RESPONSES: "/v1/responses",
    MESSAGES: "/v1/messages",
    STREAMED: "/v1/messages",
}

# A model's own hand: spacing, order, escapes, and an id that comes again in the next turn.
ODD = '{ "note" : "caf\\u00e9 \\/ \\ud83d\\ude00 \u2028",\n\t"page_id":42}'
STORY = (
    Turn("Let me see.\n", [("call_0", "read_page", ODD)], thinking="First I read. “Then” I write.\n"),
    Turn(
        None,
        [("call_0", "read_page", '{"page_id":404 }'), ("call_1", "describe_page", '{"description":"ü", "page_id":42}')],
        thinking="Now I write.",
    ),
    Turn("Done."),
)


@pytest.mark.promise("P19")
@pytest.mark.parametrize("model", [CHAT, RESPONSES, MESSAGES])
def test_a_fresh_process_gives_back_what_the_provider_said(server: ModelServer, tmp_path: Path, model: str) -> None:
    server.respond = playing(STORY)
    store = tmp_path / "runs.db"
    with runtime(store, model).sync as first:
        run = first.run("editor", "Describe page 42.", actor=ALICE)
        assert run.status is RunStatus.AWAITING_APPROVAL

    program = "tests.providers.program"
    command = [sys.executable, "-W", "error", "-m", program, f"sqlite:///{store}", model, str(run.run_id)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"status": "completed", "output": "Done."}

    assert [request.path for request in server.requests] == [PATHS[model]] * 3
    last = server.requests[-1]
    assert assistant_messages(last) == [as_sent(PATHS[model], turn) for turn in STORY[:2]]
    ids, texts = zip(*tool_results(last), strict=True)
    assert ids == ("call_0", "call_0", "call_1")
    assert texts[0] == "This is page 42."
    assert "There is no such page." in texts[1]
    assert texts[2] == "Page 42 is described."


@pytest.mark.promise("P19")
async def test_a_streamed_answer_goes_back_as_it_came(server: ModelServer, tmp_path: Path) -> None:
    server.respond = playing(STORY)
    async with runtime(tmp_path / "runs.db", STREAMED) as opened:
        run = await opened.run("editor", "Describe page 42.", actor=ALICE)
        assert run.pending is not None
        run = await opened.decide(run.run_id, Decision.approve(run.pending.digest), actor=BOB)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
    assert all(request.body["stream"] for request in server.requests)
    assert assistant_messages(server.requests[-1]) == [as_sent("/v1/messages", turn) for turn in STORY[:2]]


@pytest.mark.promise("P12")
@pytest.mark.parametrize("model", [CHAT, RESPONSES])
async def test_the_arguments_are_the_models_own_text(server: ModelServer, model: str) -> None:
    server.respond = playing([STORY[0]])
    answer = await PydanticAiModel(model).answer(ModelRequest("", (UserMessage("Go."),), ()))
    assert answer.calls == (ModelCall("read_page", ODD, "call_0"),)
    assert answer.text == "Let me see.\n"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (11, 7)


@pytest.mark.parametrize("model", [CHAT, RESPONSES, MESSAGES])
async def test_a_failed_call_is_told_as_one(server: ModelServer, tmp_path: Path, model: str) -> None:
    server.respond = playing([Turn(calls=[("a", "read_page", '{"page_id": 404}')]), Turn("There is none.")])
    async with runtime(tmp_path / "runs.db", model) as opened:
        assert (await opened.run("editor", "Read 404.", actor=ALICE)).output == "There is none."
    ((call_id, text),) = tool_results(server.requests[-1])
    assert call_id == "a"
    if model == MESSAGES:
        (result,) = server.requests[-1].body["messages"][-1]["content"]
        assert (result["is_error"], text) == (True, "There is no such page.")
    else:
        assert json.loads(text) == {"error": "There is no such page."}


@pytest.mark.parametrize("provider_id", ["", "same"])
@pytest.mark.parametrize("model", [CHAT, MESSAGES])
async def test_ids_that_lack_or_repeat_within_a_turn(
    server: ModelServer, tmp_path: Path, model: str, provider_id: str
) -> None:
    calls = [(provider_id, "read_page", f'{{"page_id": {page}}}') for page in (1, 2)]
    server.respond = playing([Turn(calls=calls), Turn("Read.")])
    async with runtime(tmp_path / "runs.db", model) as opened:
        assert (await opened.run("editor", "Read both.", actor=ALICE)).output == "Read."
    results = tool_results(server.requests[-1])
    assert [text for _, text in results] == ["This is page 1.", "This is page 2."]
    (said,) = assistant_messages(server.requests[-1])
    theirs = said["tool_calls"] if model == CHAT else said["content"]
    assert [call["id"] for call in theirs] == [call_id for call_id, _ in results]
    assert all(call["id"] for call in theirs)


@pytest.mark.parametrize("model", [CHAT, RESPONSES, MESSAGES])
async def test_tools_are_offered_with_their_schemas_as_they_are(server: ModelServer, model: str) -> None:
    server.respond = playing([Turn("Hello.")])
    offered = runtime("sqlite://", model)
    async with offered:
        await offered.run("editor", "Hello?", actor=ALICE)
    body = server.requests[-1].body
    told = [tool.get("function", tool) for tool in body["tools"]]
    schema = told[0].get("parameters") or told[0]["input_schema"]
    assert [tool["name"] for tool in told] == ["read_page", "describe_page"]
    assert (told[0]["description"], schema) == ("Read a page.", read_page.spec.parameters)


@pytest.mark.parametrize("model", [CHAT, RESPONSES, MESSAGES])
async def test_a_closing_answer_is_asked_for_without_tools(server: ModelServer, tmp_path: Path, model: str) -> None:
    rounds = [Turn(calls=[(f"call_{n}", "read_page", '{"page_id": 1}')]) for n in range(4)]
    server.respond = playing([*rounds, Turn("That is all.")])
    async with runtime(tmp_path / "runs.db", model) as opened:
        assert (await opened.run("editor", "Read on.", actor=ALICE)).output == "That is all."
    closing = server.requests[-1].body
    if model == MESSAGES:  # which refuses a transcript with calls where no tool is declared
        assert [tool["name"] for tool in closing["tools"]] == ["read_page"]
        assert closing["tool_choice"] == {"type": "none"}
    else:
        assert not closing.get("tools")


# -- what another model said


@pytest.mark.parametrize("model", [CHAT, RESPONSES, MESSAGES])
async def test_what_another_adapter_said_is_written_anew(server: ModelServer, model: str) -> None:
    """Whose ids may lack or repeat: Byline's own stand for them."""
    one, two = UUID(int=1), UUID(int=2)
    first = AssistantMessage(ModelAnswer("I read.", (ModelCall("read_page", '{"page_id": 1}', "x"),)), (one,))
    second = AssistantMessage(ModelAnswer("", (ModelCall("read_page", '{"page_id": 2}', "x"),)), (two,))
    said = (
        UserMessage("Read both."),
        first,
        ToolMessage(one, "read_page", "One."),
        second,
        ToolMessage(two, "read_page", "Two."),
    )
    server.respond = playing([Turn("Read.")])
    await PydanticAiModel(model).answer(ModelRequest("", said, ()))
    results = tool_results(server.requests[-1])
    assert results == [(one.hex, "One."), (two.hex, "Two.")]
    spoken = assistant_messages(server.requests[-1])
    assert len(spoken) == 2
    assert "I read." in json.dumps(spoken[0])
    assert one.hex in json.dumps(spoken[0])
