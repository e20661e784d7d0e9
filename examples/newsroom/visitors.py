"""What visitors see: published pages and elements, nothing hidden, and the labels of what is shown.

A page is read in one transaction and handed on as plain values, so that nothing is looked up while it is rendered.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from byline import RecordReference
from examples.newsroom.label import Label, labels_of
from examples.newsroom.models import Column, ContentElement, File, FileReference, Language, Page

POLICY_PAGE: Final = "ai-policy"
"""The slug of the page that tells visitors how AI is used."""


@dataclass(frozen=True, slots=True)
class Link:
    """A way to another page; `current` if it leads here or to a page above."""

    slug: str
    title: str
    language: Language
    current: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """A file as an element shows it. An empty text is one that nobody has written yet."""

    name: str
    text: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Passage:
    """A content element: its heading, its paragraphs and its pictures."""

    id: int
    heading: str
    paragraphs: tuple[str, ...]
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """A page as it is shown."""

    slug: str
    language: Language
    title: str
    description: str
    main: tuple[Passage, ...]
    aside: tuple[Passage, ...]
    home: Link
    sections: tuple[Link, ...]
    trail: tuple[Link, ...]
    below: tuple[Link, ...]
    translations: tuple[Link, ...]
    labels: tuple[Label, ...]
    policy: Link | None


class Pages:
    """The public pages of the site, with their places in the tree."""

    def __init__(self, session: Session) -> None:
        every = list(session.scalars(select(Page)))  # all at once: who asks for a parent then finds it in the session
        self._public = {page.id: page for page in every if page.public}
        self._by_place: dict[tuple[str, Language], Page] = {}
        self._children: defaultdict[int | None, list[Page]] = defaultdict(list)
        for page in self._public.values():
            if page.address is not None:
                self._by_place[page.address, page.language] = page
            if page.translation_of is None:
                self._children[page.parent_id].append(page)
        for children in self._children.values():
            children.sort(key=lambda page: (page.position, page.id))

    def find(self, slug: str, language: Language) -> Page | None:
        """Find a page by its address."""
        return self._by_place.get((slug, language))

    def home(self, language: Language) -> Page | None:
        """Find the page at the top of the tree."""
        return next(self._in(language, self._children[None]), None)

    def below(self, page: Page) -> list[Page]:
        """List the pages under a page, in its language."""
        return list(self._in(page.language, self._children[page.source.id]))

    def trail(self, page: Page) -> list[Page]:
        """List the pages from the top of the tree down to this one, those of its language."""
        return list(self._in(page.language, reversed(page.line)))

    def translations(self, page: Page) -> list[Page]:
        """List the page in the other languages."""
        found = [self.find(page.address or "", language) for language in Language]
        return [other for other in found if other is not None and other is not page]

    def _in(self, language: Language, pages: Iterable[Page]) -> Iterator[Page]:
        for page in pages:
            found = self.find(page.address or "", language)
            if found is not None:
                yield found


def show(session: Session, slug: str, language: Language) -> Shown | None:
    """Read a page as visitors see it; None if there is none for them."""
    pages = Pages(session)
    page, home = pages.find(slug, language), pages.home(language)
    if page is None or home is None:
        return None
    trail, policy = pages.trail(page), pages.find(POLICY_PAGE, language)
    elements = _visible_elements(session, page)
    return Shown(
        slug=slug,
        language=language,
        title=page.title,
        description=page.description,
        main=tuple(_passage(element) for element in elements if element.column is Column.MAIN),
        aside=tuple(_passage(element) for element in elements if element.column is Column.ASIDE),
        home=_link(home, trail),
        sections=tuple(_link(section, trail) for section in pages.below(home)),
        trail=tuple(_link(above, ()) for above in trail[:-1]),
        below=tuple(_link(child, ()) for child in pages.below(page)) if page is not home else (),
        translations=tuple(_link(other, ()) for other in pages.translations(page)),
        labels=tuple(labels_of(session, _records(page, elements))),
        policy=None if policy is None else _link(policy, ()),
    )


def shown_file(session: Session, name: str) -> File | None:
    """Find a file by its name, if some public page shows it."""
    wanted = (
        select(FileReference)
        .join(FileReference.file)
        .join(FileReference.element)
        .where(File.name == name, ContentElement.hidden.is_(False))
    )
    return next((found.file for found in session.scalars(wanted) if found.element.page.public), None)


def _visible_elements(session: Session, page: Page) -> list[ContentElement]:
    wanted = (
        select(ContentElement)
        .where(ContentElement.page_id == page.id, ContentElement.hidden.is_(False))
        .order_by(ContentElement.position, ContentElement.id)
        .options(selectinload(ContentElement.references).selectinload(FileReference.file))
    )
    return list(session.scalars(wanted))


def _records(page: Page, elements: Iterable[ContentElement]) -> list[RecordReference]:
    """List what a visitor of the page reads, as the records that it is kept in."""
    records = {RecordReference("pages", page.id): None}  # a dict: each once, in this order
    for element in elements:
        records[RecordReference("content_elements", element.id)] = None
        for reference in element.references:
            records[RecordReference("file_references", reference.id)] = None
            if not reference.alternative_text:  # else the file's own text is not shown here
                records[RecordReference("files", reference.file_id)] = None
    return list(records)


def _passage(element: ContentElement) -> Passage:
    pictures = [
        Picture(found.file.name, found.shown_text, found.file.width, found.file.height) for found in element.references
    ]
    paragraphs = [part.strip() for part in element.body.split("\n\n")]
    return Passage(element.id, element.heading, tuple(filter(None, paragraphs)), tuple(pictures))


def _link(page: Page, current: Iterable[Page]) -> Link:
    return Link(page.address or "", page.title, page.language, page in current)
