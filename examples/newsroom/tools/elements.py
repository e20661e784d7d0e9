"""Writing content elements: a draft of a new one, another place for one, a file attached to one."""

from collections.abc import Iterable

from sqlalchemy.exc import IntegrityError

from byline import Landed, NotLanded, ToolContext, ToolEffect, ToolError, ToolResult, tool
from examples.newsroom.models import STEP, Column, ContentElement, File, FileReference, Page
from examples.newsroom.tools.desk import Desk
from examples.newsroom.tools.texts import Body, Heading, Id, OwnAlternativeText, Position, Version
from examples.newsroom.tools.writing import TIMEOUT, Creation, Update, Value, diff, landed, show, write


@tool(effect=ToolEffect.IDEMPOTENT_WRITE, timeout=TIMEOUT, not_written=(IntegrityError,))
def move_content_element(
    context: ToolContext, element_id: Id, expected_version: Version, page_id: Id, column: Column, position: Position
) -> ToolResult:
    """Move one content element to a place on its page, or on another page in the same language.

    Args:
        element_id: The element to move.
        expected_version: The element's version as you read it.
        page_id: The page it goes to.
        column: The column it goes to.
        position: Its new position. Elements stand in the order of their positions; take one between two others.
    """
    return write(context, lambda desk: _move(desk, element_id, expected_version, page_id, column, position))


@move_content_element.preview
def _(
    context: ToolContext, element_id: int, expected_version: int, page_id: int, column: Column, position: int
) -> list[str]:
    return show(context, lambda desk: _move(desk, element_id, expected_version, page_id, column, position))


@move_content_element.verify
def _(
    context: ToolContext, element_id: int, expected_version: int, page_id: int, column: Column, position: int
) -> Landed | NotLanded:
    return landed(context)


def _move(desk: Desk, element_id: int, expected_version: int, page_id: int, column: Column, position: int) -> Update:
    element = desk.to_edit(ContentElement, element_id)
    target = desk.to_edit(Page, page_id)
    if element.page.language is not target.language:
        raise ToolError("An element stays in its language. Nothing was written.")
    here, there = (element.page, element.column), (target, column)
    rows = {place: _placed(*place) for place in (here, there)}
    then = {place: [row for row in rows[place] if row[2] is not element] for place in rows}
    then[there].append((position, element.id, element))
    shown = [
        diff(f"pages:{page.id} {named}, from top to bottom", _titles(rows[page, named]), _titles(then[page, named]))
        for page, named in rows
    ]
    values: dict[str, Value] = {"page_id": target.id, "column": column, "position": position}
    return Update(element, values, expected_version, [text for text in shown if text] or ["The order stays as it is."])


def _placed(page: Page, column: Column) -> list[tuple[int, int, ContentElement]]:
    return [(e.position, e.id, e) for e in page.elements if e.column is column]


def _titles(rows: Iterable[tuple[int, int, ContentElement]]) -> list[str]:
    return [f"{e.id} {e.heading or e.body.partition(chr(10))[0]:.60}" for _, _, e in sorted(rows, key=lambda r: r[:2])]


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, timeout=TIMEOUT, not_written=(IntegrityError,))
def create_content_element_draft(
    context: ToolContext, page_id: Id, column: Column, body: Body, heading: Heading = ""
) -> ToolResult:
    """Add one text to a page, behind the others in a column. It is hidden until a person publishes it.

    Args:
        page_id: The page to add to.
        column: The column to add to.
        body: The text, at most 5,000 characters; an empty line between two paragraphs.
        heading: Its heading, at most 120 characters; empty for none.
    """
    return write(context, lambda desk: _element_draft(desk, page_id, column, body, heading))


@create_content_element_draft.preview
def _(context: ToolContext, page_id: int, column: Column, body: str, heading: str = "") -> list[str]:
    return show(context, lambda desk: _element_draft(desk, page_id, column, body, heading))


@create_content_element_draft.verify
def _(context: ToolContext, page_id: int, column: Column, body: str, heading: str = "") -> Landed | NotLanded:
    return landed(context)


def _element_draft(desk: Desk, page_id: int, column: Column, body: str, heading: str) -> Creation:
    page = desk.to_edit(Page, page_id)
    last = max((e.position for e in page.elements if e.column is column), default=0)
    draft = ContentElement(
        page_id=page.id, column=column, position=last + STEP, heading=heading, body=body, hidden=True
    )
    name = f"new element (hidden) in {column} of pages:{page.id} “{page.title}”"
    shown = diff(name, [], [*([f"## {heading}", ""] if heading else []), *body.splitlines()])
    return Creation(draft, [], [shown])


@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, timeout=TIMEOUT, not_written=(IntegrityError,))
def attach_file(
    context: ToolContext,
    element_id: Id,
    expected_version: Version,
    file_id: Id,
    alternative_text: OwnAlternativeText = "",
) -> ToolResult:
    """Show one file in a content element, behind the files that it shows already.

    Args:
        element_id: The element that is to show it.
        expected_version: The element's version as you read it.
        file_id: The file.
        alternative_text: What the picture shows, in the page's language; empty for the file's own text (English).
    """
    return write(context, lambda desk: _attach(desk, element_id, expected_version, file_id, alternative_text))


@attach_file.preview
def _(
    context: ToolContext, element_id: int, expected_version: int, file_id: int, alternative_text: str = ""
) -> list[str]:
    return show(context, lambda desk: _attach(desk, element_id, expected_version, file_id, alternative_text))


@attach_file.verify
def _(
    context: ToolContext, element_id: int, expected_version: int, file_id: int, alternative_text: str = ""
) -> Landed | NotLanded:
    return landed(context)


def _attach(desk: Desk, element_id: int, expected_version: int, file_id: int, alternative_text: str) -> Creation:
    element = desk.to_edit(ContentElement, element_id)
    file = desk.to_read(File, file_id)
    before = [f"{old.file.name}: {old.shown_text}" for old in element.references]
    added = f"{file.name}: {alternative_text or file.alternative_text}"
    shown = diff(f"files of content_elements:{element.id}", before, [*before, added])
    draft = FileReference(element_id=element.id, file_id=file.id, alternative_text=alternative_text)
    return Creation(draft, [(element, expected_version)], [shown])
