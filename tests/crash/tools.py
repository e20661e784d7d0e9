"""Tools of every effect, with points around the host's commit at which their process can be killed."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from byline import (
    Landed,
    NotLanded,
    RecordReference,
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    WriteKind,
    tool,
)
from byline.tools.protocol import Verification

if TYPE_CHECKING:
    from tests.crash.site import Site


def read_page(site: "Site") -> Tool:
    """A read that runs freely."""

    @tool(effect=ToolEffect.READ_ONLY)
    def read_page(context: ToolContext, page_id: int) -> ToolResult:
        """Read a page."""
        return _read(site, context, "read_page", page_id)

    return read_page


def inspect_page(site: "Site") -> Tool:
    """A read that asks for approval."""

    @tool(effect=ToolEffect.READ_ONLY, approval=True)
    def inspect_page(context: ToolContext, page_id: int) -> ToolResult:
        """Read a page that not everybody may read."""
        return _read(site, context, "inspect_page", page_id)

    return inspect_page


def _read(site: "Site", context: ToolContext, name: str, page_id: int) -> ToolResult:
    site.count(context, name)
    site.points.reach("in execute")
    found = site.description(page_id)
    site.points.reach("host committed")
    return ToolResult.text(found or "It has no description.")


def set_description(site: "Site", effect: ToolEffect = ToolEffect.IDEMPOTENT_WRITE) -> Tool:
    """A write whose repeat converges, whatever it is declared as."""

    @tool(effect=effect)
    def set_description(context: ToolContext, page_id: int, description: str) -> ToolResult:
        """Set the description of a page."""
        site.count(context, "set_description")
        _describe(site, page_id, description)
        return ToolResult.text("Set.").with_write_target(RecordReference("pages", page_id), WriteKind.UPDATED)

    return set_description


def ensure_description(site: "Site") -> Tool:
    """An idempotent write that compares before it writes."""

    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def ensure_description(context: ToolContext, page_id: int, description: str) -> ToolResult:
        """See to it that a page has this description."""
        site.count(context, "ensure_description")
        page = RecordReference("pages", page_id)
        if site.description(page_id) == description:
            return ToolResult.unchanged("It has it already.", page, WriteKind.UPDATED)
        _describe(site, page_id, description)
        return ToolResult.text("Set.").with_write_target(page, WriteKind.UPDATED)

    return ensure_description


def _describe(site: "Site", page_id: int, description: str) -> None:
    with site.connect() as database:
        database.execute("update page set description = ? where id = ?", (description, page_id))
        site.points.reach("in execute")
    site.points.reach("host committed")


def put_element(site: "Site") -> Tool:
    """An upsert by the call's idempotency key."""

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

    return put_element


def add_element(site: "Site", effect: ToolEffect = ToolEffect.NON_IDEMPOTENT_WRITE) -> Tool:
    """A write whose repeat compounds, whatever it is declared as."""

    @tool(effect=effect)
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

    return add_element


def insert_element(site: "Site") -> Tool:
    """A write whose repeat compounds, and which keeps the call's key: so it can look whether it landed."""

    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def insert_element(context: ToolContext, page_id: int, text: str) -> ToolResult:
        """Add an element to a page."""
        site.count(context, "insert_element")
        with site.connect() as database:
            inserted = database.execute(
                "insert into keyed_element values (?, ?, ?)", (context.idempotency_key, page_id, text)
            )
            uid = inserted.lastrowid
            site.points.reach("in execute")
        assert uid is not None
        site.points.reach("host committed")
        return ToolResult.text("Inserted.").with_write_target(RecordReference("elements", uid), WriteKind.CREATED)

    @insert_element.verify
    def _(context: ToolContext, page_id: int, text: str) -> Verification:
        site.count_verify(context)
        found = site.ask("select rowid from keyed_element where key = ?", context.idempotency_key)
        return Landed(RecordReference("elements", int(str(found[0][0]))), WriteKind.CREATED) if found else NotLanded()

    return insert_element


def describe_on_loop(site: "Site") -> Tool:
    """An async tool that does what async code should not: it blocks the event loop it runs on."""

    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    async def describe_on_loop(context: ToolContext, page_id: int, description: str) -> ToolResult:
        """Set the description of a page."""
        site.count(context, "describe_on_loop")
        _describe(site, page_id, description)
        return ToolResult.text("Set.").with_write_target(RecordReference("pages", page_id), WriteKind.UPDATED)

    return describe_on_loop


MAKERS: Mapping[str, "Callable[[Site], Tool]"] = MappingProxyType(
    {
        "read_page": read_page,
        "inspect_page": inspect_page,
        "set_description": set_description,
        "ensure_description": ensure_description,
        "put_element": put_element,
        "add_element": add_element,
        "insert_element": insert_element,
        "describe_on_loop": describe_on_loop,
    }
)
"""How each tool is made, by its name: a process makes only those that its model calls."""
