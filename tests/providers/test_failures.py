"""Whatever a provider does instead of answering has one name, and says whether asking again may help."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from byline import (
    ContextTooLong,
    ModelAccessDenied,
    ModelError,
    ModelRateLimited,
    ModelRefused,
    ModelRequest,
    ModelUnavailable,
    ModelUnreachable,
    PydanticAiModel,
    RunStatus,
    StepKind,
    UserMessage,
)
from examples.model_server.server import ModelServer, Recorded
from tests.providers.stage import (
    ALICE,
    BrokenOff,
    Turn,
    always,
    chat_body,
    messages_body,
    playing,
    runtime,
    silent,
    until,
)

CHAT, RESPONSES, MESSAGES, STREAMED = (
    "openai-chat:local",
    "openai:gpt-5",
    "anthropic:local",
    "anthropic:claude-opus-4-8",
)
QUESTION = ModelRequest("", (UserMessage("How many pages are there?"),), ())


def openai_error(status: int, code: str | None, message: str = "No.", **headers: str) -> Response:
    error = {"message": message, "type": "some_error", "param": None, "code": code}
    return JSONResponse({"error": error}, status, headers)


def anthropic_error(status: int, kind: str, message: str = "No.", **headers: str) -> Response:
    return JSONResponse({"type": "error", "error": {"type": kind, "message": message}}, status, headers)


async def failure_of(model: str, *, patience: float = 60.0) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await PydanticAiModel(model, settings={"timeout": patience}).answer(QUESTION)
    return caught.value


OPENAI: dict[str, tuple[Callable[[], Response], type[ModelError]]] = {
    "rate limit": (lambda: openai_error(429, "rate_limit_exceeded"), ModelRateLimited),
    "spent": (lambda: openai_error(429, "insufficient_quota"), ModelAccessDenied),
    "server": (lambda: openai_error(500, None), ModelUnavailable),
    "gateway": (lambda: Response("<html>", 502), ModelUnavailable),
    "unavailable": (lambda: openai_error(503, None), ModelUnavailable),
    "timeout": (lambda: openai_error(408, None), ModelUnreachable),
    "conflict": (lambda: openai_error(409, None), ModelUnavailable),
    "no key": (lambda: openai_error(401, "invalid_api_key"), ModelAccessDenied),
    "forbidden": (lambda: openai_error(403, None), ModelAccessDenied),
    "too long": (lambda: openai_error(400, "context_length_exceeded"), ContextTooLong),
    "too large": (lambda: openai_error(413, None), ContextTooLong),
    "no model": (lambda: openai_error(404, "model_not_found"), ModelError),
    "bad request": (lambda: openai_error(400, "invalid_value"), ModelError),
    "no JSON": (lambda: Response("{half", media_type="application/json"), ModelUnavailable),
    "no JSON type": (lambda: Response("<html>", media_type="text/html"), ModelUnavailable),
    "broken off": (BrokenOff, ModelUnreachable),
}
ANTHROPIC: dict[str, tuple[Callable[[], Response], type[ModelError]]] = {
    "rate limit": (lambda: anthropic_error(429, "rate_limit_error"), ModelRateLimited),
    "spent": (lambda: anthropic_error(402, "billing_error"), ModelAccessDenied),
    "server": (lambda: anthropic_error(500, "api_error"), ModelUnavailable),
    "gateway": (lambda: Response("<html>", 502), ModelUnavailable),
    "overloaded": (lambda: anthropic_error(529, "overloaded_error"), ModelUnavailable),
    "no key": (lambda: anthropic_error(401, "authentication_error"), ModelAccessDenied),
    "forbidden": (lambda: anthropic_error(403, "permission_error"), ModelAccessDenied),
    "too long": (
        lambda: anthropic_error(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        ContextTooLong,
    ),
    "too large": (lambda: anthropic_error(413, "request_too_large"), ContextTooLong),
    "no model": (lambda: anthropic_error(404, "not_found_error"), ModelError),
    "bad request": (lambda: anthropic_error(400, "invalid_request_error"), ModelError),
    "no JSON": (lambda: Response("{half", media_type="application/json"), ModelUnavailable),
    "no JSON type": (lambda: Response("<html>", media_type="text/html"), ModelUnavailable),
    "broken off": (BrokenOff, ModelUnreachable),
}
RETRYABLE = {ModelRateLimited, ModelUnavailable, ModelUnreachable}


@pytest.mark.parametrize("fault", OPENAI)
@pytest.mark.parametrize("model", [CHAT, RESPONSES])
async def test_what_openai_does_instead(server: ModelServer, model: str, fault: str) -> None:
    make, expected = OPENAI[fault]
    server.respond = always(make())
    error = await failure_of(model)
    assert type(error) is expected
    assert error.retryable is (expected in RETRYABLE)
    assert len(server.requests) == 1  # one answer is one request


@pytest.mark.parametrize("fault", ANTHROPIC)
@pytest.mark.parametrize("model", [MESSAGES])
async def test_what_anthropic_does_instead(server: ModelServer, model: str, fault: str) -> None:
    make, expected = ANTHROPIC[fault]
    server.respond = always(make())
    error = await failure_of(model)
    assert type(error) is expected
    assert error.retryable is (expected in RETRYABLE)
    assert len(server.requests) == 1


@pytest.mark.parametrize("fault", ["overloaded", "too long", "rate limit", "broken off"])
async def test_a_stream_that_does_not_come(server: ModelServer, fault: str) -> None:
    make, expected = ANTHROPIC[fault]
    server.respond = always(make())
    assert type(await failure_of(STREAMED)) is expected


async def test_a_stream_that_breaks_off(server: ModelServer) -> None:
    event = 'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "No."}}\n\n'
    server.respond = always(Response(event, media_type="text/event-stream"))
    assert type(await failure_of(STREAMED)) is ModelUnavailable


@pytest.mark.parametrize("model", [CHAT, RESPONSES, MESSAGES])
async def test_a_limit_says_when_to_come_again(server: ModelServer, model: str) -> None:
    error = openai_error if model != MESSAGES else anthropic_error
    server.respond = always(error(429, "rate_limit_error", **{"retry-after": "7"}))
    assert (await failure_of(model)).retry_after == 7.0
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    server.respond = always(error(429, "rate_limit_error", **{"retry-after": date}))
    seconds = (await failure_of(model)).retry_after
    assert seconds is not None
    assert 60 < seconds <= 90
    server.respond = always(error(503, "overloaded_error", **{"retry-after": "3"}))
    assert (await failure_of(model)).retry_after == 3.0
    server.respond = always(error(429, "rate_limit_error", **{"retry-after": "soon"}))
    assert (await failure_of(model)).retry_after is None


REFUSALS: dict[str, tuple[str, dict[str, Any], str]] = {
    "refusal": (CHAT, {"message": {"role": "assistant", "content": None, "refusal": "I will not."}}, "stop"),
    "filter": (CHAT, {"message": {"role": "assistant", "content": ""}}, "content_filter"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_openai_refuses(server: ModelServer, refusal: str) -> None:
    model, choice, reason = REFUSALS[refusal]
    body = {**chat_body(Turn("x")), "choices": [{"index": 0, **choice, "finish_reason": reason}]}
    server.respond = always(JSONResponse(body))
    error = await failure_of(model)
    assert (type(error), error.retryable) == (ModelRefused, False)
    assert "I will not." not in str(error)


async def test_anthropic_refuses(server: ModelServer) -> None:
    server.respond = always(JSONResponse({**messages_body(Turn("I will not.")), "stop_reason": "refusal"}))
    error = await failure_of(MESSAGES)
    assert (type(error), error.retryable) == (ModelRefused, False)
    assert "I will not." not in str(error)


@pytest.mark.parametrize("model", [CHAT, RESPONSES, MESSAGES])
async def test_nobody_listens(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and it does not listen
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", address)
        monkeypatch.setenv("OPENAI_API_KEY", "local")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "local")
        error = await failure_of(model)
    assert (type(error), error.retryable) == (ModelUnreachable, True)


@pytest.mark.parametrize("model", [CHAT, RESPONSES, MESSAGES])
async def test_no_answer_in_the_settings_time(server: ModelServer, model: str) -> None:
    server.respond = silent()
    error = await failure_of(model, patience=0.2)
    assert (type(error), error.retryable) == (ModelUnreachable, True)


# -- through a run


@pytest.mark.promise("P23")
async def test_the_step_says_the_kind_and_nothing_of_the_words(server: ModelServer, tmp_path: Path) -> None:
    server.respond = always(openai_error(429, "rate_limit_exceeded", "You asked: How many pages are there?"))
    async with runtime(tmp_path / "runs.db", CHAT) as opened:
        run = await opened.run("editor", "How many pages are there?", actor=ALICE)
        assert run.status is RunStatus.DEAD_LETTER
        (failed,) = [step for step in await opened.list_steps(run.run_id) if step.kind is StepKind.MODEL]
        assert failed.payload == {"failed": "ModelRateLimited"}
        assert failed.detail is not None  # sealed: there the provider's words may stand
        assert "HTTP 429" in failed.detail
        assert "rate_limit_exceeded" in failed.detail

        server.respond = playing([Turn("Forty-two.")])
        assert (await opened.retry(run.run_id)).output == "Forty-two."


@pytest.mark.promise("P21")
@pytest.mark.parametrize("model, refused", [(CHAT, openai_error), (MESSAGES, anthropic_error)])
async def test_a_limit_is_waited_out(
    server: ModelServer, tmp_path: Path, model: str, refused: Callable[..., Response]
) -> None:
    """The provider says for how long; then the same run is asked about again, and answered."""
    asked: list[float] = []
    play = playing([refused(429, "rate_limit_error", "Later.", **{"retry-after": "1"}), Turn("Forty-two.")])

    def respond(request: Recorded) -> Response | Awaitable[Response]:
        asked.append(time.monotonic())
        return play(request)

    server.respond = respond
    async with runtime(tmp_path / "runs.db", model, max_model_failures=1) as opened:
        run = await opened.run("editor", "How many pages are there?", actor=ALICE)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Forty-two.")
    first, second = asked
    assert 1 <= second - first < 10


async def test_an_answer_past_the_agents_time_closes_the_connection(server: ModelServer, tmp_path: Path) -> None:
    gone = asyncio.Event()
    here = asyncio.get_running_loop()
    server.respond = silent(left=lambda: here.call_soon_threadsafe(gone.set))
    async with runtime(tmp_path / "runs.db", CHAT, model_timeout=0.3) as opened:
        run = await opened.run("editor", "Well?", actor=ALICE)
        assert run.status is RunStatus.DEAD_LETTER
        await until(gone.wait())
        (failed,) = [step for step in await opened.list_steps(run.run_id) if step.kind is StepKind.MODEL]
        assert failed.payload == {"failed": "ModelUnreachable"}


@pytest.mark.promise("P22")
@pytest.mark.parametrize("model", [CHAT, MESSAGES])
async def test_a_cancelled_run_closes_the_connection(server: ModelServer, tmp_path: Path, model: str) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()
    here = asyncio.get_running_loop()
    server.respond = silent(
        asked=lambda: here.call_soon_threadsafe(asked.set), left=lambda: here.call_soon_threadsafe(gone.set)
    )
    async with runtime(tmp_path / "runs.db", model) as opened:
        running = asyncio.create_task(opened.run("editor", "Well?", actor=ALICE))
        await until(asked.wait())
        (run,) = await opened.list_runs()
        assert (await opened.cancel(run.run_id, actor=ALICE)).status is RunStatus.CANCELLED
        await until(gone.wait())
        assert (await running).status is RunStatus.CANCELLED
