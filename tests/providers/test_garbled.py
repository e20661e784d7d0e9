"""A provider whose reply is garbled: it is no answer, and neither the run nor a later request is harmed by it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from byline import ModelError, ModelRateLimited, ModelRequest, ModelUnavailable, PydanticAiModel, RunStatus, UserMessage
from examples.model_server.messages import events
from examples.model_server.server import ModelServer, message_response
from tests.providers.conftest import KEY
from tests.providers.stage import (
    ALICE,
    BODIES,
    Turn,
    always,
    assistant_messages,
    messages_body,
    playing,
    runtime,
    tool_results,
)

CHAT, RESPONSES, MESSAGES, STREAMED = (
    "openai-chat:local",
    "openai:gpt-5",
    "anthropic:local",
    "anthropic:claude-opus-4-8",
)
PATHS = {RESPONSES: "/v1/responses", MESSAGES: "/v1/messages", STREAMED: "/v1/messages"}
PROMPT = "marker-Wq3-the-prompt"
QUESTION = ModelRequest("", (UserMessage(PROMPT),), ())
READ = Turn(calls=[("call_0", "read_page", '{"page_id": 1}')])


async def failure_of(model: str) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await PydanticAiModel(model).answer(QUESTION)
    return caught.value


def raw(body: str) -> Response:
    return Response(body, media_type="application/json")


# -- what an error says of itself

CODES: dict[str, tuple[object, object]] = {
    "a number": ("BadRequestError", 400),
    "two numbers": (5, 9.5),
    "objects": (["a"], {"b": PROMPT}),
    "nothing": (None, None),
    "yes": (True, False),
}


@pytest.mark.promise("P23")
@pytest.mark.parametrize("codes", CODES)
@pytest.mark.parametrize("model", [CHAT, RESPONSES, MESSAGES, STREAMED])
async def test_an_errors_code_is_of_any_type(server: ModelServer, model: str, codes: str) -> None:
    kind, code = CODES[codes]
    said = {"message": f"{PROMPT} {KEY}", "type": kind, "param": None, "code": code}
    server.respond = always(JSONResponse({"error": said, **said}, 429))
    error = await failure_of(model)
    assert type(error) is ModelRateLimited
    assert "HTTP 429" in str(error)
    assert (error.__cause__, error.__context__) == (None, None)
    assert [secret for secret in (KEY, PROMPT) if secret in str(error) + repr(error)] == []
    assert KEY not in (error.detail or "")


# -- replies of other types than the protocol says


def edited(model: str, **fields: object) -> Response:
    """A call whose own fields are others."""
    body: Any = BODIES[PATHS[model]](READ)
    call = body["output"][0] if model == RESPONSES else body["content"][0]
    call.update(fields)
    return message_response(body, stream=True) if model == STREAMED else raw(json.dumps(body))


ODD: dict[str, tuple[str, Callable[[], Response]]] = {
    "OpenAI's id is null": (RESPONSES, lambda: edited(RESPONSES, call_id=None)),
    "OpenAI's id is a number": (RESPONSES, lambda: edited(RESPONSES, call_id=7)),
    "OpenAI's name is null": (RESPONSES, lambda: edited(RESPONSES, name=None)),
    "OpenAI's arguments are a list": (RESPONSES, lambda: edited(RESPONSES, arguments=[1])),
    "OpenAI's arguments are a number": (RESPONSES, lambda: edited(RESPONSES, arguments=5)),
    "OpenAI's id is no Unicode": (RESPONSES, lambda: edited(RESPONSES, call_id="a\ud800")),
    "Anthropic's id is null": (MESSAGES, lambda: edited(MESSAGES, id=None)),
    "Anthropic's input is a list": (MESSAGES, lambda: edited(MESSAGES, input=[1])),
    "Anthropic's input is no Unicode": (MESSAGES, lambda: edited(MESSAGES, input={"note": "a\ud800"})),
    "Anthropic's input is deep": (MESSAGES, lambda: raw(with_input("[" * 500 + "]" * 500))),
    "Anthropic's input is deeper": (MESSAGES, lambda: raw(with_input("[" * 100_000 + "]" * 100_000))),
    "Anthropic's input is a long number": (MESSAGES, lambda: raw(with_input("9" * 5_000))),
    "Anthropic's input is an endless number": (MESSAGES, lambda: raw(with_input("1e400"))),
    "Anthropic's stream has an id that is a number": (STREAMED, lambda: edited(STREAMED, id=7)),
}


def with_input(value: str) -> str:
    """A call with a value written as JSON, which Python may not be able to write."""
    return json.dumps(messages_body(READ)).replace('{"page_id": 1}', f'{{"page_id": {value}}}')


@pytest.mark.promise("P19")
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # the library's own, as it counts tokens
@pytest.mark.parametrize("odd", ODD)
async def test_what_cannot_be_given_back_is_no_answer(server: ModelServer, tmp_path: Path, odd: str) -> None:
    """It is not taken for one: a turn of it could be approved, and then nobody could ever go on with the run."""
    model, make = ODD[odd]
    server.respond = always(make())
    error = await failure_of(model)
    assert (type(error), error.retryable) == (ModelUnavailable, True)
    assert (error.__cause__, error.__context__) == (None, None)

    server.respond = playing([make(), Turn("Read.")])
    async with runtime(tmp_path / "runs.db", model) as opened:
        run = await opened.run("editor", "Read page 1.", actor=ALICE)
        if run.status is RunStatus.DEAD_LETTER:
            run = await opened.retry(run.run_id)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Read.")
    assert tool_results(server.requests[-1]) == []


@pytest.mark.promise("P12")
@pytest.mark.parametrize("number", ["NaN", "1e400", "-Infinity"])
async def test_a_number_that_json_does_not_know_ends_no_run(server: ModelServer, tmp_path: Path, number: str) -> None:
    """Where a stream brings the arguments as text, the model reads that they were wrong, and the run goes on."""
    body = messages_body(Turn("Go.", calls=[("call_0", "read_page", "{}")]))
    stream = "".join(events(body)).replace('"{}"', json.dumps(f'{{"page_id": {number}}}'))
    server.respond = playing([Response(stream, media_type="text/event-stream"), Turn("Read.")])
    async with runtime(tmp_path / "runs.db", STREAMED) as opened:
        run = await opened.run("editor", "Read.", actor=ALICE)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Read.")
    ((call_id, text),) = tool_results(server.requests[-1])
    assert (call_id, "Not executed" in text) == ("call_0", True)
    (said,) = assistant_messages(server.requests[-1])
    assert number in said["content"][1]["input"]["INVALID_JSON"]
