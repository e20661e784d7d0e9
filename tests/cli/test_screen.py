"""What is written to a terminal: as wide as it is, in colour only there, and nothing stored steers it."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byline.cli.screen import Column, Screen, Style, Styled, Words
from byline.cli.visible import cells, cut, visible, visible_json, wrap
from tests.cli import program
from tests.cli.conftest import Command
from tests.cli.terminal import terminal
from tests.host import ALICE, Host

STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


@given(st.text())
def test_visible_text_prints(text: str) -> None:
    assert visible(text).isprintable()
    assert visible_json(text).isprintable()


@given(st.text(), st.integers(8, 60))
def test_wrapping_loses_nothing_and_keeps_the_width(text: str, width: int) -> None:
    line = visible(text)
    assert "".join(wrap(line, width)).replace(" ", "") == line.replace(" ", "")
    assert all(cells(part) <= width for part in wrap(line, width))
    assert cells(cut(line, width)) <= width


@pytest.mark.parametrize("where", ["pipe", "terminal"])
def test_hostile_content_is_shown_and_never_sent(command: Command, host: Host, where: str) -> None:
    """A model's words, an argument, a preview: escape sequences, a carriage return, a turned direction."""
    with host.runtime(program.SCRIPTS["hostile"]).sync as runtime:
        run = runtime.run("editor", "See to page 42.", actor=ALICE)
    assert run.pending is not None
    said: list[str] = []
    for arguments in (["show", str(run.run_id)], ["runs"], ["steps", str(run.run_id)]):
        if where == "pipe":
            said.append(command(*arguments).out)
        else:
            with terminal(*arguments) as person:
                assert person.end() == 0
                said.append(re.sub(r"\x1b\[[0-9;]*m", "", person.shown))  # the colours are the screen's own
    yes = ["--yes", "--digest", run.pending.digest]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROGRAM_SCRIPT", "hostile")
        said.append(command("approve", str(run.run_id), *yes).out)
    assert "owned" in said[0]
    assert "\\u202e" in said[0]
    assert "owned" in said[-1]
    assert [STEERING.findall(text) for text in said] == [[], [], [], []]


def test_json_is_ascii_and_reads_back_whole(command: Command, host: Host) -> None:
    with host.runtime(program.SCRIPTS["hostile"]).sync as runtime:
        run = runtime.run("editor", "See to page 42.", actor=ALICE)
    said = command("show", str(run.run_id), "--json")
    assert said.out.isascii()
    assert STEERING.findall(said.out) == []
    assert said.json()[0]["pending"]["calls"][0]["arguments"]["description"] == program.HOSTILE


def test_colours_are_for_terminals_and_no_color_switches_them_off(command: Command, host: Host) -> None:
    with host.runtime(program.SCRIPTS["set"]).sync as runtime:
        runtime.run("editor", "See to page 42.", actor=ALICE)
    with terminal("runs") as person:
        assert person.end() == 0
        assert "\x1b[33mawaiting_approval\x1b[0m" in person.shown
    with terminal("runs", NO_COLOR="1") as person:
        assert person.end() == 0
        assert "awaiting_approval" in person.shown
        assert "\x1b" not in person.shown
    assert "\x1b" not in command("runs").out


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_table_is_no_wider_than_the_screen(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    rows: list[tuple[Words, ...]] = [
        ("42", Styled("waits", Style.WAITS), "long " * 50, "写" * 60),
        ("7", "done", "short", ""),
    ]
    Screen(stream).table((Column("ID"), Column("STATUS"), Column("WHAT", True), Column("MORE", True)), rows)
    lines = stream.getvalue().splitlines()
    assert max(map(cells, lines)) == columns
    assert lines[1].count("…") == 2


def test_nothing_is_cut_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    stream = io.StringIO()
    Screen(stream).table((Column("WHAT", flexible=True),), [("long " * 500,)])
    assert "…" not in stream.getvalue()
