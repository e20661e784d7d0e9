"""The host of these tests: a tool of every kind of effect, each with points at which its process can be killed."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from byline import AfterAiRecordWrittenEvent, AgentRuntime, ModelCall, ModelRequest, Tool, ToolContext
from byline.models.scripted import Turn
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel, call
from tests.crash.points import Points
from tests.crash.tools import makers_of_elements, readers, writers_of_descriptions
from tests.host import Host, Settings

WORDS = "Who we are."
AN_HOUR = 3_600.0
SCHEMA = """
create table if not exists keyed_element (key text primary key, page_id integer not null, text text not null);
create table if not exists ran (tool text not null, key text not null, attempt integer not null, claim integer not null);
create table if not exists asked (turn text not null);
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

    def count(self, context: ToolContext, name: str) -> None:
        super().count(context, name)
        with self.connect() as database:
            ran = (name, context.idempotency_key, context.attempt, context.claim)
            database.execute("insert into ran values (?, ?, ?, ?)", ran)
        self.points.reach("execute begins")

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
            case "put_element":
                return len(self.ask("select 1 from keyed_element"))
            case "set_description" | "ensure_description":
                return int(self.description() == WORDS)
            case _:
                return 0

    def asked(self) -> list[str]:
        """Which answers the model was asked for, in order."""
        return [str(turn) for (turn,) in self.ask("select turn from asked order by rowid")]

    def script(self, *turns: Sequence[ModelCall]) -> ScriptedModel:
        """A model that makes these calls, turn by turn, and closes. It counts how often it is asked."""
        names = ["first", *map(str, range(2, len(turns) + 1))]
        calling = [self._turn(name, tuple(turn)) for name, turn in zip(names, turns, strict=True)]
        return ScriptedModel([*calling, self._turn("closing", "Done.")])

    def _turn(self, name: str, reply: str | Sequence[ModelCall]) -> Turn:
        def answer(_request: ModelRequest) -> str | Sequence[ModelCall]:
            with self.connect() as database:
                database.execute("insert into asked values (?)", (name,))
            self.points.reach(f"{name} answer")
            return reply

        return answer

    def listen(self, event: AfterAiRecordWrittenEvent, /) -> None:
        self.points.reach("listener told")
        super().listen(event)
        self.points.reach("listener heard")

    def tools(self) -> list[Tool]:
        return [*readers(self), *writers_of_descriptions(self), *makers_of_elements(self)]

    def fresh(
        self, *turns: Sequence[ModelCall], hours: float = 1.0, tools: Sequence[Tool] | None = None, **settings: Unpack[Settings]
    ) -> AgentRuntime:
        """A runtime of another process, hours later by its store's clock: every lease of before has run out."""
        store = SqlStore(self.url, clock=lambda: time.time() + hours * AN_HOUR)
        return self.runtime(self.script(*turns), store=store, tools=tools, **settings)
