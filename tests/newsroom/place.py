"""The newsroom as a place over which processes are started and killed: the crash tests' site with the real tools.

A folder holds `site.db` (the newsroom), `byline.db` (the runs) and `host.db` (what tools and listener were seen to
do, whichever process they were in). The points "in execute" and "host committed" lie around the newsroom's own commit.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Unpack

from pydantic import JsonValue
from sqlalchemy import delete, func, select, update

from byline import AgentRuntime, ModelCall, Run, RunStatus, RunStore, Tool, ToolContext, ToolResult, ToolSpec
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel, call
from byline.tools.protocol import Verification
from examples.newsroom.authority import NewsroomAuthority
from examples.newsroom.crash import Moment, on_commit
from examples.newsroom.models import ContentElement, File, HistoryEntry, Page, Right, User
from examples.newsroom.tools import READING, WRITING
from tests.crash.points import Points
from tests.crash.program import Order
from tests.crash.site import AN_HOUR, Flavour, Site
from tests.crash.story import announced, the_run
from tests.crash.workers import Workers
from tests.host import AgentFacts, Settings
from tests.newsroom.cases import FILES, Case, End, Need
from tests.newsroom.stage import Ids, Stage, answers


class Watched(Tool):
    """A tool of the newsroom: every execution, and every look whether one landed, is counted before it begins."""

    def __init__(self, tool: Tool, place: "Newsroom") -> None:
        self._tool = tool
        self._place = place

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    @property
    def verifies(self) -> bool:
        return self._tool.verifies

    def validate(self, arguments: str) -> dict[str, JsonValue]:
        return self._tool.validate(arguments)

    async def execute(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> ToolResult:
        self._place.count(context, self.spec.name)
        return await self._tool.execute(context, arguments)

    async def make_preview(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> Sequence[str]:
        return await self._tool.make_preview(context, arguments)

    async def check_landed(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> Verification:
        self._place.count_verify(context)
        return await self._tool.check_landed(context, arguments)


class Newsroom(Site):
    """The newsroom in a folder, which any process may open."""

    def __init__(self, path: Path, points: Points | None = None) -> None:
        super().__init__(path, points)
        self.stage = Stage(path.parent, _ids_of_the_first_day(path.parent))
        self.model: ScriptedModel | None = None
        on_commit(self.stage.site, Moment.BEFORE, lambda _: self.points.reach("in execute"))
        on_commit(self.stage.site, Moment.AFTER, lambda _: self.points.reach("host committed"))

    # -- its runs -----------------------------------------------------------------------------------

    def turn(self, case: Case, **other: JsonValue) -> list[ModelCall]:
        """The one good call of a writer, or with other arguments, as a model's turn."""
        return [call(case.writer.tool, **(case.writer.arguments(self.stage.ids) | other))]

    def flavour(self, case: Case) -> Flavour:
        """The writer as the crash table knows it. What it will have told of is not known before."""
        return Flavour(case.writer.tool, self.turn(case)[0], (), repeatable=case.idempotent)

    def tools(self) -> list[Tool]:
        return [*READING, *(Watched(tool, self) for tool in WRITING)]

    def script(self, *turns: Sequence[ModelCall]) -> ScriptedModel:
        self.model = super().script(*turns)
        return self.model

    def opened(
        self,
        *turns: Sequence[ModelCall],
        store: RunStore | None = None,
        tools: Sequence[Tool] | None = None,
        hours: float = 0.0,
        agent: AgentFacts | None = None,
        **settings: Unpack[Settings],
    ) -> AgentRuntime:
        if store is None:
            store = SqlStore(self.url, clock=lambda: time.time() + hours * AN_HOUR)
        settings.setdefault("authority", NewsroomAuthority(self.stage.site))
        settings.setdefault("resources", self.stage.site)
        every = self.tools() if tools is None else tools
        return super().opened(*turns, store=store, tools=every, agent=agent, **settings)

    def told(self) -> str:
        """What the one call's result said to the model."""
        assert self.model is not None
        [answer] = answers(self.model)
        return answer.text

    # -- what stands there --------------------------------------------------------------------------

    def effects(self, case: Case) -> int:
        """How often the effect of a writer's call is to be seen in the site's own tables."""
        with self.stage.site.reading() as session:
            return case.effects(session, self.stage.ids)

    def landed(self) -> list[tuple[str, str]]:
        """Record and kind of each entry of the site's history, in order."""
        return [
            (f"{entry.record_table}:{entry.record_uid}", "created" if entry.before is None else "updated")
            for entry in self.stage.history()
        ]

    def most_landings_of_a_call(self) -> int:
        """How often the call that landed most often is in the site's history."""
        with self.stage.site.reading() as session:
            times = session.scalars(select(func.count()).group_by(HistoryEntry.call)).all()
        return max(times, default=0)

    # -- what its people do -------------------------------------------------------------------------

    def let(self, user: str, needs: Iterable[Need]) -> None:
        """Give somebody these rights, and no other."""
        given = list(needs)
        with self.stage.site.writing() as session:
            session.execute(delete(Right).where(Right.user_id == user))
            session.execute(update(User).where(User.id == user).values(edits_files=FILES in given))
            session.add_all(
                Right(user_id=user, page_id=need.page(self.stage.ids), language=need.language)
                for need in given
                if need.page is not None
            )

    def close_account(self, user: str, *, closed: bool = True) -> None:
        with self.stage.site.writing() as session:
            session.execute(update(User).where(User.id == user).values(disabled=closed))

    def change_there_and_back(self, case: Case) -> None:
        """Let a colleague change the record whose version the call names, and take that back."""
        end = case.ends[0]
        column = {Page: "title", ContentElement: "body", File: "name"}[end.kind]
        for mark in ("!", ""):
            with self.stage.site.writing() as session:
                row = session.get_one(end.kind, end.find(self.stage.ids))
                text: str = getattr(row, column)
                setattr(row, column, text.removesuffix("!") + mark)

    def hide_museum(self) -> None:
        with self.stage.site.writing() as session:
            session.get_one(Page, self.stage.ids.museum).hidden = True

    def remove(self, end: End) -> None:
        """Remove a record, and with it what cannot stand without it."""
        with self.stage.site.writing() as session:
            session.execute(delete(end.kind).where(end.kind.id == end.find(self.stage.ids)))


