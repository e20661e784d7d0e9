"""The server: three protocols, one brain behind them, and every request recorded."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from byline import ModelAnswer, ModelRequest, OfferedTool
from examples.model_server import chat_completions, messages, responses

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
PROTOCOLS = {CHAT: chat_completions, RESPONSES: responses, MESSAGES: messages}

Brain: TypeAlias = Callable[[ModelRequest], Awaitable[ModelAnswer]]
"""Who answers: a model's `answer`."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it came. `gone` returns once whoever asked has closed the connection."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    gone: Callable[[], Awaitable[None]] = field(compare=False, repr=False)


Respond: TypeAlias = Callable[[Recorded], Response | Awaitable[Response]]


def saying(brain: Brain) -> Respond:
    """Answer in the protocol of the path, with what the brain says."""

    async def respond(request: Recorded) -> Response:
        body = request.body
        model = str(body.get("model"))
        protocol = PROTOCOLS[request.path]
        transcript, offered = protocol.read(body)
        tools = tuple(OfferedTool(name, "", {}) for name in offered)
        answer = await brain(ModelRequest("", tuple(transcript.messages), tools))
        written = protocol.write(answer, transcript, model)
        if request.path == MESSAGES:
            return message_response(written, stream=bool(body.get("stream")))
        return JSONResponse(written)

    return respond


def message_response(message: dict[str, Any], *, stream: bool) -> Response:
    """Send an Anthropic message whole, or as the events of a stream."""
    if stream:
        return StreamingResponse(messages.events(message), media_type="text/event-stream")
    return JSONResponse(message)


class ModelServer:
    """Serves on this machine only.

    Args:
        respond: what is answered; may be exchanged while the server runs.
    """

    def __init__(self, respond: Respond) -> None:
        self.respond = respond
        self.requests: list[Recorded] = []
        self.address = ""
        self.app = Starlette(routes=[Route(path, self._take, methods=["POST"]) for path in PROTOCOLS])

    async def _take(self, request: Request) -> Response:

        async def gone() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                continue

        recorded = Recorded(request.url.path, dict(request.headers), json.loads(await request.body()), gone)
        self.requests.append(recorded)
        response = self.respond(recorded)
        return await response if isinstance(response, Awaitable) else response

    def config(self, port: int) -> uvicorn.Config:
        """How it is served."""
        return uvicorn.Config(self.app, host="127.0.0.1", port=port, log_level="critical", lifespan="off")

    @contextmanager
    def serving(self) -> Generator[str, None, None]:
        """Serve on a thread, on a port that is free. Gives the server's address, such as `http://127.0.0.1:8123`."""
        config = self.config(0)
        server = _Server(config)
        with config.bind_socket() as socket:
            port = socket.getsockname()[1]
            thread = threading.Thread(target=asyncio.run, args=(server.serve([socket]),), name="model-server")
            thread.start()
            try:
                server.up.wait(10)
                self.address = f"http://127.0.0.1:{port}"
                yield self.address
            finally:
                server.should_exit = server.force_exit = True
                thread.join()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()
