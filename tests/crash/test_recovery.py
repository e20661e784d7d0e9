"""Wake-ups that were lost, late or doubled, and recovery that leaves nobody waiting unseen (P17, P21)."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from byline import (
    Agent,
    AgentRuntime,
    ModelRequest,
    Reconciliation,
    RunStatus,
    TerminationReason,
    UnknownRun,
    UserMessage,
)
from byline.testing import ScriptedModel
from tests.crash.program import Order
from tests.crash.site import ADD, READ, SET, Flavour, Site
from tests.crash.story import killed_at, queued, recovered, suspended, the_run
from tests.crash.workers import Workers
from tests.host import ALICE, BOB

NO_RUN = "01900000-0000-7000-8000-000000000000"


@pytest.mark.promise("P17", "P21")
@pytest.mark.parametrize("flavour", [READ, SET, ADD], ids=str)
async def test_a_lost_wake_up_is_made_good_by_recovery(site: Site, flavour: Flavour) -> None:
    run = await queued(site, [flavour.call])
    async with site.opened([flavour.call]) as runtime:
        assert (await runtime.recover()).executed == (run.run_id,)
        assert (await runtime.get_run(run.run_id)).status is RunStatus.COMPLETED
    assert len(site.ran(flavour.tool)) == 1


@pytest.mark.promise("P17", "P18")
@pytest.mark.parametrize("flavour", [READ, SET, ADD], ids=str)
async def test_a_doubled_wake_up_executes_once(site: Site, workers: Workers, flavour: Flavour) -> None:
    run = await queued(site, [flavour.call])
    order = Order("execute", ([flavour.call],), run_id=run.run_id, watched={"entering claim"})
    both = [workers.start(order), workers.start(order)]
    for worker in both:
        worker.at("entering claim")
    for worker in both:
        worker.go_on("entering claim")
    async with site.opened([flavour.call]) as runtime:
        await asyncio.gather(*(runtime.execute(run.run_id) for _ in range(3)))
    assert [worker.ended() for worker in both] == [0, 0]
    assert (await the_run(site)).status is RunStatus.COMPLETED
    assert len(site.ran(flavour.tool)) == 1
    assert site.heard() == list(flavour.told)


@pytest.mark.promise("P17")
async def test_a_wake_up_for_a_run_that_another_process_executes_leaves_it_alone(site: Site, workers: Workers) -> None:
    run = await suspended(site, [ADD.call])
    worker = workers.start(Order("decide", ([ADD.call],), run_id=run.run_id, watched={"execute begins"}))
    worker.at("execute begins")
    async with site.opened([ADD.call]) as runtime:
        assert (await runtime.execute(run.run_id)).status is RunStatus.RUNNING
    worker.go_on("execute begins")
    assert worker.ended() == 0, worker.said()
    assert site.ran(ADD.tool) == [(1, 2)]


@pytest.mark.promise("P17")
async def test_a_late_wake_up_finds_the_run_as_it_stands(site: Site, workers: Workers) -> None:
    waiting = await suspended(site, [ADD.call])
    assert waiting.pending is not None
    async with site.opened([ADD.call]) as runtime:
        assert (await runtime.execute(waiting.run_id)).status is RunStatus.AWAITING_APPROVAL
    order = Order("decide", ([ADD.call],), run_id=waiting.run_id, watched={"host committed"})
    workers.start(order).at("host committed").kill()
    uncertain = (await recovered(site, [ADD.call])).uncertain
    assert uncertain is not None
    async with site.opened([ADD.call], hours=3) as runtime:
        assert (await runtime.execute(waiting.run_id)).status is RunStatus.UNCERTAIN
        await runtime.reconcile(waiting.run_id, Reconciliation.leave_it(uncertain.digest), actor=BOB)
        assert (await runtime.execute(waiting.run_id)).status is RunStatus.COMPLETED
        other = await runtime.run("editor", "Describe page 42.", actor=ALICE)
        await runtime.cancel(other.run_id, actor=ALICE)
        assert (await runtime.execute(other.run_id)).status is RunStatus.CANCELLED
        with pytest.raises(UnknownRun):
            await runtime.execute(NO_RUN)
    assert site.asked() == ["first", "closing", "first"]
    assert len(site.ran(ADD.tool)) == 1


@pytest.mark.promise("P21")
async def test_a_runtime_that_recovers_takes_over_while_it_is_open(site: Site, workers: Workers) -> None:
    await killed_at("after fence", site, workers, SET)
    async with site.opened([SET.call], hours=1, recover=True, beat=0.2) as runtime:
        await until(runtime, RunStatus.COMPLETED)
        waiting = await runtime.enqueue("editor", "Describe page 42.", actor=ALICE)  # in a round that comes later
        await until(runtime, RunStatus.AWAITING_APPROVAL)
        assert (await runtime.get_run(waiting.run_id)).pending is not None


async def until(runtime: AgentRuntime, status: RunStatus) -> None:
    async with asyncio.timeout(20):
        while not await runtime.list_runs(status=status):  # noqa: ASYNC110 - a store rings no bell
            await asyncio.sleep(0.02)


@pytest.mark.promise("P21")
async def test_what_waits_is_listed_and_expires(site: Site, workers: Workers) -> None:
    """Also where the process that would have told somebody died as soon as it had stored it."""
    workers.start(Order("run", ([SET.call],), watched={"after suspend"})).at("after suspend").kill()
    async with site.opened([SET.call]) as runtime:
        (run,) = await runtime.list_runs(status=RunStatus.AWAITING_APPROVAL)
        assert run.pending is not None
        assert [call.tool for call in run.pending.calls] == [SET.tool]
    async with site.opened([SET.call], hours=2, agent={"approval_ttl": 3_600.0}) as runtime:
        recovery = await runtime.recover()
        assert (recovery.executed, recovery.expired) == ((), (run.run_id,))
        run = await runtime.get_run(run.run_id)
    assert (run.status, run.reason) == (RunStatus.FAILED, TerminationReason.APPROVAL_EXPIRED)
    assert site.ran(SET.tool) == []


@pytest.mark.promise("P21")
async def test_runs_that_cannot_be_read_hold_up_no_other(site: Site) -> None:
    """However many of them there are: they have waited longest, and are found first each time."""
    async with site.opened([READ.call]) as runtime:
        broken = [(await runtime.enqueue("editor", "Read page 42.", actor=ALICE)).run_id for _ in range(101)]
    with closing(sqlite3.connect(site.path.parent / "byline.db")) as store, store:
        store.execute("update byline_message set body = x'00'")
    sound = await queued(site, [READ.call])
    async with site.opened([READ.call]) as runtime:
        recovery = await runtime.recover()
        assert recovery.executed == (sound.run_id,)
        assert recovery.skipped.keys() == set(broken)
        assert all(recovery.skipped.values())
        assert (await runtime.get_run(broken[0])).status is RunStatus.QUEUED
        assert (await runtime.get_run(sound.run_id)).status is RunStatus.COMPLETED


@pytest.mark.promise("P21")
async def test_runs_of_agents_that_are_loaded_elsewhere_hold_up_no_other(site: Site) -> None:
    elsewhere = Agent(name="elsewhere", model=ScriptedModel(["Done."]))
    async with AgentRuntime(store=site.url, agents=[elsewhere]) as runtime:
        for _ in range(101):
            await runtime.enqueue("elsewhere", "Read page 42.", actor=ALICE)
    run = await queued(site, [READ.call])
    async with site.opened([READ.call]) as runtime:
        assert (await runtime.recover()).executed == (run.run_id,)
        others = await runtime.list_runs(agent="elsewhere", limit=200)
        assert {other.status for other in others} == {RunStatus.QUEUED}
        assert {other.problem for other in others} == {"agent 'elsewhere' is not loaded in this process"}


@pytest.mark.promise("P21")
async def test_a_run_that_takes_long_holds_up_no_other(site: Site) -> None:
    hanging, let_go = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        if isinstance(request.messages[0], UserMessage) and request.messages[0].text == "Take long.":
            hanging.set()
            await let_go.wait()
        return "Done."

    runtime = site.runtime([answer], store=site.url, recover=True, beat=0.2, grace=0.5)
    async with runtime, asyncio.timeout(10):
        slow = await runtime.enqueue("editor", "Take long.", actor=ALICE)
        await hanging.wait()
        quick = await runtime.enqueue("editor", "Take up the others.", actor=ALICE)
        await until(runtime, RunStatus.COMPLETED)
        assert (await runtime.get_run(quick.run_id)).status is RunStatus.COMPLETED
        assert (await runtime.get_run(slow.run_id)).status is RunStatus.RUNNING
        let_go.set()
