"""Every Python block in README.md and docs/ runs, in order, one namespace a document.

Blocks may `await` at top level, as in `python -m asyncio`. They run in an empty folder. A shell block is a
transcript: its first line begins with `$ `, and it is not run.
"""

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sybil import Example, Sybil
from sybil.document import Document
from sybil.parsers.markdown import CodeBlockParser

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCUMENTS = [README, *sorted((ROOT / "docs").rglob("*.md"))]
SHELLS = {"bash", "console", "sh", "shell", "shell-session", "zsh"}


class Runner:
    """Runs the blocks of one document on one event loop."""

    def __init__(self, loop: asyncio.Runner) -> None:
        self.loop = loop

    def __call__(self, example: Example) -> None:
        # The blank lines make the line numbers of a traceback those of the document.
        source = "\n" * (example.line + example.parsed.line_offset) + example.parsed
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(source, example.path, "exec", flags=flags, dont_inherit=True)
        returned: object = eval(code, example.namespace)  # noqa: S307 - the block to be run is the project's own
        if inspect.iscoroutine(returned):
            self.loop.run(returned)


def parse(path: Path, loop: asyncio.Runner) -> Document:
    sybil = Sybil(parsers=[CodeBlockParser("python", Runner(loop))], path=str(ROOT))
    return sybil.parse(path)


def fences(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, language and first line of every fenced block."""
    opened: str | None = None
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        fence = re.match(r"\s*(?:>\s*)?(`{3,}|~{3,})\s*([^\s`{]*)", line)
        if fence is None:
            continue
        if opened is None:
            opened = fence[1]
            yield number, fence[2], lines[number].strip() if number < len(lines) else ""
        elif fence[1].startswith(opened) and not fence[2]:
            opened = None


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_every_python_block_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with asyncio.Runner() as loop:
        examples = list(parse(path, loop).examples())
        written = [number for number, language, _ in fences(path.read_text("utf-8")) if language == "python"]
        assert [example.line for example in examples] == written, "a Python block was not found by the runner"
        for example in examples:
            example.evaluate()


def test_the_readme_shows_code_that_runs() -> None:
    assert README.exists(), "README.md is missing"
    languages = [language for _, language, _ in fences(README.read_text("utf-8"))]
    assert "python" in languages, "README.md shows no Python"


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_no_block_escapes_by_its_label(path: Path) -> None:
    for number, language, first in fences(path.read_text("utf-8")):
        where = f"{named(path)}:{number}"
        if language.lower().startswith("py"):
            assert language == "python", f"{where}: label it `python`, so that it runs, not {language!r}"
        if language.lower() in SHELLS:
            assert first.startswith("$ "), f"{where}: a shell block is not run; show it as a transcript, `$ command`"
