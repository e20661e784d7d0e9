"""A local model server for each module, and an environment that leads to it and to nothing else."""

from collections.abc import Iterator

import pytest
from starlette.responses import Response

from examples.model_server.server import ModelServer
from tests.providers.stage import always

KEY = "sk-marker-Zq7-key-of-the-tests"


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[ModelServer, str]]:
    server = ModelServer(always(Response(status_code=418)))
    with server.serving() as address:
        yield server, address


@pytest.fixture
def server(served: tuple[ModelServer, str], monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    server, address = served
    server.requests.clear()
    monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", address)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    return server
