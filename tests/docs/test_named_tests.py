"""Tests that the documentation names are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
DOCUMENTS = sorted(path for path in (ROOT / "docs").rglob("*.md") if NAMED.search(path.read_text("utf-8")))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_they_are_there(path: Path) -> None:
    for file, name in NAMED.findall(path.read_text("utf-8")):
        text = (ROOT / file).read_text("utf-8")
        assert name in ("", *re.findall(r"def (test_\w+)\(", text)), f"{file} has no {name}"


def test_some_are_named() -> None:
    assert ROOT / "docs" / "what-can-run-twice.md" in DOCUMENTS
