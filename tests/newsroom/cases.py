"""What each of the seven writers cannot do without, and how often its effect is to be seen in the site's own tables."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from byline import ToolEffect
from examples.newsroom.models import ContentElement, File, FileReference, Language, Page, Versioned
from tests.newsroom.stage import WRITERS, Ids, Writer

Find = Callable[[Ids], int]
C = TypeVar("C")


def _museum(ids: Ids) -> int:
    return ids.museum


def _film_club(ids: Ids) -> int:
    return ids.film_club


def _text(ids: Ids) -> int:
    return ids.museum_text


def _projector(ids: Ids) -> int:
    return ids.projector


@dataclass(frozen=True, slots=True)
class Need:
    """A right: to edit a page and all below it in one language; without a page, to edit the files."""

    name: str
    page: Find | None = None
    language: Language = Language.EN

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class End:
    """A record that a call names: by which argument, what it is, and which one."""

    argument: str
    kind: type[Page | ContentElement | File]
    find: Find

    def __str__(self) -> str:
        return self.argument


MUSEUM = Need("museum", _museum)
GERMAN_MUSEUM = Need("museum-de", _museum, Language.DE)
FILM_CLUB = Need("film-club", _film_club)
FILES = Need("files")


@dataclass(frozen=True, slots=True)
class Case:
    """One writer.

    Attributes:
        writer: its one good call.
        needs: the rights for it; each is needed, and together they are enough.
        ends: the records that it names.
        effects: how often its effect stands in the site's tables, in the history's stead.
    """

    writer: Writer
    needs: tuple[Need, ...]
    ends: tuple[End, ...]
    effects: Callable[[Session, Ids], int]

    @property
    def idempotent(self) -> bool:
        return self.writer.effect is ToolEffect.IDEMPOTENT_WRITE

    def __str__(self) -> str:
        return self.writer.tool


def _changes(kind: type[Page | ContentElement | File], find: Find) -> Callable[[Session, Ids], int]:
    """How often a record of the first day was changed: its version counts that."""

    def changes(session: Session, ids: Ids) -> int:
        record = session.get_one(kind, find(ids))
        assert isinstance(record, Versioned)
        return record.version - 1

    return changes


def _pages(title: str) -> Callable[[Session, Ids], int]:
    return lambda session, _: session.scalar(select(func.count()).where(Page.title == title)) or 0


def _elements(session: Session, _: Ids) -> int:
    return session.scalar(select(func.count()).where(ContentElement.heading == "In the loft")) or 0


def _attached(session: Session, ids: Ids) -> int:
    shown = (FileReference.element_id == ids.museum_text, FileReference.file_id == ids.projector)
    return session.scalar(select(func.count()).where(*shown)) or 0


THE_PAGE = End("page_id", Page, _museum)
THE_ELEMENT = End("element_id", ContentElement, _text)
THE_FILE = End("file_id", File, _projector)

_CASES = {
    "set_page_metadata": ((MUSEUM,), (THE_PAGE,), _changes(Page, _museum)),
    "set_alternative_text": ((FILES,), (THE_FILE,), _changes(File, _projector)),
    "move_content_element": (
        (MUSEUM, FILM_CLUB),
        (THE_ELEMENT, End("page_id", Page, _film_club)),
        _changes(ContentElement, _text),
    ),
    "create_page_draft": ((MUSEUM,), (End("parent_id", Page, _museum),), _pages("Telegrams")),
    "create_content_element_draft": ((MUSEUM,), (THE_PAGE,), _elements),
    "create_translation_draft": ((GERMAN_MUSEUM,), (THE_PAGE,), _pages("Das Museum im Bootshaus")),
    "attach_file": ((MUSEUM,), (THE_ELEMENT, THE_FILE), _attached),
}
CASES = tuple(Case(writer, *_CASES[writer.tool]) for writer in WRITERS)
IDEMPOTENT = tuple(case for case in CASES if case.idempotent)
NOT_IDEMPOTENT = tuple(case for case in CASES if not case.idempotent)

EACH = pytest.mark.parametrize("case", CASES, ids=str)


def _with(parts: Callable[[Case], tuple[C, ...]]) -> list[tuple[Case, C]]:
    return [(case, part) for case in CASES for part in parts(case)]


EACH_NEED = pytest.mark.parametrize("case, need", _with(lambda case: case.needs), ids=str)
EACH_END = pytest.mark.parametrize("case, end", _with(lambda case: case.ends), ids=str)
