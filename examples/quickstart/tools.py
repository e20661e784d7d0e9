"""What an agent may do on the site: read a page, set its description, add a draft to it.

A tool that writes has five duties (docs/writing-tools.md):
1. It checks `context.actor`, and refuses with one sentence that does not tell whether the record exists.
2. It commits before it returns.
3. It names the record it wrote, and whether that was created or updated.
4. It raises `ToolError` if, and only if, it wrote nothing.
5. It touches one record.

Beyond its duties, each of these shows beforehand what it would replace, and returns what it read back.
"""

import difflib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

from pydantic import Field

from byline import RecordReference, ToolContext, ToolEffect, ToolError, ToolResult, WriteKind, tool
from examples.quickstart.site import Element, NotOpen, Page, Site

REFUSAL = "There is no such page, or you may not do that with it."

Description = Annotated[str, Field(min_length=1, max_length=300)]
Heading = Annotated[str, Field(min_length=1, max_length=80)]
Body = Annotated[str, Field(min_length=1, max_length=2_000)]


@tool(effect=ToolEffect.READ_ONLY, timeout=10)
def read_page(context: ToolContext, page_id: int) -> ToolResult:
    """Read one page: its title, its description and its text.

    Args:
        page_id: The page to read.
    """
    with neutral_refusal():
        page = site_of(context).page(page_id, reader=context.actor.id)
    return ToolResult.text("\n".join([f"# {page.title}", f"Description: {page.description}", "", *text_of(page)]))


@tool(effect=ToolEffect.IDEMPOTENT_WRITE, timeout=10)
def update_page_metadata(context: ToolContext, page_id: int, description: Description) -> ToolResult:
    """Set the description of one page: what search engines and link previews show.

    Args:
        page_id: The page to change.
        description: The new description, at most 300 characters.
    """
    record, site, actor = RecordReference("pages", page_id), site_of(context), context.actor.id
    with neutral_refusal():
        if site.page(page_id, reader=actor).description == description:
            # Nothing is written, so nothing is announced; unless an earlier attempt died after its commit.
            return ToolResult.unchanged("The page has this description already.", record, WriteKind.UPDATED)
        page = site.set_description(page_id, description, editor=actor)
    return ToolResult.text(f"The description of page {page.id} is now: {page.description}").with_write_target(
        record, WriteKind.UPDATED
    )


@update_page_metadata.preview
def _show_description(context: ToolContext, page_id: int, description: Description) -> list[str]:
    try:
        page = site_of(context).page(page_id, reader=context.actor.id)
    except NotOpen:
        return [REFUSAL]
    return [diff(f"pages:{page.id} description", [page.description], [description])]


# Running it twice makes two drafts. This site does not keep which call made an element, so no machine can tell
# its own draft from the same one typed by a colleague: what was interrupted here, a person must look at. A host
# that stores `context.idempotency_key` with the row can offer `@add_content_element.verify`; then a write that landed
# settles itself.
@tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE, timeout=10)
def add_content_element(context: ToolContext, page_id: int, heading: Heading, body: Body) -> ToolResult:
    """Add a text to one page, as a draft behind the others. An editor publishes it.

    Args:
        page_id: The page to add to.
        heading: Its heading, at most 80 characters.
        body: Its text, at most 2,000 characters.
    """
    with neutral_refusal():
        added = site_of(context).add_element(page_id, heading, body, editor=context.actor.id)
    return ToolResult.text(f"Draft {added.id} is on page {page_id}: {added.heading}").with_write_target(
        RecordReference("content_elements", added.id), WriteKind.CREATED
    )


@add_content_element.preview
def _show_element(context: ToolContext, page_id: int, heading: Heading, body: Body) -> list[str]:
    try:
        page = site_of(context).page(page_id, reader=context.actor.id)
    except NotOpen:
        return [REFUSAL]
    draft = Element(0, heading, body, published=False)
    after = Page(page.id, page.title, page.description, (*page.elements, draft))
    return [diff(f"pages:{page.id} text", text_of(page), text_of(after))]


def site_of(context: ToolContext) -> Site:
    """Return what the application gave as `resources`."""
    assert isinstance(context.resources, Site)
    return context.resources


@contextmanager
def neutral_refusal() -> Generator[None]:
    """Refuse in the same words whether the page is missing or closed: the model may tell anybody."""
    try:
        yield
    except NotOpen:
        raise ToolError(REFUSAL) from None


def text_of(page: Page) -> list[str]:
    """Return the text of a page, line by line."""
    lines: list[str] = []
    for element in page.elements:
        state = "" if element.published else " (draft)"
        lines += [f"## {element.heading}{state}", *element.body.splitlines(), ""]
    return lines[:-1]


def diff(name: str, before: list[str], after: list[str]) -> str:
    """Show what is replaced, as a unified diff."""
    lines = difflib.unified_diff(before, after, f"{name}, now", f"{name}, then", n=2, lineterm="")
    return "\n".join(lines) or f"{name}: no change"
