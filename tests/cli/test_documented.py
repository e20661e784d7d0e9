"""docs/command-line.md tells the truth: its transcripts are played, and it leaves out no command and no exit code."""

from pathlib import Path

import pytest

from byline.cli.failing import ExitCode
from tests.cli.transcript import DOCUMENT, commands, play, structure


def test_the_documented_transcripts_are_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEWSROOM_USER", "8")
    document = DOCUMENT.read_text("utf-8")
    assert structure(play(document, tmp_path)) == structure(document)


def test_each_command_and_each_exit_code_is_documented() -> None:
    document = DOCUMENT.read_text("utf-8")
    deciding = {"approve", "deny", "reconcile", "cancel", "retry"}
    assert (
        commands(document) >= {"run", "runs", "show", "steps", "writes", "recover", "db", "keys", "doctor"} | deciding
    )
    assert [code for code in ExitCode if f"| {code.value} |" not in document] == []
