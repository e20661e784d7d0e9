"""What the site is made of: real prose in two languages, with the gaps that agents are asked to fill."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

CONTENT = Path(__file__).resolve().parents[2] / "examples" / "newsroom" / "content"
SECTION = re.compile(r"^--- column: (main|aside)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Written:
    title: str
    parent: str
    description: str
    position: int
    columns: tuple[str, ...]
    prose: tuple[str, ...]


def read(path: Path) -> Written:
    before, front, body = path.read_text("utf-8").split("+++\n", 2)
    assert before == "", f"{path} does not begin with its front matter"
    fields = tomllib.loads(front)
    assert set(fields) == {"title", "parent", "description", "position"}, path
    lead, *rest = SECTION.split(body)
    assert lead.strip() == "", f"{path} has text before its first column"
    prose = tuple(block.strip() for block in rest[1::2])
    return Written(
        str(fields["title"]),
        str(fields["parent"]),
        str(fields["description"]),
        int(fields["position"]),
        tuple(rest[0::2]),
        prose,
    )


def pages(language: str) -> dict[str, Written]:
    return {path.stem: read(path) for path in sorted((CONTENT / language).glob("*.md"))}


ENGLISH, GERMAN = pages("en"), pages("de")
ALL = [*ENGLISH.values(), *GERMAN.values()]


def test_there_are_some_thirty_pages_and_most_are_translated() -> None:
    assert 30 <= len(ENGLISH) <= 40
    assert len(ENGLISH) / 2 <= len(GERMAN) < len(ENGLISH)


def test_every_page_reads_as_a_page() -> None:
    lengths = {page.title: len(" ".join(page.prose).split()) for page in ALL}
    assert {title: words for title, words in lengths.items() if not 80 <= words <= 250} == {}
    assert [page.title for page in ALL if "main" not in page.columns or not all(page.prose)] == []


def test_the_pages_are_one_tree_in_each_language() -> None:
    for language in (ENGLISH, GERMAN):
        assert [slug for slug, page in language.items() if not page.parent] == ["home"]
        assert {page.parent for page in language.values()} - {""} <= set(language)
        places = [(page.parent, page.position) for page in language.values()]
        assert len(places) == len(set(places))


def test_a_translation_hangs_where_its_page_does() -> None:
    assert set(GERMAN) <= set(ENGLISH)
    for slug, page in GERMAN.items():
        original = ENGLISH[slug]
        assert (page.parent, page.position, page.columns[0]) == (original.parent, original.position, "main")


def test_something_is_left_for_agents() -> None:
    for language in (ENGLISH, GERMAN):
        empty = [slug for slug, page in language.items() if not page.description]
        assert 5 <= len(empty) < len(language)
        assert all(len(page.description) <= 160 for page in language.values())


def test_nothing_leads_outside() -> None:
    text = "\n".join(path.read_text("utf-8") for path in CONTENT.rglob("*.*"))
    assert re.findall(r"https?:|www\.|\]\(|<\w+|@\w", text) == []


def test_every_picture_is_shown_somewhere_and_some_lack_their_alternative_text() -> None:
    files = tomllib.loads((CONTENT / "files.toml").read_text("utf-8"))["file"]
    assert len({file["name"] for file in files}) == len(files)
    assert {file["page"] for file in files} <= set(ENGLISH)
    assert all(file["width"] > 0 and file["height"] > 0 for file in files)
    assert 3 <= len([file for file in files if not file["alt"]]) < len(files)
