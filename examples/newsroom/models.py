"""What the site keeps: pages, content elements, files, people and their rights, and the history of every change.

It knows nothing of agents, and nothing of Byline. Two choices matter to whoever writes here:

- A translation is a page of its own that points at the page it translates, so that each change touches one row.
- `version` grows by one with every change of a row (SQLAlchemy's `version_id_col`). Who wants to change what they
  have read names the version that they read.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    CheckConstraint,
    DateTime,
    Dialect,
    Enum,
    ForeignKey,
    String,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column, relationship


class Language(StrEnum):
    """A language of the site."""

    EN = "en"
    DE = "de"


DEFAULT_LANGUAGE = Language.EN
"""The language of every page that is no translation."""


class Column(StrEnum):
    """A column of a page."""

    MAIN = "main"
    ASIDE = "aside"


STEP = 100
"""Between the positions of two neighbours in a column, so that another element fits between them."""


class UtcTime(TypeDecorator[datetime]):
    """A moment: aware, in UTC, as SQLite itself does not keep it."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)


def _values(kind: type[StrEnum]) -> list[str]:
    return [member.value for member in kind]


def _enum(kind: type[StrEnum]) -> Enum:
    """Keep a member as its value; SQLAlchemy would keep its name."""
    return Enum(kind, native_enum=False, create_constraint=True, values_callable=_values)


class Base(DeclarativeBase):
    """The site's tables."""

    type_annotation_map = {  # noqa: RUF012 - read by SQLAlchemy when the class is made
        Language: _enum(Language),
        Column: _enum(Column),
        datetime: UtcTime,
        dict[str, Any]: JSON(none_as_null=True),
    }


class Versioned:
    """A row that counts its own changes."""

    version: Mapped[int] = mapped_column(nullable=False)

    @declared_attr.directive
    def __mapper_args__(cls) -> dict[str, Any]:  # noqa: N805 - SQLAlchemy hands in the class
        return {"version_id_col": cls.version}


