"""Tools of every effect, with the points at which their process can be killed: before the host's commit, and after it."""

from typing import TYPE_CHECKING

from byline import RecordReference, Tool, ToolContext, ToolEffect, ToolResult, WriteKind, tool

if TYPE_CHECKING:
    from tests.crash.site import Site


def readers(site: "Site") -> list[Tool]:
    """A read that runs freely, and one that asks for approval."""

    def read(context: ToolContext, name: str, page_id: int) -> ToolResult:
        site.count(context, name)
        site.points.reach("in execute")
        found = site.description(page_id)
        site.points.reach("host committed")
        return ToolResult.text(found or "It has no description.")

    @tool(effect=ToolEffect.READ_ONLY)
    def read_page(context: ToolContext, page_id: int) -> ToolResult:
        """Read a page."""
        return read(context, "read_page", page_id)

    @tool(effect=ToolEffect.READ_ONLY, approval=True)
    def inspect_page(context: ToolContext, page_id: int) -> ToolResult:
        """Read a page that not everybody may read."""
        return read(context, "inspect_page", page_id)

    return [read_page, inspect_page]


def writers_of_descriptions(site: "Site") -> list[Tool]:
    """An idempotent write, and one that compares before it writes."""

    def write(page_id: int, description: str) -> None:
        with site.connect() as database:
            database.execute("update page set description = ? where id = ?", (description, page_id))
            site.points.reach("in execute")
        site.points.reach("host committed")

    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def set_description(context: ToolContext, page_id: int, description: str) -> ToolResult:
        """Set the description of a page."""
        site.count(context, "set_description")
        write(page_id, description)
        return ToolResult.text("Set.").with_write_target(RecordReference("pages", page_id), WriteKind.UPDATED)

    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def ensure_description(context: ToolContext, page_id: int, description: str) -> ToolResult:
        """See to it that a page has this description."""
        site.count(context, "ensure_description")
        page = RecordReference("pages", page_id)
        if site.description(page_id) == description:
            return ToolResult.unchanged("It has it already.", page, WriteKind.UPDATED)
        write(page_id, description)
        return ToolResult.text("Set.").with_write_target(page, WriteKind.UPDATED)

    return [set_description, ensure_description]


def makers_of_elements(site: "Site") -> list[Tool]:
    """An upsert by the call's idempotency key, and a write whose repeat compounds."""

    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def put_element(context: ToolContext, page_id: int, text: str) -> ToolResult:
        """Add an element to a page, once for each call."""
        site.count(context, "put_element")
        key = context.idempotency_key
        with site.connect() as database:
            sql = "insert into keyed_element values (?, ?, ?) on conflict (key) do update set text = excluded.text"
            database.execute(sql, (key, page_id, text))
            uid: int = database.execute("select rowid from keyed_element where key = ?", (key,)).fetchone()[0]
            site.points.reach("in execute")
        site.points.reach("host committed")
        return ToolResult.text("Put.").with_write_target(RecordReference("elements", uid), WriteKind.CREATED)

    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def add_element(context: ToolContext, page_id: int, text: str) -> ToolResult:
        """Add an element to a page."""
        site.count(context, "add_element")
        with site.connect() as database:
            added = database.execute("insert into element (page_id, text) values (?, ?)", (page_id, text))
            uid = added.lastrowid
            site.points.reach("in execute")
        assert uid is not None
        site.points.reach("host committed")
        return ToolResult.text("Added.").with_write_target(RecordReference("elements", uid), WriteKind.CREATED)

    return [put_element, add_element]
