"""A small host system for the tests: pages and elements in a real SQLite file, tools over them, people with rights.

`W` of the reports is `set_description` (idempotent) or `add_element` (not), `R` is `read_page`. Every execution
is counted in the host's own database, in a transaction of its own, before the tool does anything.
"""

import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypedDict, Unpack

from byline import (
    AfterAiRecordWrittenEvent,
    Agent,
    AgentRuntime,
    AiActorContext,
    Authority,
    Backoff,
    ChatModel,
    EventDispatcher,
    Grant,
    Listener,
    PrivacyLevel,
    ProposedCall,
    RecordReference,
    RunStore,
    Telemetry,
    Tool,
    ToolContext,
    ToolEffect,
    ToolError,
    ToolResult,
    Wakeup,
    WriteKind,
    tool,
)
from byline.models.scripted import Turn
from byline.testing import ScriptedModel

ALICE = AiActorContext.user("7")
"""Who starts runs."""
BOB = AiActorContext.user("8", grants=tuple(Grant))
"""Who decides."""

SCHEMA = """
create table if not exists page (id integer primary key, title text not null, description text not null default '');
create table if not exists element (id integer primary key autoincrement, page_id integer not null, text text not null);
create table if not exists executed (tool text not null, call_id text not null, attempt integer not null);
create table if not exists heard (correlation_id text not null, record text not null, kind text not null);
insert or ignore into page (id, title) values (41, 'Contact'), (42, 'About us'), (43, 'Opening hours');
"""


@dataclass(slots=True)
class People(Authority):
    """An authority whose answers a test can change."""

    disabled: set[str] = field(default_factory=set)
    forbidden: Callable[[AiActorContext, ProposedCall], bool] = lambda _actor, _call: False

    def load(self, actor_id: str, /) -> AiActorContext | None:
        return None if actor_id in self.disabled else AiActorContext.user(actor_id, grants=tuple(Grant))

    def may_run(self, actor: AiActorContext, call: ProposedCall, /) -> bool:
        return not self.forbidden(actor, call)


class AgentFacts(TypedDict, total=False):
    """What a test may set of the agent."""

    max_rounds: int
    second_approver: bool
    approval_ttl: float | None
    model_timeout: float
    privacy: PrivacyLevel
    output_ttl: float | None


class Settings(TypedDict, total=False):
    """What a test may set of the runtime."""

    listeners: Iterable[Listener]
    dispatcher: EventDispatcher
    authority: Authority
    resources: object
    execution: Literal["inline", "queued"]
    lease: float
    beat: float
    listener_timeout: float
    release_ttl: float
    grace: float
    max_takeovers: int
    max_model_failures: int
    backoff: Backoff
    recover: bool
    wakeup: Wakeup
    output_ttl: float | None
    privacy: PrivacyLevel
    telemetry: Telemetry


class Host:
    """The host's records, in one SQLite file that any process may open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.people = People()
        with self.connect() as database:
            database.executescript(SCHEMA)

    @contextmanager
    def connect(self) -> Generator[sqlite3.Connection, None, None]:
        """One connection, one transaction."""
        database = sqlite3.connect(self.path, timeout=20)
        try:
            with database:
                yield database
        finally:
            database.close()

    def ask(self, sql: str, *parameters: object) -> list[tuple[object, ...]]:
        """Read rows."""
        with self.connect() as database:
            return database.execute(sql, parameters).fetchall()

    def count(self, context: ToolContext, name: str) -> None:
        """Count one execution, whatever becomes of it."""
        with self.connect() as database:
            database.execute("insert into executed values (?, ?, ?)", (name, str(context.call_id), context.attempt))

    def executions(self, name: str | None = None) -> int:
        """How often a tool, or any, was executed."""
        if name is None:
            return len(self.ask("select 1 from executed"))
        return len(self.ask("select 1 from executed where tool = ?", name))

    def description(self, page_id: int = 42) -> str:
        return str(self.ask("select description from page where id = ?", page_id)[0][0])

    def elements(self) -> list[str]:
        return [str(text) for (text,) in self.ask("select text from element order by id")]

    def listen(self, event: AfterAiRecordWrittenEvent) -> None:
        """A listener that keeps what it heard, on its own connection."""
        with self.connect() as database:
            heard = (str(event.correlation_id), str(event.record), event.kind.value)
            database.execute("insert into heard values (?, ?, ?)", heard)

    def heard(self) -> list[tuple[str, str]]:
        """Records and kinds that the listener heard of, in order."""
        return [(str(record), str(kind)) for record, kind in self.ask("select record, kind from heard order by rowid")]

    def tools(self) -> list[Tool]:
        """R, and the two kinds of W."""
        host = self

        @tool(effect=ToolEffect.READ_ONLY)
        def read_page(context: ToolContext, page_id: int) -> ToolResult:
            """Read a page."""
            host.count(context, "read_page")
            rows = host.ask("select title, description from page where id = ?", page_id)
            return (
                ToolResult.text(f"{rows[0][0]}: {rows[0][1]}") if rows else ToolResult.error("There is no such page.")
            )

        @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
        def set_description(context: ToolContext, page_id: int, description: str) -> ToolResult:
            """Set the description of a page."""
            host.count(context, "set_description")
            with host.connect() as database:
                sql = "update page set description = ? where id = ?"
                if database.execute(sql, (description, page_id)).rowcount == 0:
                    raise ToolError("This page cannot be changed.")
            return ToolResult.text("Set.").with_write_target(RecordReference("pages", page_id), WriteKind.UPDATED)

        @set_description.preview
        def _(context: ToolContext, page_id: int, description: str) -> list[str]:
            return [f"- {host.description(page_id)}", f"+ {description}"]

        @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
        def add_element(context: ToolContext, page_id: int, text: str) -> ToolResult:
            """Add an element to a page."""
            host.count(context, "add_element")
            with host.connect() as database:
                uid = database.execute("insert into element (page_id, text) values (?, ?)", (page_id, text)).lastrowid
            assert uid is not None
            return ToolResult.text("Added.").with_write_target(RecordReference("elements", uid), WriteKind.CREATED)

        return [read_page, set_description, add_element]

    def runtime(
        self,
        model: ChatModel | Sequence[Turn],
        *,
        store: str | RunStore | None = None,
        tools: Sequence[Tool] | None = None,
        agent: AgentFacts | None = None,
        **settings: Unpack[Settings],
    ) -> AgentRuntime:
        """A runtime over this host: an agent "editor" that plays a script, the host's tools, listener and people."""
        playing = ScriptedModel(model) if isinstance(model, Sequence) else model
        facts: AgentFacts = {} if agent is None else agent
        editor = Agent(
            name="editor",
            model=playing,
            tools=self.tools() if tools is None else tools,
            max_rounds=facts.get("max_rounds", 20),
            second_approver=facts.get("second_approver", False),
            approval_ttl=facts.get("approval_ttl"),
            model_timeout=facts.get("model_timeout", 600.0),
            privacy=facts.get("privacy", PrivacyLevel.FULL),
        )
        if "dispatcher" not in settings:
            settings.setdefault("listeners", [self.listen])
        settings.setdefault("authority", self.people)
        where = store if store is not None else f"sqlite:///{self.path.parent / 'byline.db'}"
        return AgentRuntime(store=where, agents=[editor], **settings)
