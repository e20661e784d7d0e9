"""Where every tool works: it finds records for one actor, and refuses what they may not touch, in one sentence."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from byline import ToolContext, ToolError
from examples.newsroom.models import ContentElement, File, FileReference, Language, Page
from examples.newsroom.rights import Record, may_edit, may_read, person
from examples.newsroom.site import Site

REFUSAL = "There is no such record, or you may not do that with it."
"""Said whether a record is missing or closed: the model may tell anybody."""
BUSY = "The site is busy, and nothing was written. Try again."

R = TypeVar("R", Page, ContentElement, File, FileReference)


class Desk:
    """One actor's look at the site, in one session.

    Raises:
        ToolError: there is no such account, or it is closed. So does every method where the actor may not.
    """

    def __init__(self, session: Session, actor_id: str) -> None:
        user = person(session, actor_id)
        if user is None:
            raise ToolError(REFUSAL)
        self.session = session
        self.user = user

    def to_read(self, kind: type[R], uid: int) -> R:
        """Find a record that the actor may read."""
        record = self.session.get(kind, uid)
        if record is None or not self.may_read(record):
            raise ToolError(REFUSAL)
        return record

    def to_edit(self, kind: type[R], uid: int) -> R:
        """Find a record that the actor may edit."""
        record = self.session.get(kind, uid)
        if record is None or not may_edit(self.session, self.user, record):
            raise ToolError(REFUSAL)
        return record

    def to_translate(self, page_id: int, language: Language) -> Page:
        """Find a page that the actor may read, and may edit in another language."""
        page = self.to_read(Page, page_id)
        if not may_edit(self.session, self.user, page, language):
            raise ToolError(REFUSAL)
        return page

    def may_read(self, record: Record) -> bool:
        """Whether the actor may read a record."""
        return may_read(self.session, self.user, record)

    def readable(self, records: Iterable[R]) -> list[R]:
        """Keep what the actor may read."""
        return [record for record in records if self.may_read(record)]


@contextmanager
def reading(context: ToolContext) -> Generator[Desk]:
    """Sit down to read."""
    with site_of(context).reading() as session:
        yield Desk(session, context.actor.id)


@contextmanager
def writing(context: ToolContext) -> Generator[Session]:
    """Open a session to write: committed when the block ends, rolled back when it raises."""
    with site_of(context).writing() as session:
        try:
            session.connection()  # begins: waits for its turn to write
        except OperationalError:
            raise ToolError(BUSY) from None
        yield session


def site_of(context: ToolContext) -> Site:
    """Return what the application gave as `resources`."""
    assert isinstance(context.resources, Site)
    return context.resources
