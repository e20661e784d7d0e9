"""The host of these tests: a tool of every kind of effect, each with points at which its process can be killed."""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from byline import AfterAiRecordWrittenEvent, AgentRuntime, ModelCall, ModelRequest, RunStore, Tool, ToolContext
from byline.models.scripted import Turn
from byline.store.sealing import KeyRing
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel, call
from tests.crash.points import Points
from tests.crash.tools import MAKERS
from tests.host import AgentFacts, Host, Settings

WORDS = "Who we are."
AN_HOUR = 3_600.0
SCHEMA = """
create table if not exists keyed_element (key text primary key, page_id integer not null, text text not null);
create table if not exists ran (tool text not null, key text not null, attempt int not null, claim int not null);
create table if not exists asked (turn text not null);
create table if not exists verified (key text not null);
"""


@dataclass(frozen=True, slots=True)
class Flavour:
    """One kind of tool, as the crash table knows it: what it is called, what it writes, whether it may be repeated."""

    tool: str
    call: ModelCall
    told: tuple[tuple[str, str], ...]
    repeatable: bool

    def __str__(self) -> str:
        return self.tool


READ = Flavour("read_page", call("read_page", page_id=42), (), repeatable=True)
GATED_READ = Flavour("inspect_page", call("inspect_page", page_id=42), (), repeatable=True)
SET = Flavour(
    "set_description",
    call("set_description", page_id=42, description=WORDS),
    (("pages:42", "updated"),),
    repeatable=True,
)
COMPARE = Flavour(
    "ensure_description",
    call("ensure_description", page_id=42, description=WORDS),
    (("pages:42", "updated"),),
    repeatable=True,
)
UPSERT = Flavour(
    "put_element", call("put_element", page_id=42, text=WORDS), (("elements:1", "created"),), repeatable=True
)
ADD = Flavour(
    "add_element", call("add_element", page_id=42, text=WORDS), (("elements:1", "created"),), repeatable=False
)
INSERT = Flavour(
    "insert_element", call("insert_element", page_id=42, text=WORDS), (("elements:1", "created"),), repeatable=False
)
ON_LOOP = Flavour(
    "describe_on_loop",
    call("describe_on_loop", page_id=42, description=WORDS),
    (("pages:42", "updated"),),
    repeatable=True,
)


class Site(Host):
    """The host's records, and what the processes over it were seen to do."""

    def __init__(self, path: Path, points: Points | None = None) -> None:
        super().__init__(path)
        self.points = Points() if points is None else points
        with self.connect() as database:
            database.executescript(SCHEMA)

    @property
    def url(self) -> str:
        """Where the runs are stored."""
        return f"sqlite:///{self.path.parent / 'byline.db'}"

    @property
    def sealed_with(self) -> KeyRing | None:
        """The store's keys; None: those of the file beside it."""
        return None

    async def attend(self, runtime: AgentRuntime) -> None:
        """Do what this site's people do, for as long as the runtime is open. Here nobody does anything."""
        raise NotImplementedError

    def count(self, context: ToolContext, name: str) -> None:
        super().count(context, name)
        with self.connect() as database:
            ran = (name, context.idempotency_key, context.attempt, context.claim)
            database.execute("insert into ran values (?, ?, ?, ?)", ran)
        self.points.reach("execute begins")

    def stored(self) -> dict[str, list[tuple[object, ...]]]:
        """Every row of every run as it stands in the store, but late reports, and the announced facts of the feed."""
        tables = ("byline_run", "byline_message", "byline_decision", "byline_step where kind <> 'write'")
        with closing(sqlite3.connect(self.path.parent / "byline.db", timeout=20)) as store:
            return {table: store.execute(f"select * from {table} order by 1, 2").fetchall() for table in tables}  # noqa: S608

    def count_verify(self, context: ToolContext) -> None:
        with self.connect() as database:
            database.execute("insert into verified values (?)", (context.idempotency_key,))

    def verified(self) -> int:
        """How often a tool looked whether its call had landed."""
        return len(self.ask("select 1 from verified"))

    def ran(self, name: str) -> list[tuple[int, int]]:
        """Attempt and claim of every execution of a tool, in order."""
        rows = self.ask("select attempt, claim from ran where tool = ? order by rowid", name)
        return [(int(str(attempt)), int(str(claim))) for attempt, claim in rows]

    def keys(self, name: str) -> list[str]:
        """The idempotency key of every execution of a tool, in order."""
        return [str(key) for (key,) in self.ask("select key from ran where tool = ? order by rowid", name)]

    def rows(self, flavour: Flavour) -> int:
        """How often the write of a flavour is to be seen in the host's records."""
        match flavour.tool:
            case "add_element":
                return len(self.elements())
            case "put_element" | "insert_element":
                return len(self.ask("select 1 from keyed_element"))
            case "set_description" | "ensure_description" | "describe_on_loop":
                return int(self.description() == WORDS)
            case _:
                return 0

    def asked(self) -> list[str]:
        """Which answers the model was asked for, in order."""
        return [str(turn) for (turn,) in self.ask("select turn from asked order by rowid")]

    def script(self, *turns: Sequence[ModelCall]) -> ScriptedModel:
        """A model that makes these calls, turn by turn, and closes. It counts how often it is asked."""
        calling = [self._turn(f"{n}." if n > 1 else "first", tuple(turn)) for n, turn in enumerate(turns, 1)]
        return ScriptedModel([*calling, self._turn("closing", "Done.")])

    def _turn(self, name: str, reply: str | Sequence[ModelCall]) -> Turn:
        def answer(_request: ModelRequest) -> str | Sequence[ModelCall]:
            with self.connect() as database:
                database.execute("insert into asked values (?)", (name,))
            self.points.reach(f"{name} answer")
            return reply

        return answer

    def listen(self, event: AfterAiRecordWrittenEvent) -> None:
        self.points.reach("listener told")
        super().listen(event)
        self.points.reach("listener heard")

    def tools(self) -> list[Tool]:
        return [make(self) for make in MAKERS.values()]

    def opened(
        self,
        *turns: Sequence[ModelCall],
        store: RunStore | None = None,
        tools: Sequence[Tool] | None = None,
        hours: float = 0.0,
        agent: AgentFacts | None = None,
        **settings: Unpack[Settings],
    ) -> AgentRuntime:
        """A runtime that knows nothing of the others over this site, with the tools that its model calls.

        By its store's clock it is hours later: then every lease of before has run out.
        """
        if store is None:
            store = SqlStore(self.url, clock=lambda: time.time() + hours * AN_HOUR)
        if tools is None:
            tools = [MAKERS[name](self) for name in sorted({call.name for turn in turns for call in turn})]
        return self.runtime(self.script(*turns), store=store, tools=tools, agent=agent, **settings)
