"""Lists: in a stable order, a page at a time, and as quick for many as for few."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from uuid import UUID, uuid4

import pytest
from sqlalchemy import event

from byline import Agent, AgentRuntime, Decision, RecordReference, Run, RunStatus
from byline.models.scripted import Turn
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import Clock, start_and_approve, store_of, waiting
from tests.kernel.stopping import ADD, READ, SET

TURNS: list[Turn] = [[SET, ADD], "Done."]


async def pages(runtime: AgentRuntime, limit: int, status: RunStatus | None = None) -> list[Run]:
    """Read a list to its end, a page at a time."""
    read: list[Run] = []
    after: UUID | None = None
    while page := await runtime.list_runs(status=status, after=after, limit=limit):
        assert len(page) <= limit
        assert page[-1].run_id != after, "the page repeats, and would for ever"
        read += page
        after = page[-1].run_id
    return read


@pytest.mark.promise("P21")
@pytest.mark.parametrize("limit", [1, 3, 7, 100])
async def test_pages_of_runs_that_began_in_one_moment(host: Host, limit: int) -> None:
    """The clock stands still, and so their times say nothing: none is missed, none repeated."""
    async with host.runtime(["Done."], store=store_of(host, Clock())) as runtime:
        runs = [await runtime.enqueue("editor", f"{number}", actor=ALICE) for number in range(20)]
        assert len({run.created_at for run in runs}) == 1
        listed = await pages(runtime, limit)
        assert listed == await runtime.list_runs()
        assert sorted(run.run_id for run in listed) == sorted(run.run_id for run in runs)
        assert [run.run_id for run in listed] == sorted((run.run_id for run in runs), reverse=True)


@pytest.mark.promise("P21")
async def test_runs_that_begin_while_somebody_turns_the_pages(host: Host) -> None:
    """They come before the first page: what was being read is not shifted."""
    async with host.runtime(["Done."]) as runtime:
        old = [(await runtime.enqueue("editor", "…", actor=ALICE)).run_id for _ in range(6)]
        first = await runtime.list_runs(limit=3)
        new = [(await runtime.enqueue("editor", "…", actor=ALICE)).run_id for _ in range(3)]
        second = await runtime.list_runs(after=first[-1].run_id, limit=100)
        assert [run.run_id for run in (*first, *second)] == old[::-1]
        assert [run.run_id for run in await runtime.list_runs(limit=3)] == new[::-1]
        assert await runtime.list_runs(after=old[0]) == []


@pytest.mark.promise("P21")
async def test_by_status_and_by_agent(host: Host) -> None:
    clock = Clock()
    agents = [Agent(name=name, model=ScriptedModel(TURNS), tools=host.tools()) for name in ("editor", "writer")]
    async with AgentRuntime(store=store_of(host, clock), agents=agents, authority=host.people) as runtime:
        made: list[tuple[str, UUID]] = []
        for number in range(12):
            name = agents[number % 2].name
            run = await runtime.enqueue(name, "…", actor=ALICE)
            if number % 3 == 0:
                await runtime.cancel(run.run_id, actor=ALICE)
            made.append((name, run.run_id))
        for status, every in ((RunStatus.CANCELLED, made[::3]), (None, made)):
            for name in ("editor", "writer"):
                wanted = [run_id for agent, run_id in every if agent == name][::-1]
                listed = await runtime.list_runs(status=status, agent=name)
                assert [run.run_id for run in listed] == wanted
                two, rest = listed[:2], listed[2:]
                assert await runtime.list_runs(status=status, agent=name, limit=2) == two
                assert await runtime.list_runs(status=status, agent=name, after=two[-1].run_id) == rest
        assert await runtime.list_runs(agent="nobody") == []
        assert await pages(runtime, 1, RunStatus.CANCELLED) == await runtime.list_runs(status=RunStatus.CANCELLED)


@pytest.mark.promise("P21")
@pytest.mark.report(27)
async def test_a_fresh_process_lists_what_waits(host: Host) -> None:
    """The same calls, with what an approver needs: and what has been decided in part says so."""
    async with host.runtime(TURNS) as runtime:
        await runtime.enqueue("editor", "Later.", actor=ALICE)
        runs = [await runtime.run("editor", "Please do.", actor=ALICE) for _ in range(3)]
        assert runs[1].pending is not None
        denial = Decision.deny("").for_all
        assert denial is not None
        some = Decision.per_call(waiting(runs[1]), {runs[1].pending.calls[1].id: denial})
        runs[1] = await runtime.decide(runs[1].run_id, some, actor=BOB)
        await start_and_approve(runtime)
    async with host.runtime(TURNS) as runtime:
        listed = await runtime.list_runs(status=RunStatus.AWAITING_APPROVAL)
        assert listed == runs[::-1]
        for run in listed:
            assert run.pending is not None
            assert [call.tool for call in run.pending.calls] == ["set_description", "add_element"]
            assert run.pending.calls[0].preview == ("- ", "+ Who we are.")
            assert len(run.pending.undecided) == (1 if run.run_id == runs[1].run_id else 2)
            await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert await runtime.list_runs(status=RunStatus.AWAITING_APPROVAL) == []
        assert (host.executions("set_description"), host.executions("add_element")) == (4, 3)


@pytest.mark.promise("P21")
async def test_steps_a_page_at_a_time(host: Host) -> None:
    turns: list[Turn] = [[READ, READ], [SET, ADD], "Done."]
    async with host.runtime(turns) as runtime:
        run = await start_and_approve(runtime)
        steps = await runtime.list_steps(run.run_id)
        assert [step.position for step in steps] == sorted({step.position for step in steps})
        assert {step.run_id for step in steps} == {run.run_id}
        await start_and_approve(runtime)
        for limit in (1, 2, 5):
            read = list(await runtime.list_steps(run.run_id, limit=limit))
            while page := await runtime.list_steps(run.run_id, after=read[-1].position, limit=limit):
                assert page[-1] != read[-1], "the page repeats, and would for ever"
                read += page
            assert read == steps


@contextmanager
def statements(store: SqlStore) -> Generator[list[str], None, None]:
    """Every statement that the store sends to its database."""
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        sent.append(statement)

    event.listen(store.engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(store.engine, "before_cursor_execute", note)


async def lists(runtime: AgentRuntime, run_id: UUID) -> Sequence[int]:
    """Ask for every list, and say how long each was."""
    return [
        len(await runtime.list_runs()),
        len(await runtime.list_runs(status=RunStatus.AWAITING_APPROVAL, agent="editor")),
        len(await runtime.list_steps(run_id)),
        len(await runtime.writes()),
        len(await runtime.writes(table="pages")),
        len(await runtime.writes_of(RecordReference("pages", 42))),
        len(await runtime.late_reports()),
    ]


@pytest.mark.promise("P21", "P8")
async def test_a_list_of_many_costs_as_many_queries_as_one_of_few(host: Host) -> None:
    store = store_of(host)
    async with host.runtime(TURNS, store=store) as runtime:
        first = await start_and_approve(runtime)
        await runtime.run("editor", "Please do.", actor=ALICE)
        with statements(store) as few:
            short = await lists(runtime, first.run_id)
        for _ in range(15):
            await start_and_approve(runtime)
            await runtime.run("editor", "Please do.", actor=ALICE)
        with statements(store) as many:
            long = await lists(runtime, first.run_id)
        assert long[0] == 32 > short[0]
        assert long[3] == 32 > short[3]
        assert len(few) == len(many)
        assert len([each for each in many if not each.startswith(("BEGIN", "COMMIT", "ROLLBACK"))]) <= 10


@pytest.mark.promise("P21")
async def test_a_run_that_nobody_made_is_after_nothing(host: Host) -> None:
    """A cursor need not be that of a run which is still there."""
    async with host.runtime(["Done."]) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        assert await runtime.list_runs(after=UUID(int=run.run_id.int + 1)) == [run]
        assert await runtime.list_runs(after=UUID(int=uuid4().int >> 64)) == []
