"""The host: a library's website in an SQLite file of its own. It knows nothing of agents, and nothing of Byline."""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

SCHEMA = """
CREATE TABLE people (id TEXT PRIMARY KEY, active INTEGER NOT NULL, may_approve INTEGER NOT NULL);
CREATE TABLE pages (id INTEGER PRIMARY KEY, title TEXT NOT NULL, description TEXT NOT NULL);
CREATE TABLE page_rights (
    person TEXT NOT NULL REFERENCES people, page INTEGER NOT NULL REFERENCES pages, may_edit INTEGER NOT NULL,
    PRIMARY KEY (person, page)
);
CREATE TABLE content_elements (
    id INTEGER PRIMARY KEY, page INTEGER NOT NULL REFERENCES pages,
    heading TEXT NOT NULL, body TEXT NOT NULL, published INTEGER NOT NULL
);
CREATE TABLE ai_marks (
    record TEXT NOT NULL, run TEXT NOT NULL, words TEXT NOT NULL, source TEXT NOT NULL,
    PRIMARY KEY (record, run)
);
"""


class NotOpen(Exception):
    """There is no such page, or this person may not do that with it. The site does not say which."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with an account."""

    id: str
    may_approve: bool


@dataclass(frozen=True, slots=True)
class Element:
    """A heading and its text. Visitors see it once it is published."""

    id: int
    heading: str
    body: str
    published: bool


@dataclass(frozen=True, slots=True)
class Page:
    """A page and its elements, in their order."""

    id: int
    title: str
    description: str
    elements: tuple[Element, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """What tells visitors, and their machines, that an AI had a part in a record."""

    words: str
    source: str


class Site:
    """The website. Each method has a connection of its own, so that any thread may call it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def person(self, person_id: str) -> Person | None:
        """Find an active account."""
        with self.connection() as db:
            row = db.execute("SELECT id, may_approve FROM people WHERE id = ? AND active", (person_id,)).fetchone()
        return None if row is None else Person(row["id"], bool(row["may_approve"]))

    def may(self, person_id: str, page_id: int, *, edit: bool) -> bool:
        """Whether this person may read, or edit, this page."""
        with self.connection() as db:
            return _may(db, person_id, page_id, edit=edit)

    def page(self, page_id: int, *, reader: str) -> Page:
        """Read a page.

        Raises:
            NotOpen: to this reader.
        """
        with self.connection() as db:
            if not _may(db, reader, page_id, edit=False):
                raise NotOpen
            return _page(db, page_id)

    def set_description(self, page_id: int, description: str, *, editor: str) -> Page:
        """Set a page's description, and read the page back.

        Raises:
            NotOpen: to this editor. Nothing was written.
        """
        with self.transaction() as db:
            if not _may(db, editor, page_id, edit=True):
                raise NotOpen
            db.execute("UPDATE pages SET description = ? WHERE id = ?", (description, page_id))
            return _page(db, page_id)

    def add_element(self, page_id: int, heading: str, body: str, *, editor: str) -> Element:
        """Add an element as a draft behind the others, and read it back.

        Raises:
            NotOpen: to this editor. Nothing was written.
        """
        with self.transaction() as db:
            if not _may(db, editor, page_id, edit=True):
                raise NotOpen
            added = db.execute(
                "INSERT INTO content_elements (page, heading, body, published) VALUES (?, ?, ?, 0) RETURNING *",
                (page_id, heading, body),
            ).fetchone()
            return _element(added)

    def visible(self, page_id: int) -> Page:
        """Read a page as the site shows it to visitors: what is published.

        Raises:
            NotOpen: there is none.
        """
        with self.connection() as db:
            page = _page(db, page_id)
        return Page(page.id, page.title, page.description, tuple(e for e in page.elements if e.published))

    def mark(self, record: str) -> Mark | None:
        """Find the latest mark of a record, such as `pages:42`."""
        with self.connection() as db:
            row = db.execute(
                "SELECT words, source FROM ai_marks WHERE record = ? ORDER BY rowid DESC LIMIT 1", (record,)
            ).fetchone()
        return None if row is None else Mark(row["words"], row["source"])

    @contextmanager
    def connection(self) -> Generator[sqlite3.Connection]:
        """Open a connection, and close it in the end."""
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=10)) as db:
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA foreign_keys = ON")
            yield db

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Open a connection and write: committed when the block ends, rolled back when it raises."""
        with self.connection() as db:
            db.execute("BEGIN IMMEDIATE")  # so that what is read inside is not changed before it is written
            with db:
                yield db


def _may(db: sqlite3.Connection, person_id: str, page_id: int, *, edit: bool) -> bool:
    row = db.execute(
        "SELECT may_edit FROM page_rights JOIN people ON people.id = person WHERE person = ? AND page = ? AND active",
        (person_id, page_id),
    ).fetchone()
    return row is not None and (bool(row["may_edit"]) or not edit)


def _page(db: sqlite3.Connection, page_id: int) -> Page:
    row = db.execute("SELECT * FROM pages WHERE id = ?", (page_id,)).fetchone()
    if row is None:
        raise NotOpen
    elements = db.execute("SELECT * FROM content_elements WHERE page = ? ORDER BY id", (page_id,))
    return Page(row["id"], row["title"], row["description"], tuple(map(_element, elements)))


def _element(row: sqlite3.Row) -> Element:
    return Element(row["id"], row["heading"], row["body"], bool(row["published"]))
