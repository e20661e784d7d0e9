"""Kill -9 in the middle of a turn: each of its calls ends with one result, and what was decided is not lost."""

import pytest

from byline import (
    AlreadyDecided,
    Approve,
    Decision,
    Deny,
    Reconciliation,
    RecordReference,
    Run,
    RunStatus,
    StaleDecision,
    StepKind,
    WriteKind,
)
from byline.testing import call
from tests.crash.program import Order
from tests.crash.site import ADD, READ, SET, Flavour, Site
from tests.crash.story import announced, approved, recovered, suspended, the_run
from tests.crash.workers import Workers
from tests.host import BOB

ONE, TWO, THREE = (call("add_element", page_id=42, text=text) for text in ("one", "two", "three"))
THREE_WRITES = [ONE, TWO, THREE]

pytestmark = [pytest.mark.promise("P19", "P20"), pytest.mark.report(16, 22)]


async def results(site: Site, run: Run) -> list[str]:
    """How each call of the run ended, in order. A call that ended twice would be here twice."""
    async with site.opened() as runtime:
        steps = await runtime.list_steps(run.run_id)
    ended = [step for step in steps if step.kind is StepKind.TOOL]
    assert len({step.call_id for step in ended}) == len(ended)
    return [str(step.payload["outcome"]) for step in ended]


@pytest.mark.report(18)
@pytest.mark.parametrize(
    "point, landed", [("after step", 1), ("after step 2", 2), ("before fence 2", 1), ("after step 3", 3)]
)
async def test_between_two_writes_nothing_is_uncertain(site: Site, workers: Workers, point: str, landed: int) -> None:
    run = await suspended(site, THREE_WRITES)
    workers.start(Order("decide", (THREE_WRITES,), run_id=run.run_id, watched={point})).at(point).kill()
    assert site.elements() == ["one", "two", "three"][:landed]
    run = await recovered(site, THREE_WRITES)
    assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
    assert site.elements() == ["one", "two", "three"]
    assert site.ran(ADD.tool) == [(1, 2)] * landed + [(1, 3)] * (3 - landed)
    assert site.heard() == await announced(site) == [(f"elements:{uid}", "created") for uid in (1, 2, 3)]
    assert await results(site, run) == ["succeeded"] * 3
    assert site.asked() == ["first", "closing"]


@pytest.mark.report(18, 24)
@pytest.mark.promise("P9")
@pytest.mark.parametrize("verdict", ["landed", "leave it", "run again"])
async def test_within_a_write_the_others_of_its_turn_run_once(site: Site, workers: Workers, verdict: str) -> None:
    run = await suspended(site, THREE_WRITES)
    point = "host committed 2" if verdict == "landed" else "in execute 2"
    workers.start(Order("decide", (THREE_WRITES,), run_id=run.run_id, watched={point})).at(point).kill()
    run = await recovered(site, THREE_WRITES)
    assert run.status is RunStatus.UNCERTAIN
    assert run.uncertain is not None
    assert run.uncertain.call is not None
    assert run.uncertain.call.arguments["text"] == "two"
    assert len(site.ran(ADD.tool)) == 2
    digest = run.uncertain.digest
    said = {
        "landed": Reconciliation.landed(digest, RecordReference("elements", 2), WriteKind.CREATED),
        "leave it": Reconciliation.leave_it(digest),
        "run again": Reconciliation.run_again(digest),
    }[verdict]
    async with site.opened(THREE_WRITES, hours=3) as runtime:
        run = await runtime.reconcile(run.run_id, said, actor=BOB)
    assert run.status is RunStatus.COMPLETED
    assert site.elements() == ["one", "two", "three"] if verdict != "leave it" else ["one", "three"]
    assert [attempt for attempt, _ in site.ran(ADD.tool)] == [1, 1, *[2] * (verdict == "run again"), 1]
    assert len(set(site.keys(ADD.tool))) == 3
    assert await results(site, run) == ["succeeded", "left" if verdict == "leave it" else "succeeded", "succeeded"]
    assert site.asked() == ["first", "closing"]