class Page(Versioned, Base):
    """A page in one language. A translation has its place in the tree, and its address, from the page it translates."""

    __tablename__ = "pages"
    __table_args__ = (
        UniqueConstraint("translation_of", "language"),
        CheckConstraint("(language = 'en') = (translation_of IS NULL)", name="page_is_translated_once"),
        CheckConstraint(
            "translation_of IS NULL OR (parent_id IS NULL AND slug IS NULL)", name="translation_has_no_place_of_its_own"
        ),
        CheckConstraint(
            "hidden OR translation_of IS NOT NULL OR slug IS NOT NULL", name="published_page_has_an_address"
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    language: Mapped[Language] = mapped_column()
    translation_of: Mapped[int | None] = mapped_column(ForeignKey("pages.id", ondelete="CASCADE"))
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("pages.id"))
    slug: Mapped[str | None] = mapped_column(unique=True)
    position: Mapped[int] = mapped_column(default=0)
    title: Mapped[str] = mapped_column()
    description: Mapped[str] = mapped_column(default="")
    hidden: Mapped[bool] = mapped_column()

    original: Mapped["Page | None"] = relationship(
        foreign_keys=[translation_of], remote_side="Page.id", back_populates="translations"
    )
    translations: Mapped[list["Page"]] = relationship(
        foreign_keys=[translation_of], back_populates="original", passive_deletes=True
    )
    parent: Mapped["Page | None"] = relationship(
        foreign_keys=[parent_id], remote_side="Page.id", back_populates="children"
    )
    children: Mapped[list["Page"]] = relationship(
        foreign_keys=[parent_id], back_populates="parent", order_by="(Page.position, Page.id)", passive_deletes="all"
    )
    elements: Mapped[list["ContentElement"]] = relationship(
        back_populates="page", order_by="(ContentElement.position, ContentElement.id)", passive_deletes=True
    )

    @property
    def source(self) -> "Page":
        """The page in the tree: the one that this one translates, or this one."""
        return self.original or self

    @property
    def line(self) -> list["Page"]:
        """The page in the tree, its parent, and so on up to the top."""
        page: Page | None = self.source
        line: list[Page] = []
        while page is not None:
            line.append(page)
            page = page.parent
        return line

    @property
    def address(self) -> str | None:
        """The slug, shared by a page and its translations; None as long as nobody gave one."""
        return self.source.slug

    @property
    def public(self) -> bool:
        """Whether visitors see it: it is published, and so is every page above it."""
        return not self.hidden and not any(page.hidden for page in self.line)

    def in_language(self, language: Language) -> "Page | None":
        """Find this page in a language."""
        every = [self.source, *self.source.translations]
        return next((page for page in every if page.language is language), None)


class ContentElement(Versioned, Base):
    """A text in a column of a page. The lower its position, the higher it stands; equal ones go by their ids."""

    __tablename__ = "content_elements"

    id: Mapped[int] = mapped_column(primary_key=True)
    page_id: Mapped[int] = mapped_column(ForeignKey("pages.id", ondelete="CASCADE"), index=True)
    column: Mapped[Column] = mapped_column()
    position: Mapped[int] = mapped_column()
    heading: Mapped[str] = mapped_column(default="")
    body: Mapped[str] = mapped_column()
    hidden: Mapped[bool] = mapped_column()

    page: Mapped[Page] = relationship(back_populates="elements")
    references: Mapped[list["FileReference"]] = relationship(
        back_populates="element", order_by="FileReference.id", passive_deletes=True
    )


class File(Versioned, Base):
    """An image, with the text for those who do not see it. The text is in the site's default language."""

    __tablename__ = "files"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    alternative_text: Mapped[str] = mapped_column(default="")
    width: Mapped[int] = mapped_column()
    height: Mapped[int] = mapped_column()


class FileReference(Base):
    """A file that is shown in a content element, with words of its own for the alternative text if it needs them."""

    __tablename__ = "file_references"

    id: Mapped[int] = mapped_column(primary_key=True)
    element_id: Mapped[int] = mapped_column(ForeignKey("content_elements.id", ondelete="CASCADE"), index=True)
    file_id: Mapped[int] = mapped_column(ForeignKey("files.id", ondelete="CASCADE"), index=True)
    alternative_text: Mapped[str] = mapped_column(default="")

    element: Mapped[ContentElement] = relationship(back_populates="references")
    file: Mapped[File] = relationship()

    @property
    def shown_text(self) -> str:
        """The alternative text as visitors get it."""
        return self.alternative_text or self.file.alternative_text


class User(Base):
    """Somebody with an account."""

    __tablename__ = "users"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    disabled: Mapped[bool] = mapped_column(default=False)
    approves: Mapped[bool] = mapped_column(default=False)
    edits_files: Mapped[bool] = mapped_column(default=False)

    rights: Mapped[list["Right"]] = relationship(back_populates="user", cascade="all, delete-orphan")


class Right(Base):
    """Somebody may edit a page and all below it, in one language."""

    __tablename__ = "rights"

    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    page_id: Mapped[int] = mapped_column(ForeignKey("pages.id", ondelete="CASCADE"), primary_key=True)
    language: Mapped[Language] = mapped_column(primary_key=True)

    user: Mapped[User] = relationship(back_populates="rights")


class HistoryEntry(Base):
    """One change of one record, stored in the transaction of the change.

    `before` and `after` hold the columns that changed; a record that was created has no `before`. `run` is the
    correlation id of what an agent did, and `call` the key of the very call: it is unique, so that no call lands twice
    and anybody can look whether one has landed.
    """

    __tablename__ = "history"

    id: Mapped[int] = mapped_column(primary_key=True)
    record_table: Mapped[str] = mapped_column()
    record_uid: Mapped[int] = mapped_column(index=True)
    at: Mapped[datetime] = mapped_column()
    editor: Mapped[str] = mapped_column(String(64))
    before: Mapped[dict[str, Any] | None] = mapped_column()
    after: Mapped[dict[str, Any]] = mapped_column()
    run: Mapped[str | None] = mapped_column()
    call: Mapped[str | None] = mapped_column(unique=True)
