"""The table of decisions names every page, with its title and its status."""

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "adr"
TEMPLATE = "0000-template.md"
ROW = re.compile(r"^\| \[(\d{4})\]\((\d{4}-[a-z0-9-]+\.md)\) \| (.+?) \| (\w+).*\|$", re.MULTILINE)
HEADING = re.compile(r"\A# (\d+)[.:] (.+)$", re.MULTILINE)
STATUS = re.compile(r"\bStatus: (\w+)")


def page(path: Path) -> tuple[str, str, str, str]:
    """Number, file, title and status of a page."""
    text = path.read_text("utf-8")
    heading, status = HEADING.search(text), STATUS.search(text)
    assert heading, f"{path.name} does not begin with `# 1. A decision`"
    assert status, f"{path.name} names no status"
    return f"{int(heading[1]):04}", path.name, heading[2], status[1]


def test_the_table_lists_every_page_and_no_other() -> None:
    pages = [page(path) for path in sorted(FOLDER.glob("[0-9]*.md")) if path.name != TEMPLATE]
    assert pages
    assert ROW.findall((FOLDER / "README.md").read_text("utf-8")) == pages


def test_a_page_bears_its_number_once() -> None:
    numbers = [(name[:4], number) for number, name, *_ in map(page, FOLDER.glob("[0-9]*.md"))]
    assert [pair for pair in numbers if pair[0] != pair[1]] == []
    assert len(numbers) == len(set(numbers))
