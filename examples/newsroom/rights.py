"""Who may do what on the site, asked of its database each time."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from examples.newsroom.models import ContentElement, File, FileReference, Language, Page, Right, User

Record = Page | ContentElement | File | FileReference
"""What an agent can read and write."""


def person(session: Session, user_id: str) -> User | None:
    """Find somebody whose account is open."""
    user = session.get(User, user_id)
    return None if user is None or user.disabled else user


def may_edit(session: Session, user: User, record: Record, language: Language | None = None) -> bool:
    """Whether somebody may edit a record: a page by a right on it or on a page above it, what is on a page likewise.

    `language` asks for another language than the page's own: for a translation that is not there yet.
    """
    match record:
        case File():
            return user.edits_files
        case ContentElement(page=page) | FileReference(element=ContentElement(page=page)) | (Page() as page):
            line = [above.id for above in page.line]
            found = select(Right).where(
                Right.user_id == user.id, Right.page_id.in_(line), Right.language == (language or page.language)
            )
            return session.scalars(found.limit(1)).one_or_none() is not None


def may_read(session: Session, user: User, record: Record) -> bool:
    """Whether somebody may read a record: what is published, everybody; what is hidden, who may edit it."""
    match record:
        case File():
            return True
        case FileReference():
            return may_read(session, user, record.element)
        case Page():
            return record.public or may_edit(session, user, record)
        case ContentElement():
            return (not record.hidden and record.page.public) or may_edit(session, user, record)
