"""Reading: the tree of pages, one page, a search, a record's history. What is closed to somebody is not there."""

import json
from collections.abc import Iterator
from enum import StrEnum

from sqlalchemy import or_, select

from byline import ToolContext, ToolEffect, ToolResult, tool
from examples.newsroom.models import (
    DEFAULT_LANGUAGE,
    Column,
    ContentElement,
    File,
    FileReference,
    HistoryEntry,
    Language,
    Page,
)
from examples.newsroom.tools.desk import Desk, reading
from examples.newsroom.tools.texts import Id, Words
from examples.newsroom.tools.writing import reference

MOST_FOUND = 20
"""Most results of one search, and most entries of one history."""


class Table(StrEnum):
    """What has a history."""

    PAGES = "pages"
    CONTENT_ELEMENTS = "content_elements"
    FILES = "files"
    FILE_REFERENCES = "file_references"


@tool(effect=ToolEffect.READ_ONLY, timeout=15)
def read_page_tree(context: ToolContext, language: Language = DEFAULT_LANGUAGE) -> ToolResult:
    """Read the tree of all pages: their ids, titles and versions.

    Args:
        language: The language. A page that is not translated to it is named in English, and said to be so.
    """
    with reading(context) as desk:
        tops = select(Page).where(Page.parent_id.is_(None), Page.translation_of.is_(None)).order_by(Page.position)
        lines = [line for top in desk.session.scalars(tops) for line in _tree(desk, top, language, 0)]
    return ToolResult.text("\n".join(lines) or "There are no pages.")


@tool(effect=ToolEffect.READ_ONLY, timeout=15)
def read_page(context: ToolContext, page_id: Id) -> ToolResult:
    """Read one page: its title, its description, and its content elements with their texts and files.

    Args:
        page_id: The page to read. A translation is a page of its own.
    """
    with reading(context) as desk:
        page = desk.to_read(Page, page_id)
        others = [other for other in (page.source, *page.source.translations) if other is not page]
        lines = [
            _headline(page),
            f"title: {page.title}",
            f"description: {page.description or '(none)'}",
            "other languages: "
            + (", ".join(f"pages:{o.id} ({o.language})" for o in desk.readable(others)) or "(none)"),
        ]
        for column in Column:
            lines += ["", f"column {column}:"]
            for element in desk.readable(e for e in page.elements if e.column is column):
                lines += ["", *_element(element)]
    return ToolResult.text("\n".join(lines))


@tool(effect=ToolEffect.READ_ONLY, timeout=15)
def search(context: ToolContext, words: Words) -> ToolResult:
    """Search pages, content elements and files for words that stand beside each other. It finds 20 at most.

    Args:
        words: What to look for, 2 to 80 characters. Large and small letters are the same.
    """
    with reading(context) as desk:
        found = [line for kind in (_pages, _elements, _files) for line in kind(desk, words)]
    return ToolResult.text("\n".join(found[:MOST_FOUND]) or "Nothing was found.")


@tool(effect=ToolEffect.READ_ONLY, timeout=15)
def read_history(context: ToolContext, table: Table, uid: Id) -> ToolResult:
    """Read what was changed in one record, the latest change first, 20 at most. It takes the right to edit the record.

    Args:
        table: The record's table.
        uid: The record's id.
    """
    with reading(context) as desk:
        _to_edit(desk, table, uid)
        entries = desk.session.scalars(
            select(HistoryEntry)
            .where(HistoryEntry.record_table == table, HistoryEntry.record_uid == uid)
            .order_by(HistoryEntry.id.desc())
            .limit(MOST_FOUND)
        )
        lines = [_change(entry) for entry in entries]
    return ToolResult.text("\n".join(lines) or "Nothing was changed since the first day.")


def _tree(desk: Desk, page: Page, language: Language, depth: int) -> Iterator[str]:
    shown = page.in_language(language)
    if shown is not None and desk.may_read(shown):
        yield f"{'  ' * depth}{_headline(shown)}: {shown.title}"
    elif desk.may_read(page):
        yield f"{'  ' * depth}{_headline(page)}: {page.title} (not translated)"
    for child in page.children:
        yield from _tree(desk, child, language, depth + 1)


def _headline(record: Page | ContentElement) -> str:
    language = f" ({record.language})" if isinstance(record, Page) else f", position {record.position}"
    return f"{reference(record)}{language}, version {record.version}{', hidden' if record.hidden else ''}"


def _element(element: ContentElement) -> Iterator[str]:
    yield _headline(element)
    if element.heading:
        yield f"## {element.heading}"
    yield element.body
    for shown in element.references:
        yield f"{reference(shown)} shows {_file(shown.file)}: {shown.shown_text or '(no alternative text)'}"


def _file(file: File) -> str:
    return f"{reference(file)} “{file.name}”, version {file.version}"


def _pages(desk: Desk, words: str) -> Iterator[str]:
    found = or_(Page.title.icontains(words, autoescape=True), Page.description.icontains(words, autoescape=True))
    for page in desk.readable(desk.session.scalars(select(Page).where(found).order_by(Page.id))):
        yield f"{_headline(page)}: {page.title}"


def _elements(desk: Desk, words: str) -> Iterator[str]:
    texts = (ContentElement.heading, ContentElement.body)
    found = or_(*(text.icontains(words, autoescape=True) for text in texts))
    for element in desk.readable(desk.session.scalars(select(ContentElement).where(found).order_by(ContentElement.id))):
        yield f"{_headline(element)}, on pages:{element.page.id}: {_around(words, element)}"


def _files(desk: Desk, words: str) -> Iterator[str]:
    found = or_(File.name.icontains(words, autoescape=True), File.alternative_text.icontains(words, autoescape=True))
    for file in desk.readable(desk.session.scalars(select(File).where(found).order_by(File.id))):
        yield f"{_file(file)}: {file.alternative_text or '(no alternative text)'}"


def _around(words: str, element: ContentElement) -> str:
    """Cut the words out of a text, with a few of their neighbours."""
    text = f"{element.heading} {element.body}".replace("\n", " ").strip()
    at = max(text.lower().find(words.lower()), 0)
    return f"… {text[max(at - 40, 0) : at + len(words) + 40]} …"


def _to_edit(desk: Desk, table: Table, uid: int) -> None:
    match table:
        case Table.PAGES:
            desk.to_edit(Page, uid)
        case Table.CONTENT_ELEMENTS:
            desk.to_edit(ContentElement, uid)
        case Table.FILES:
            desk.to_edit(File, uid)
        case Table.FILE_REFERENCES:
            desk.to_edit(FileReference, uid)


def _change(entry: HistoryEntry) -> str:
    """Say what changed and when, and whether an agent did it; not who."""
    who = "somebody" if entry.run is None else f"an agent in run {entry.run}"
    before = "nothing" if entry.before is None else json.dumps(entry.before, ensure_ascii=False)
    return f"{entry.at:%Y-%m-%d %H:%M:%S} UTC, {who}: {before} became {json.dumps(entry.after, ensure_ascii=False)}"