def _ids_of_the_first_day(folder: Path) -> Ids:
    kept = folder / "ids.json"
    if not kept.exists():
        kept.write_text(json.dumps(asdict(Stage(folder).ids)), "utf-8")
    return Ids(**json.loads(kept.read_text("utf-8")))


async def assert_nothing_written(newsroom: Newsroom, case: Case, *, executions: int) -> None:
    """Nothing of a call is to be seen: on the site, by the listener, in the feed."""
    assert (newsroom.effects(case), newsroom.landed()) == (0, [])
    assert (newsroom.heard(), await announced(newsroom)) == ([], [])
    assert len(newsroom.ran(case.writer.tool)) == executions


async def assert_landed_once(newsroom: Newsroom, case: Case, *, heard: int = 1) -> None:
    """The call stands once on the site and in the feed, as its record and kind, and was heard of so often."""
    assert newsroom.effects(case) == 1
    [(record, kind)] = newsroom.landed()
    assert (record.split(":")[0], kind) == (case.writer.table, case.writer.kind.value)
    assert newsroom.heard() == [(record, kind)] * heard
    assert await announced(newsroom) == [(record, kind)]


async def recovered_afresh(newsroom: Newsroom, workers: Workers, case: Case, *, hours: float = 2) -> Run:
    """What becomes of the one run when a fresh process looks after it."""
    worker = workers.start(Order("recover", (newsroom.turn(case),), hours=hours))
    assert worker.ended() == 0, worker.said()
    return await the_run(newsroom)


def assert_completed(run: Run) -> None:
    assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
