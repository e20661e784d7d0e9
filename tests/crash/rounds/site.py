"""The host of a round: its records, the model that makes the planned calls, and the people who decide.

What is true of a call is asked of the host's own tables, by the call's mark: never of Byline.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias, Unpack
from uuid import UUID

from pydantic import JsonValue, TypeAdapter

from byline import (
    AgentRuntime,
    AlreadyDecided,
    ApprovalExpired,
    AssistantMessage,
    Decision,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    NotDecidable,
    NotRetryable,
    Reconciliation,
    RecordReference,
    Run,
    RunFinished,
    RunStatus,
    RunStore,
    StaleDecision,
    StoreUnavailable,
    Tool,
    UserMessage,
    WriteKind,
)
from byline.approval.decision import Approve, Change, Deny
from byline.store.sealing import KeyRing
from byline.testing import call
from tests.crash.points import Points
from tests.crash.rounds.plan import Plan, PlannedCall, PlannedRun
from tests.crash.site import Site
from tests.crash.tools import MAKERS
from tests.host import ALICE, BOB, AgentFacts, Settings
from tests.store.sqlite import KEYS

PLAN = TypeAdapter(Plan)
LOOK = 0.05
"""Seconds between two looks of the people."""
TOO_LATE = (AlreadyDecided, StaleDecision, NotDecidable, RunFinished, NotRetryable, ApprovalExpired)
FIRST_ELEMENT = 1_000_000
"""So that no `element` has the number of a `keyed_element`: both are records of one table."""
SCHEMA = """
create table if not exists known (name text primary key, run_id text not null);
create table if not exists said (what text not null, run_id text not null, about text not null, heard int not null);
"""
_Act: TypeAlias = Callable[[AgentRuntime, Run, PlannedRun], Awaitable[None]]


class RoundSite(Site):
    """The host's records, in a folder that also says what the round's plan is and where its runs are stored."""

    def __init__(self, path: Path, points: Points | None = None) -> None:
        super().__init__(path, points)
        self.plan = PLAN.validate_json((path.parent / "plan.json").read_bytes())
        with self.connect() as database:
            database.executescript(SCHEMA)

    @classmethod
    def made(cls, folder: Path, plan: Plan, url: str) -> "RoundSite":
        """Make the folder of a round."""
        (folder / "plan.json").write_bytes(PLAN.dump_json(plan))
        (folder / "store.url").write_text(url, "utf-8")
        site = cls(folder / "host.db")
        with site.connect() as database:
            pages = [(call.page, call.mark) for run in plan.runs for call in run.calls]
            database.executemany("insert into page (id, title) values (?, ?)", pages)
            database.execute("insert into element values (?, 1, '')", (FIRST_ELEMENT,))
            database.execute("delete from element")
        return site

    @property
    def url(self) -> str:
        return (self.path.parent / "store.url").read_text("utf-8")

    @property
    def sealed_with(self) -> KeyRing:
        return KEYS

    @property
    def settling(self) -> Path:
        """A file that is there once people may say what became of uncertain calls: no process is only stopped then."""
        return self.path.parent / "settling"

    def opened(
        self,
        *turns: Sequence[ModelCall],
        store: RunStore | None = None,
        tools: Sequence[Tool] | None = None,
        hours: float = 0.0,
        agent: AgentFacts | None = None,
        **settings: Unpack[Settings],
    ) -> AgentRuntime:
        made = [make(self) for make in MAKERS.values()]
        # What a listener waits for is a host whose file a stopped process has locked: that is not what is tested here.
        settings["listener_timeout"] = 30.0
        return self.runtime(_Planned(self), store=store, tools=made, **settings)

    # -- what is true of a call

    def landed(self, call: PlannedCall) -> list[RecordReference]:
        """The records that a call has written, as often as it did."""
        match call.tool:
            case "add_element":
                found = self.ask("select id from element where text = ?", call.mark)
            case "put_element" | "insert_element":
                found = self.ask("select rowid from keyed_element where text = ?", call.mark)
            case _:
                found = self.ask("select id from page where description = ?", call.mark)
        table = "elements" if "element" in call.tool else "pages"
        return [RecordReference(table, int(str(uid))) for (uid,) in found]

    def run_ids(self) -> dict[str, UUID]:
        """The runs that were started, by their planned names."""
        return {str(name): UUID(str(run_id)) for name, run_id in self.ask("select name, run_id from known")}

    # -- what people do

    async def attend(self, runtime: AgentRuntime) -> None:
        """Ask for every run, decide each as it is planned, and settle what is uncertain once that may be known."""
        for planned in self.plan.runs:
            prompt = planned.name
            run = await runtime.enqueue("editor", prompt, actor=ALICE, dedupe_key=planned.name)
            with self.connect() as database:
                database.execute("insert or ignore into known values (?, ?)", (planned.name, str(run.run_id)))
        names = {run_id: name for name, run_id in self.run_ids().items()}
        plans = {run_id: next(run for run in self.plan.runs if run.name == name) for run_id, name in names.items()}
        while True:
            try:
                for status, act in self._acts().items():
                    for run in await runtime.list_runs(status=status):
                        await act(runtime, run, plans[run.run_id])
            except StoreUnavailable as error:
                print(f"people look again: {error}", file=sys.stderr)
            await asyncio.sleep(LOOK)

    def _acts(self) -> "dict[RunStatus, _Act]":
        acts: dict[RunStatus, _Act] = {RunStatus.AWAITING_APPROVAL: self._decide}
        if self.settling.exists():
            acts |= {RunStatus.UNCERTAIN: self._settle, RunStatus.DEAD_LETTER: self._retry}
        return acts

    async def _decide(self, runtime: AgentRuntime, run: Run, plan: PlannedRun) -> None:
        if run.pending is None:
            return
        verdicts: dict[UUID, Approve | Deny | Change] = {}
        for pending in run.pending.calls:
            if pending.id not in run.pending.undecided:
                continue  # it reads, and waits for nobody
            planned = _planned(plan, pending.arguments)
            verdicts[pending.id] = Deny("planned") if planned.denied else Approve()
        with self._saying("decide", run, run.pending.digest):
            await runtime.decide(run.run_id, Decision.per_call(run.pending.digest, verdicts), actor=BOB)
        if plan.cancelled:
            with self._saying("cancel", run, ""):
                await runtime.cancel(run.run_id, actor=ALICE)

    async def _settle(self, runtime: AgentRuntime, run: Run, plan: PlannedRun) -> None:
        """Say what the host's own records say; if it did not land, run it again or leave it, each by turns."""
        uncertain = run.uncertain
        if uncertain is None or uncertain.call is None:
            return
        planned = _planned(plan, uncertain.call.arguments)
        found = self.landed(planned)
        if found:
            kind = WriteKind.UPDATED if found[0].table == "pages" else WriteKind.CREATED
            what, verdict = "landed", Reconciliation.landed(uncertain.digest, found[0], kind)
        elif planned.page % 2:
            what, verdict = "run again", Reconciliation.run_again(uncertain.digest)
        else:
            what, verdict = "leave it", Reconciliation.leave_it(uncertain.digest)
        with self._saying(what, run, planned.mark if what == "leave it" else str(uncertain.call_id)):
            await runtime.reconcile(run.run_id, verdict, actor=BOB)

    async def _retry(self, runtime: AgentRuntime, run: Run, _plan: PlannedRun) -> None:
        with self._saying("retry", run, ""):
            await runtime.retry(run.run_id)

    @contextmanager
    def _saying(self, what: str, run: Run, about: str) -> Generator[None]:
        """Keep what is about to be said, and then whether it was heard."""
        with self.connect() as database:
            said = database.execute("insert into said values (?, ?, ?, 0)", (what, str(run.run_id), about)).lastrowid
        try:
            yield
        except TOO_LATE as error:
            print(f"{what} of {run.run_id} came too late: {error!r}", file=sys.stderr)
            return
        with self.connect() as database:
            database.execute("update said set heard = 1 where rowid = ?", (said,))


class _Planned:
    """A model that makes the planned calls of whichever run it is asked about."""

    def __init__(self, site: RoundSite) -> None:
        self._site = site
        self._runs = {run.name: run for run in site.plan.runs}

    async def answer(self, request: ModelRequest, /) -> ModelAnswer:
        prompt = next(message.text for message in request.messages if isinstance(message, UserMessage))
        turns = self._runs[prompt].turns
        spoken = sum(isinstance(message, AssistantMessage) for message in request.messages)
        self._site.points.reach("first answer" if spoken == 0 else "closing answer")
        if spoken >= len(turns):
            return ModelAnswer(text="Done.")
        return ModelAnswer(calls=tuple(_call(planned) for planned in turns[spoken]))


def _call(planned: PlannedCall) -> ModelCall:
    if not planned.writes:
        return call(planned.tool, page_id=planned.page)
    if "element" in planned.tool:
        return call(planned.tool, page_id=planned.page, text=planned.mark)
    return call(planned.tool, page_id=planned.page, description=planned.mark)


def _planned(plan: PlannedRun, arguments: Mapping[str, JsonValue]) -> PlannedCall:
    """The planned call that these arguments are of: each has a page of its own."""
    return next(call for call in plan.calls if call.page == arguments["page_id"])
