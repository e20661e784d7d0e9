"""What the command line's tests share: a host, and commands in this process."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from byline.cli.app import app
from tests.host import Host


@dataclass(frozen=True, slots=True)
class Said:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    def json(self) -> list[dict[str, Any]]:
        """The JSON lines on stdout; anything else there is an error."""
        return [json.loads(line) for line in self.out.splitlines()]


Command = Callable[..., Said]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    path = tmp_path / "host.db"
    monkeypatch.setenv("PROGRAM_HOST", str(path))
    monkeypatch.setenv("BYLINE_APP", "tests.cli.program:runtime")
    monkeypatch.delenv("COLUMNS", raising=False)
    return Host(path)


@pytest.fixture
def command(host: Host) -> Command:
    def run(*arguments: str) -> Said:
        result = CliRunner().invoke(app, list(arguments))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    return run