@pytest.mark.parametrize("write", [SET, ADD], ids=str)
async def test_reads_around_a_write_run_once(site: Site, workers: Workers, write: Flavour) -> None:
    before, after = READ.call, call("read_page", page_id=41)
    turn = [before, write.call, after]
    run = await suspended(site, turn)
    assert site.ran(READ.tool) == []
    point = "host committed 2"  # the read's was the first
    workers.start(Order("decide", (turn,), run_id=run.run_id, watched={point})).at(point).kill()
    assert len(site.ran(READ.tool)) == 1
    run = await recovered(site, turn)
    if not write.repeatable:
        assert run.status is RunStatus.UNCERTAIN
        assert run.uncertain is not None
        assert len(site.ran(READ.tool)) == 1
        landed = Reconciliation.landed(run.uncertain.digest, RecordReference("elements", 1), WriteKind.CREATED)
        async with site.opened(turn, hours=3) as runtime:
            run = await runtime.reconcile(run.run_id, landed, actor=BOB)
    assert run.status is RunStatus.COMPLETED
    assert len(site.ran(READ.tool)) == 2
    assert len(site.ran(write.tool)) == (2 if write.repeatable else 1)
    assert await results(site, run) == ["succeeded"] * 3


async def test_reads_beside_a_finished_one_run_again_alone(site: Site, workers: Workers) -> None:
    turn = [call("read_page", page_id=uid) for uid in (41, 42, 43)]
    watched = {"execute begins", "execute begins 2", "after step"}
    worker = workers.start(Order("run", (turn,), watched=watched))
    worker.at("execute begins").at("execute begins 2").at("after step").kill()  # two are held, the third is stored
    run = await recovered(site, turn)
    assert run.status is RunStatus.COMPLETED
    assert len(site.ran(READ.tool)) == 5
    assert await results(site, run) == ["succeeded"] * 3
    assert site.asked() == ["first", "closing"]


@pytest.mark.report(24)
async def test_the_key_of_a_call_is_new_for_a_new_call_only(site: Site, workers: Workers) -> None:
    """The same call, made again in another turn, is another call; a restart changes neither's key."""
    turns = ([SET.call], [SET.call])
    run = await suspended(site, *turns)
    order = Order("decide", turns, run_id=run.run_id, watched={"host committed"})
    workers.start(order).at("host committed").kill()
    run = await recovered(site, *turns)
    assert run.status is RunStatus.AWAITING_APPROVAL
    run = await approved(site, run, *turns)
    assert run.status is RunStatus.COMPLETED
    first, again, other = site.keys(SET.tool)
    assert first == again
    assert first != other


async def test_a_stored_decision_is_final(site: Site, workers: Workers) -> None:
    waiting = await suspended(site, [ADD.call])
    assert waiting.pending is not None
    order = Order("decide", ([ADD.call],), run_id=waiting.run_id, watched={"after decide"})
    workers.start(order).at("after decide").kill()
    async with site.opened([ADD.call], hours=1) as runtime:
        with pytest.raises(AlreadyDecided):
            await runtime.decide(waiting.run_id, Decision.deny(waiting.pending.digest), actor=BOB)
        assert (await runtime.recover()).executed == (waiting.run_id,)
        assert (await runtime.get_run(waiting.run_id)).status is RunStatus.COMPLETED
    assert site.elements() == ["Who we are."]


