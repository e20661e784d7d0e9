"""The README's script and its further pieces as a reader saves them, and its transcripts as the demo prints them."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
RUN = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CLOCK = re.compile(r"\b\d\d:\d\d:\d\d\b")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCRIPT, SYNCHRONOUS = "## One write, from prompt to announcement", "## From synchronous code"


def block_behind(words: str, language: str) -> str:
    """The first block of a language behind some words of the README."""
    found = re.search(rf"^```{language}\n(.*?)^```$", README[README.index(words) :], re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def neutral(text: str) -> list[str]:
    """Lines without what differs from run to run."""
    return [CLOCK.sub("TIME", RUN.sub("RUN", line)).rstrip() for line in text.splitlines()]


def run(*command: str, cwd: Path) -> str:
    environment = {**os.environ, "COLUMNS": "80"}
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_the_script_runs_as_printed_and_leaves_nothing_behind(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(block_behind(SCRIPT, "python"), "utf-8")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert neutral(run(str(script), cwd=empty)) == neutral(block_behind("It prints", "text"))
    assert list(empty.iterdir()) == []


def test_the_script_is_some_twenty_lines() -> None:
    lines = [line for line in block_behind(SCRIPT, "python").splitlines() if line and not line.startswith("    #")]
    code = [line for line in lines if not line.startswith(("import ", "from "))]
    assert len(code) <= 25


def test_the_further_pieces_go_inside_an_async_def(tmp_path: Path) -> None:
    found: list[str] = PYTHON.findall(README[: README.index(SYNCHRONOUS)])  # what follows is for no event loop
    first, *pieces = found
    assert len(pieces) > 3
    body = textwrap.indent("\n".join(pieces), "    ")
    quiet = "import logging\nlogging.disable()\n"  # a tool of theirs raises, and that is logged
    script = tmp_path / "pieces.py"
    script.write_text(f"{quiet}{first}\nasync def pieces():\n{body}\n\nasyncio.run(pieces())\n", "utf-8")
    printed = run(str(script), cwd=tmp_path).splitlines()
    foretold: list[str] = re.findall(r"print\(.*\)  # (.+)$", body, re.MULTILINE)
    assert foretold
    assert [line for line in foretold if line not in printed] == []


@pytest.mark.parametrize(
    "words, options",
    [("From `make demo ARGS=--yes`", ["--yes"]), ('And from `make demo ARGS="--crash', ["--crash", "--yes"])],
)
def test_what_the_demo_prints_is_what_the_readme_shows(words: str, options: list[str]) -> None:
    printed = neutral(run("-m", "examples.newsroom", *options, cwd=ROOT))
    behind = 0
    for part in re.split(r"^…$", block_behind(words, "text"), flags=re.MULTILINE):
        lines = [line for line in neutral(part) if line]
        places = [n for n in range(behind, len(printed)) if printed[n : n + len(lines)] == lines]
        assert places, f"the demo does not print this:\n{part}"
        behind = places[0] + len(lines)
