"""No key and no word of a conversation in a log, a step, an error or a repr; at DEBUG, with all libraries talking."""

import logging
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.responses import JSONResponse, Response

from byline import Decision, ModelError, ModelRequest, PydanticAiModel, RunStatus, UserMessage
from examples.model_server.server import ModelServer
from tests.providers.conftest import KEY
from tests.providers.stage import ALICE, BOB, BrokenOff, Turn, always, playing, runtime

PROMPT = "marker-Wq3-the-prompt"
SAID = "marker-Wq3-the-answer"
MODELS = ["openai-chat:local", "openai:gpt-5", "anthropic:local", "anthropic:claude-opus-4-8"]
ECHO = f"You sent {PROMPT} with the key {KEY}."

ECHOES: dict[str, Callable[[], Response]] = {
    "401": lambda: JSONResponse({"error": {"message": ECHO, "type": "authentication_error", "code": KEY}}, 401),
    "400": lambda: JSONResponse({"error": {"message": ECHO, "type": "invalid_request_error", "code": PROMPT}}, 400),
    "429": lambda: JSONResponse({"error": {"message": ECHO, "type": "rate_limit_error"}}, 429),
    "500": lambda: Response(ECHO, 500),
    "200 of no JSON": lambda: Response(ECHO, media_type="application/json"),
    "200 of text": lambda: Response(ECHO, media_type="text/plain"),
    "200 of another shape": lambda: JSONResponse(
        {"choices": [{"message": ECHO}], "content": ECHO, "output": [{"type": "message", "content": ECHO}]}
    ),
    "broken off": BrokenOff,
}


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """Everything that is logged at DEBUG, by anybody, with tracebacks."""
    caplog.set_level(logging.DEBUG)
    for name in ("openai", "anthropic", "httpx", "httpx2", "httpcore", "httpcore2", "pydantic_ai"):
        caplog.set_level(logging.DEBUG, name)
    formatter = logging.Formatter("%(name)s %(message)s")
    return lambda: "\n".join(f"{formatter.format(record)} {record.__dict__}" for record in caplog.records)


def bytes_of(store: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(store.parent.iterdir()) if path.name.startswith(store.name))


@pytest.mark.promise("P23")
@pytest.mark.parametrize("model", MODELS)
async def test_a_whole_run(server: ModelServer, tmp_path: Path, model: str, logged: Callable[[], str]) -> None:
    arguments = f'{{"page_id": 42, "description": "{SAID}"}}'
    server.respond = playing([Turn(SAID, [("call_0", "describe_page", arguments)], thinking=SAID), Turn(SAID)])
    store = tmp_path / "runs.db"
    async with runtime(store, model) as opened:
        run = await opened.run("editor", PROMPT, actor=ALICE)
        assert run.pending is not None
        during = bytes_of(store)
        run = await opened.decide(run.run_id, Decision.approve(run.pending.digest), actor=BOB)
        assert (run.status, run.output) == (RunStatus.COMPLETED, SAID)
        steps = repr(await opened.list_steps(run.run_id))
    assert len(server.requests) == 2
    assert KEY in str(server.requests[0].headers)  # so it was there to leak
    for place in (logged(), steps, repr(opened), during.decode("latin-1"), bytes_of(store).decode("latin-1")):
        assert [secret for secret in (KEY, PROMPT, SAID) if secret in place] == []


@pytest.mark.promise("P23")
@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("model", MODELS)
async def test_a_provider_that_tells_all(
    server: ModelServer, tmp_path: Path, model: str, echo: str, logged: Callable[[], str]
) -> None:
    server.respond = always(ECHOES[echo]())
    store = tmp_path / "runs.db"
    async with runtime(store, model) as opened:
        run = await opened.run("editor", PROMPT, actor=ALICE)
        assert run.status is RunStatus.DEAD_LETTER
        steps = await opened.list_steps(run.run_id)
    assert KEY not in repr(steps)  # not even in what is sealed
    open_facts = repr([step.payload for step in steps])
    for place in (logged(), open_facts, bytes_of(store).decode("latin-1")):
        assert [secret for secret in (KEY, PROMPT) if secret in place] == []


# Pydantic AI reads nothing out of the other shape of OpenAI's responses, and raises nothing: that is an empty answer.
@pytest.mark.promise("P23")
@pytest.mark.parametrize(
    "model, echo",
    [(model, echo) for model in MODELS for echo in ECHOES if (model, echo) != ("openai:gpt-5", "200 of another shape")],
)
async def test_an_error_says_nothing_of_it(server: ModelServer, model: str, echo: str) -> None:
    server.respond = always(ECHOES[echo]())
    with pytest.raises(ModelError) as caught:
        await PydanticAiModel(model).answer(ModelRequest("", (UserMessage(PROMPT),), ()))
    error = caught.value
    assert (error.__cause__, error.__context__) == (None, None)
    for place in (str(error), repr(error), "".join(traceback.format_exception(error))):
        assert [secret for secret in (KEY, PROMPT) if secret in place] == []
    assert KEY not in (error.detail or "")


@pytest.mark.promise("P23")
def test_a_repr_shows_no_settings() -> None:
    model = PydanticAiModel("openai:gpt-5", settings={"extra_headers": {"x-api-key": KEY}})
    assert repr(model) == "PydanticAiModel('openai:gpt-5')"
