"""Writing pages: the metadata of one, a draft of a new one, a draft of a translation."""

from sqlalchemy.exc import IntegrityError

from byline import Landed, NotLanded, ToolContext, ToolEffect, ToolError, ToolResult, tool
from examples.newsroom.models import DEFAULT_LANGUAGE, Language, Page
from examples.newsroom.tools.desk import Desk
from examples.newsroom.tools.texts import Description, Id, Title, Version
from examples.newsroom.tools.writing import TIMEOUT, Creation, Update, diff, landed, show, write


@tool(effect=ToolEffect.IDEMPOTENT_WRITE, timeout=TIMEOUT, not_written=(IntegrityError,))
def set_page_metadata(
    context: ToolContext,
    page_id: Id,
    expected_version: Version,
    title: Title | None = None,
    description: Description | None = None,
) -> ToolResult:
    """Set the title or the description of one page, or both. Search engines and link previews show them.

    Args:
        page_id: The page to change. A translation is a page of its own.
        expected_version: The page's version as you read it.
        title: The new title, at most 120 characters; null leaves it.
        description: The new description, at most 300 characters; null leaves it.
    """
    return write(context, lambda desk: _metadata(desk, page_id, expected_version, title, description))


@set_page_metadata.preview
def _(
    context: ToolContext, page_id: int, expected_version: int, title: str | None = None, description: str | None = None
) -> list[str]:
    return show(context, lambda desk: _metadata(desk, page_id, expected_version, title, description))


@set_page_metadata.verify
def _(
    context: ToolContext, page_id: int, expected_version: int, title: str | None = None, description: str | None = None
) -> Landed | NotLanded:
    return landed(context)


def _metadata(desk: Desk, page_id: int, expected_version: int, title: str | None, description: str | None) -> Update:
    page = desk.to_edit(Page, page_id)
    given = {"title": title, "description": description}
    values = {name: text for name, text in given.items() if text is not None}
    if not values:
        raise ToolError("Give a title, a description, or both. Nothing was written.")
    before = {"title": page.title, "description": page.description}
    shown = [
        diff(f"pages:{page.id} {name}", [before[name]] if before[name] else [], [text])
        for name, text in values.items()
        if text != before[name]
    ]
    return Update(page, values, expected_version, shown)


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, timeout=TIMEOUT, not_written=(IntegrityError,))
def create_page_draft(context: ToolContext, parent_id: Id, title: Title, description: Description) -> ToolResult:
    """Create a page in English, behind the others below one page. It is hidden until a person publishes it.

    Args:
        parent_id: The page below which it goes, in English.
        title: Its title, at most 120 characters.
        description: Its description, at most 300 characters.
    """
    return write(context, lambda desk: _page_draft(desk, parent_id, title, description))


@create_page_draft.preview
def _(context: ToolContext, parent_id: int, title: str, description: str) -> list[str]:
    return show(context, lambda desk: _page_draft(desk, parent_id, title, description))


@create_page_draft.verify
def _(context: ToolContext, parent_id: int, title: str, description: str) -> Landed | NotLanded:
    return landed(context)


def _page_draft(desk: Desk, parent_id: int, title: str, description: str) -> Creation:
    parent = desk.to_edit(Page, parent_id)
    if parent.original is not None:
        raise ToolError("A new page goes below a page in English, and is translated then. Nothing was written.")
    draft = Page(
        language=DEFAULT_LANGUAGE,
        translation_of=None,
        parent_id=parent.id,
        slug=None,  # the person who publishes it gives it its address
        position=max((page.position for page in parent.children), default=0) + 1,
        title=title,
        description=description,
        hidden=True,
    )
    shown = diff(f"new page (hidden) below pages:{parent.id} “{parent.title}”", [], [title, description])
    return Creation(draft, [], [shown])


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, timeout=TIMEOUT, not_written=(IntegrityError,))
def create_translation_draft(
    context: ToolContext,
    page_id: Id,
    expected_version: Version,
    language: Language,
    title: Title,
    description: Description,
) -> ToolResult:
    """Create the translation of one page: its title and description. It is hidden until a person publishes it.

    Its texts are content elements of their own, added to the new page one by one.

    Args:
        page_id: The page to translate, in English.
        expected_version: The version of that page as you read it.
        language: The language to translate it to.
        title: The translated title, at most 120 characters.
        description: The translated description, at most 300 characters.
    """
    return write(
        context, lambda desk: _translation_draft(desk, page_id, expected_version, language, title, description)
    )


@create_translation_draft.preview
def _(
    context: ToolContext, page_id: int, expected_version: int, language: Language, title: str, description: str
) -> list[str]:
    return show(context, lambda desk: _translation_draft(desk, page_id, expected_version, language, title, description))


@create_translation_draft.verify
def _(
    context: ToolContext, page_id: int, expected_version: int, language: Language, title: str, description: str
) -> Landed | NotLanded:
    return landed(context)


def _translation_draft(
    desk: Desk, page_id: int, expected_version: int, language: Language, title: str, description: str
) -> Creation:
    page = desk.to_translate(page_id, language)
    if page.original is not None:
        raise ToolError("Translate the page in English, not a translation of it. Nothing was written.")
    if page.in_language(language) is not None:
        raise ToolError("This page has a version in that language. Nothing was written.")
    draft = Page(
        language=language,
        translation_of=page.id,
        parent_id=None,
        slug=None,
        position=0,
        title=title,
        description=description,
        hidden=True,
    )
    name = f"new translation (hidden, {language}) of pages:{page.id}"
    shown = diff(name, [page.title, *filter(None, [page.description])], [title, description])
    return Creation(draft, [(page, expected_version)], [shown])