@pytest.mark.parametrize("point", ["after claim", "in execute", "after step", "before step 2"])
async def test_a_denial_outlives_the_process(site: Site, workers: Workers, point: str) -> None:
    turn = [SET.call, ADD.call]
    waiting = await suspended(site, turn)
    assert waiting.pending is not None
    first, second = (waiting_call.id for waiting_call in waiting.pending.calls)
    mixed = Decision.per_call(waiting.pending.digest, {first: Approve(), second: Deny("Not on this page.")})
    async with site.opened(turn, execution="queued") as runtime:
        await runtime.decide(waiting.run_id, mixed, actor=BOB)
    workers.start(Order("execute", (turn,), run_id=waiting.run_id, watched={point})).at(point).kill()
    run = await recovered(site, turn)
    assert run.status is RunStatus.COMPLETED
    assert site.ran(ADD.tool) == []
    assert await results(site, run) == ["succeeded", "denied"]
    assert site.asked() == ["first", "closing"]


@pytest.mark.promise("P8", "P9")
@pytest.mark.parametrize(
    "point, stored, heard",
    [
        ("before reconcile", False, 0),
        ("after reconcile", True, 0),
        ("after claim", True, 0),
        ("listener heard", True, 1),
        ("before step", True, 1),
    ],
)
async def test_a_verdict_outlives_the_process(
    site: Site, workers: Workers, point: str, stored: bool, heard: int
) -> None:
    waiting = await suspended(site, THREE_WRITES)
    order = Order("decide", (THREE_WRITES,), run_id=waiting.run_id, watched={"host committed 2"})
    workers.start(order).at("host committed 2").kill()
    uncertain = (await recovered(site, THREE_WRITES)).uncertain
    assert uncertain is not None
    assert waiting.pending is not None
    last = waiting.pending.calls[2].id
    two = RecordReference("elements", 2)
    landed = Reconciliation.landed(uncertain.digest, two, WriteKind.CREATED, deny=[last])
    order = Order("reconcile", (THREE_WRITES,), run_id=waiting.run_id, verdict=landed, hours=3, watched={point})
    workers.start(order).at(point).kill()
    assert (await the_run(site)).status is not RunStatus.COMPLETED
    async with site.opened(THREE_WRITES, hours=4) as runtime:
        await runtime.recover()
        run = await runtime.get_run(waiting.run_id)
        assert (run.status is RunStatus.UNCERTAIN) is not stored
        if not stored:
            run = await runtime.reconcile(run.run_id, landed, actor=BOB)
    assert run.status is RunStatus.COMPLETED
    assert site.elements() == ["one", "two"]
    assert await results(site, run) == ["succeeded", "succeeded", "denied"]
    assert site.heard() == [("elements:1", "created")] + [("elements:2", "created")] * (heard + 1)
    assert await announced(site) == [("elements:1", "created"), ("elements:2", "created")]


@pytest.mark.promise("P9")
async def test_a_write_that_was_run_again_and_died_again_is_another_question(site: Site, workers: Workers) -> None:
    waiting = await suspended(site, [ADD.call])
    order = Order("decide", ([ADD.call],), run_id=waiting.run_id, watched={"in execute"})
    workers.start(order).at("in execute").kill()
    before = (await recovered(site, [ADD.call])).uncertain
    assert before is not None
    again = Reconciliation.run_again(before.digest)
    order = Order("reconcile", ([ADD.call],), run_id=waiting.run_id, verdict=again, hours=3, watched={"host committed"})
    workers.start(order).at("host committed").kill()
    run = await recovered(site, [ADD.call], hours=5)
    assert run.status is RunStatus.UNCERTAIN
    assert run.uncertain is not None
    assert (run.uncertain.fence.attempt, run.uncertain.digest == before.digest) == (2, False)
    assert [attempt for attempt, _ in site.ran(ADD.tool)] == [1, 2]
    landed = Reconciliation.landed(run.uncertain.digest, RecordReference("elements", 1), WriteKind.CREATED)
    async with site.opened([ADD.call], hours=6) as runtime:
        with pytest.raises(StaleDecision):
            await runtime.reconcile(run.run_id, again, actor=BOB)
        run = await runtime.reconcile(run.run_id, landed, actor=BOB)
    assert run.status is RunStatus.COMPLETED
    assert len(site.elements()) == 1
    assert site.heard() == [("elements:1", "created")]
