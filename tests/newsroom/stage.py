"""The newsroom on a stage of its own: a site in real files, its seven writers, and what can happen to each.

`WRITERS` says of each writer what one good call is, what it writes, and how its record goes or changes in between.
`Stage(folder)` may be opened by any process: the first one builds the site.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from pydantic import JsonValue
from sqlalchemy import delete, select, update

from byline import (
    AfterAiRecordWrittenEvent,
    AgentRuntime,
    AiActorContext,
    Authority,
    Decision,
    Grant,
    Run,
    Tool,
    ToolContext,
    ToolEffect,
    ToolMessage,
    ToolResult,
    WriteKind,
)
from byline.models.scripted import Turn
from byline.testing import ScriptedModel, call
from byline.tools.protocol import Verification
from examples.newsroom.application import SITE_FILE, make_runtime
from examples.newsroom.models import Base, Column, ContentElement, File, HistoryEntry, Page, Right, User
from examples.newsroom.seed import APPROVER, EDITOR, build_site
from examples.newsroom.site import Site
from examples.newsroom.tools import READING, WRITING

ASKS = AiActorContext.user(EDITOR)
DECIDES = AiActorContext.user(APPROVER, grants={Grant.APPROVE, Grant.RECONCILE})
MISSING = 4_711
"""An id that no record has."""


@dataclass(frozen=True, slots=True)
class Ids:
    """Ids of the first day, found by name: content may be added to the site."""

    culture: int
    museum: int
    film_club: int
    museum_text: int
    projector: int
    news: int


@dataclass(frozen=True, slots=True)
class Writer:
    """One good call of a writer, and what can happen to its record.

    `goes` is the record that the call cannot do without; `versioned`: and whose version it names.
    """

    tool: str
    effect: ToolEffect
    kind: WriteKind
    table: str
    arguments: Callable[[Ids], dict[str, JsonValue]]
    goes: tuple[type[Page | ContentElement | File], Callable[[Ids], int]]
    versioned: bool

    def __str__(self) -> str:
        return self.tool


def _museum(ids: Ids) -> int:
    return ids.museum


def _text(ids: Ids) -> int:
    return ids.museum_text


def _projector(ids: Ids) -> int:
    return ids.projector


IDEMPOTENT, NOT_IDEMPOTENT = ToolEffect.IDEMPOTENT_WRITE, ToolEffect.NON_IDEMPOTENT_WRITE
WRITERS = (
    Writer(
        "set_page_metadata",
        IDEMPOTENT,
        WriteKind.UPDATED,
        "pages",
        lambda ids: {"page_id": ids.museum, "expected_version": 1, "description": "Nine metres of larch."},
        (Page, _museum),
        versioned=True,
    ),
    Writer(
        "set_alternative_text",
        IDEMPOTENT,
        WriteKind.UPDATED,
        "files",
        lambda ids: {"file_id": ids.projector, "expected_version": 1, "alternative_text": "A projector."},
        (File, _projector),
        versioned=True,
    ),
    Writer(
        "move_content_element",
        IDEMPOTENT,
        WriteKind.UPDATED,
        "content_elements",
        lambda ids: {
            "element_id": ids.museum_text,
            "expected_version": 1,
            "page_id": ids.film_club,
            "column": "aside",
            "position": 50,
        },
        (ContentElement, _text),
        versioned=True,
    ),
    Writer(
        "create_page_draft",
        NOT_IDEMPOTENT,
        WriteKind.CREATED,
        "pages",
        lambda ids: {"parent_id": ids.museum, "title": "Telegrams", "description": "A whole wall of them."},
        (Page, _museum),
        versioned=False,
    ),
    Writer(
        "create_content_element_draft",
        NOT_IDEMPOTENT,
        WriteKind.CREATED,
        "content_elements",
        lambda ids: {"page_id": ids.museum, "column": "main", "heading": "In the loft", "body": "A model."},
        (Page, _museum),
        versioned=False,
    ),
    Writer(
        "create_translation_draft",
        NOT_IDEMPOTENT,
        WriteKind.CREATED,
        "pages",
        lambda ids: {
            "page_id": ids.museum,
            "expected_version": 1,
            "language": "de",
            "title": "Das Museum im Bootshaus",
            "description": "Neun Meter Lärche.",
        },
        (Page, _museum),
        versioned=True,
    ),
    Writer(
        "attach_file",
        NOT_IDEMPOTENT,
        WriteKind.CREATED,
        "file_references",
        lambda ids: {"element_id": ids.museum_text, "expected_version": 1, "file_id": ids.projector},
        (ContentElement, _text),
        versioned=True,
    ),
)


class Stage:
    """A newsroom in a folder, and what was announced there in this process."""

    def __init__(self, folder: Path, ids: Ids | None = None) -> None:
        """Open it. `ids` are those of the first day, if a write may have moved what they are found by."""
        file = folder / SITE_FILE
        self.site = Site(file) if file.exists() else build_site(file)
        self.ids = _ids(self.site) if ids is None else ids
        self.announced: list[AfterAiRecordWrittenEvent] = []

    # -- through the runtime ------------------------------------------------------------------------

    def runtime(self, turns: Sequence[Turn] | ScriptedModel, *, authority: Authority | None = None) -> AgentRuntime:
        """A runtime whose model plays these turns; `authority`: another one than the site's own."""
        model = turns if isinstance(turns, ScriptedModel) else ScriptedModel(turns)
        return make_runtime(self.site, model=model, listeners=[self.announced.append], authority=authority)

    def script(self, writer: Writer) -> ScriptedModel:
        """A model that makes the writer's one good call, and is done."""
        return ScriptedModel([[call(writer.tool, **writer.arguments(self.ids))], "Done."])

    def events(self) -> list[tuple[str, WriteKind]]:
        """Table and kind of what was announced, in order."""
        return [(event.record.table, event.kind) for event in self.announced]

    # -- a tool by itself ---------------------------------------------------------------------------

    def context(self, user: str = EDITOR, *, call_id: UUID | None = None, attempt: int = 1) -> ToolContext:
        """What a tool is told of a call."""
        return ToolContext(
            run=uuid4(),
            actor=AiActorContext.user(user),
            call_id=uuid4() if call_id is None else call_id,
            attempt=attempt,
            claim=1,
            deadline=None,
            resources=self.site,
        )

    async def execute(self, writer: Writer, context: ToolContext) -> ToolResult:
        """Run the writer's one good call past the gate, as its own tests may."""
        tool = tool_named(writer.tool)
        return await tool.execute(context, tool.validate(json.dumps(writer.arguments(self.ids))))

    async def check_landed(self, writer: Writer, context: ToolContext) -> Verification:
        """Ask the writer whether its call landed."""
        tool = tool_named(writer.tool)
        return await tool.check_landed(context, tool.validate(json.dumps(writer.arguments(self.ids))))

    # -- what stands on the site, and what others do to it ------------------------------------------

    def history(self) -> list[HistoryEntry]:
        """What was changed, in order."""
        with self.site.reading() as session:
            return list(session.scalars(select(HistoryEntry).order_by(HistoryEntry.id)))

    def rows(self) -> dict[str, dict[str, object]]:
        """Every row of every table but the history, by its name."""
        with self.site.reading() as session:
            return {
                f"{mapper.local_table}:{mapper.primary_key_from_instance(row)}": {
                    column.key: getattr(row, column.key) for column in mapper.column_attrs
                }
                for mapper in Base.registry.mappers
                if mapper.class_ is not HistoryEntry
                for row in session.scalars(select(mapper.class_))
            }

    def change(self, writer: Writer) -> None:
        """Let a colleague change the record whose version the writer's call names."""
        kind, find = writer.goes
        columns = {Page: "title", ContentElement: "body", File: "name"}
        with self.site.writing() as session:
            row = session.get(kind, find(self.ids))
            setattr(row, columns[kind], "Changed by a colleague.")

    def remove(self, writer: Writer) -> None:
        """Let a colleague remove the record that the writer's call cannot do without."""
        kind, find = writer.goes
        with self.site.writing() as session:
            session.execute(delete(kind).where(kind.id == find(self.ids)))

    def revoke(self, user: str = EDITOR) -> None:
        """Take somebody's rights away."""
        with self.site.writing() as session:
            session.execute(delete(Right).where(Right.user_id == user))
            session.execute(update(User).where(User.id == user).values(edits_files=False))


def tool_named(name: str) -> Tool:
    """Find one of the site's tools."""
    return next(tool for tool in (*READING, *WRITING) if tool.spec.name == name)


def answers(model: ScriptedModel) -> list[ToolMessage]:
    """What the tools said to the model, as of its last turn."""
    return [message for message in model.requests[-1].messages if isinstance(message, ToolMessage)]


def approval(run: Run) -> Decision:
    """Approve all that waits."""
    assert run.pending is not None
    return Decision.approve(run.pending.digest)


def _ids(site: Site) -> Ids:
    with site.reading() as session:
        pages = {slug: uid for slug, uid in session.execute(select(Page.slug, Page.id)) if slug}
        museum = session.get_one(Page, pages["boathouse-museum"])
        text = next(element.id for element in museum.elements if element.column is Column.MAIN)
        projector = session.scalars(select(File.id).where(File.name == "projector.svg")).one()
    return Ids(
        culture=pages["culture"],
        museum=museum.id,
        film_club=pages["film-club"],
        museum_text=text,
        projector=projector,
        news=pages["news"],
    )
