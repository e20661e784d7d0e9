"""What stands on the site on the first day: the pages in `content/`, its files, and the people who work there."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from examples.newsroom.models import (
    DEFAULT_LANGUAGE,
    STEP,
    Column,
    ContentElement,
    File,
    FileReference,
    Language,
    Page,
    Right,
    User,
)
from examples.newsroom.site import Site

CONTENT = Path(__file__).parent / "content"
EDITOR = "7"
"""Edits the section `SECTION` in both languages, and the files. Asks agents to do things."""
APPROVER = "8"
"""Edits everything in both languages, and the files. Decides what agents may write."""
TRANSLATOR = "9"
"""Edits everything in German."""
FORMER_EDITOR = "10"
"""Had the rights of the approver. The account is closed."""
SECTION_APPROVER = "11"
"""Decides what agents may write in the section `SECTION` in English, but not for the files."""

SECTION = "culture"
"""The slug of the page whose subtree the editor works on."""

_FENCE = "+++"
_BLOCK = re.compile(r"^--- column: (\w+)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A content element as a file has it."""

    column: Column
    heading: str
    body: str


@dataclass(frozen=True, slots=True)
class Article:
    """A page in one language as a file has it: `parent` is the slug of the page above, or empty."""

    slug: str
    language: Language
    title: str
    parent: str
    description: str
    position: int
    blocks: tuple[Block, ...]


def read_article(path: Path) -> Article:
    """Read `content/<lang>/<slug>.md`: TOML between `+++` lines, then blocks, each behind a line `--- column: NAME`.

    A block's first line may be its heading, `## …`.

    Raises:
        ValueError: the file is not made so.
    """
    head, fence, body = path.read_text("utf-8").removeprefix(f"{_FENCE}\n").partition(f"\n{_FENCE}\n")
    if not fence:
        raise ValueError(f"{path.name}: no front matter between lines {_FENCE}")
    facts = tomllib.loads(head)
    first, *more = _BLOCK.split(body)
    named = [("main", first), *zip(more[::2], more[1::2], strict=True)]
    return Article(
        slug=path.stem,
        language=Language(path.parent.name),
        title=facts["title"],
        parent=facts.get("parent", ""),
        description=facts.get("description", ""),
        position=facts.get("position", 0),
        blocks=tuple(_block(Column(column), text.strip()) for column, text in named if text.strip()),
    )


def build_site(path: Path, content: Path = CONTENT) -> Site:
    """Make the site's file."""
    site = Site(path)
    site.create_tables()
    with site.writing() as session:
        _add_pages(session, content)
        _add_files(session, content)
        _add_people(session)
    return site


def _block(column: Column, text: str) -> Block:
    heading, _, rest = text.partition("\n") if text.startswith("## ") else ("", "", text)
    return Block(column, heading.removeprefix("## ").strip(), rest.strip())


def _add_pages(session: Session, content: Path) -> None:
    articles = {
        language: {path.stem: read_article(path) for path in sorted((content / language).glob("*.md"))}
        for language in Language
    }
    pages = {slug: _page(article, slug) for slug, article in articles[DEFAULT_LANGUAGE].items()}
    for slug, article in articles[DEFAULT_LANGUAGE].items():
        pages[slug].parent = pages[article.parent] if article.parent else None
    ordered = sorted(pages.values(), key=lambda page: (len(page.line), page.position))
    for page in ordered:  # one by one, so that the ids are the same on every first day
        session.add(page)
        session.flush()
    for language in Language:
        if language is not DEFAULT_LANGUAGE:
            for page in ordered:
                if page.slug in articles[language]:
                    translation = _page(articles[language][page.slug], None)
                    translation.original = page
                    session.add(translation)
                    session.flush()


def _page(article: Article, slug: str | None) -> Page:
    return Page(
        language=article.language,
        slug=slug,
        position=article.position,
        title=article.title,
        description=article.description,
        hidden=False,
        elements=[
            ContentElement(column=b.column, position=n * STEP, heading=b.heading, body=b.body, hidden=False)
            for n, b in enumerate(article.blocks, 1)
        ],
    )


def _add_files(session: Session, content: Path) -> None:
    listed = content / "files.toml"
    files: list[dict[str, Any]] = tomllib.loads(listed.read_text("utf-8"))["file"] if listed.exists() else []
    for facts in files:
        file = File(name=facts["name"], alternative_text=facts["alt"], width=facts["width"], height=facts["height"])
        session.add(file)
        session.flush()
        shown_on = session.scalars(select(Page).where(Page.slug == facts.get("page"))).one_or_none()
        for page in [shown_on, *shown_on.translations] if shown_on else []:
            first = next(element for element in page.elements if element.column is Column.MAIN)
            session.add(FileReference(element=first, file=file))
            session.flush()


def _add_people(session: Session) -> None:
    tops = session.scalars(select(Page).where(Page.parent_id.is_(None), Page.translation_of.is_(None))).all()
    section = session.scalars(select(Page).where(Page.slug == SECTION)).all()

    def rights(pages: "list[Page]", *languages: Language) -> list[Right]:
        return [Right(page_id=page.id, language=language) for page in pages for language in languages]

    whole = list(tops)
    session.add_all(
        [
            User(id=EDITOR, edits_files=True, rights=rights(list(section), *Language)),
            User(id=APPROVER, approves=True, edits_files=True, rights=rights(whole, *Language)),
            User(id=TRANSLATOR, rights=rights(whole, Language.DE)),
            User(id=FORMER_EDITOR, disabled=True, approves=True, edits_files=True, rights=rights(whole, *Language)),
            User(id=SECTION_APPROVER, approves=True, rights=rights(list(section), Language.EN)),
        ]
    )
