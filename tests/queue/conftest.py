"""A vhost of RabbitMQ for each process of tests, a queue in it for each test, and workers that do not outlive it."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.host import Host
from tests.queue.line import Line, line_of, own_vhost


@pytest.fixture(scope="session")
def rabbitmq() -> Generator[str]:
    """The URL of a vhost."""
    with own_vhost() as url:
        yield url


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host.db")


@pytest.fixture(params=["celery", "taskiq"])
def line(host: Host, rabbitmq: str, request: pytest.FixtureRequest) -> Generator[Line]:
    with line_of(request.param, rabbitmq, host) as line:
        yield line
