"""A process that is asked to end by a signal: it finishes its step, hands the run back, and loses nothing."""

import signal
import time

import pytest

from byline import NotDecidable, Reconciliation, RecordReference, RunStatus, StepKind, UncertaintyReason, WriteKind
from tests.crash.program import Order
from tests.crash.site import ADD, READ, SET, Flavour, Site
from tests.crash.story import announced, queued, recovered, suspended, the_run
from tests.crash.workers import Workers
from tests.host import BOB

pytestmark = pytest.mark.promise("P21", "P22")


@pytest.mark.promise("P20")
@pytest.mark.report(38)
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("flavour", [SET, ADD], ids=str)
async def test_a_write_in_flight_ends_is_announced_and_its_run_is_handed_back(
    site: Site, workers: Workers, flavour: Flavour, stop: signal.Signals
) -> None:
    """SIGTERM to a main that closes its runtime; Ctrl-C to one that does no more than `asyncio.run`."""
    run = await suspended(site, [flavour.call])
    order = Order(
        "decide",
        ([flavour.call],),
        run_id=run.run_id,
        watched={"host committed", "stopping"},
        serves=stop is signal.SIGTERM,
    )
    worker = workers.start(order).at("host committed").signal(stop).at("stopping")
    worker.go_on("stopping").go_on("host committed")
    assert worker.ended() == (0 if stop is signal.SIGTERM else 1), worker.said()

    run = await the_run(site)
    assert run.status is RunStatus.QUEUED
    assert site.heard() == await announced(site) == list(flavour.told)
    assert site.asked() == ["first"]
    async with site.opened() as runtime:
        kinds = [step.kind for step in await runtime.list_steps(run.run_id)]
    assert kinds[-3:] == [StepKind.TOOL, StepKind.WRITE, StepKind.HANDED_BACK]

    run = await recovered(site, [flavour.call], hours=0, max_takeovers=0)  # at once: no lease has to run out
    assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
    assert site.ran(flavour.tool) == [(1, 2)]
    assert site.heard() == list(flavour.told)


@pytest.mark.promise("P19")
async def test_a_read_in_flight_ends_and_does_not_run_again(site: Site, workers: Workers) -> None:
    order = Order("run", ([READ.call],), watched={"in execute", "stopping"}, serves=True)
    worker = workers.start(order).at("in execute").signal(signal.SIGTERM).at("stopping")
    worker.go_on("stopping").go_on("in execute")
    assert worker.ended() == 0, worker.said()
    assert (await the_run(site)).status is RunStatus.QUEUED
    run = await recovered(site, [READ.call], hours=0)
    assert run.status is RunStatus.COMPLETED
    assert len(site.ran(READ.tool)) == 1
    assert site.asked() == ["first", "closing"]


@pytest.mark.report(38)
async def test_the_next_write_of_the_turn_is_left_to_another_process(site: Site, workers: Workers) -> None:
    turn = [ADD.call, ADD.call]
    run = await suspended(site, turn)
    order = Order("decide", (turn,), run_id=run.run_id, watched={"host committed", "stopping"}, serves=True)
    worker = workers.start(order).at("host committed").signal(signal.SIGTERM).at("stopping")
    worker.go_on("stopping").go_on("host committed")
    assert worker.ended() == 0, worker.said()
    assert len(site.ran(ADD.tool)) == 1
    run = await recovered(site, turn, hours=0)
    assert run.status is RunStatus.COMPLETED
    assert [claim for _, claim in site.ran(ADD.tool)] == [2, 3]
    assert site.heard() == await announced(site) == [("elements:1", "created"), ("elements:2", "created")]


@pytest.mark.promise("P9", "P20")
@pytest.mark.parametrize("flavour", [SET, ADD], ids=str)
async def test_past_its_grace_a_write_in_flight_is_uncertain_and_the_process_ends(
    site: Site, workers: Workers, flavour: Flavour
) -> None:
    run = await suspended(site, [flavour.call])
    order = Order("decide", ([flavour.call],), run_id=run.run_id, watched={"host committed"}, serves=True, grace=0.3)
    worker = workers.start(order).at("host committed")
    asked_at = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0, worker.said()  # with its tool's thread still in the write
    assert time.monotonic() - asked_at < 10
    run = await the_run(site)
    assert (run.status, run.reason) == (RunStatus.UNCERTAIN, UncertaintyReason.INTERRUPTED)
    assert run.uncertain is not None
    assert (site.heard(), await announced(site)) == ([], [])
    run = await recovered(site, [flavour.call])
    assert run.status is RunStatus.UNCERTAIN
    assert run.uncertain is not None
    assert len(site.ran(flavour.tool)) == 1
    table, _, uid = flavour.told[0][0].partition(":")
    kind = WriteKind(flavour.told[0][1])
    landed = Reconciliation.landed(run.uncertain.digest, RecordReference(table, int(uid)), kind)
    async with site.opened([flavour.call]) as runtime:
        run = await runtime.reconcile(run.run_id, landed, actor=BOB)
        assert run.status is RunStatus.COMPLETED
        with pytest.raises(NotDecidable):
            await runtime.reconcile(run.run_id, landed, actor=BOB)
    assert site.heard() == await announced(site) == list(flavour.told)


async def test_a_process_that_stops_claims_nothing_more(site: Site, workers: Workers) -> None:
    first = await queued(site, [READ.call])
    second = await queued(site, [READ.call])
    order = Order("recover", ([READ.call],), watched={"in execute", "stopping"}, serves=True)
    worker = workers.start(order).at("in execute").signal(signal.SIGTERM).at("stopping")
    worker.go_on("stopping").go_on("in execute")
    assert worker.ended() == 0, worker.said()
    assert [claim for _, claim in site.ran(READ.tool)] == [1]
    async with site.opened([READ.call]) as runtime:
        for run in (first, second):
            assert (await runtime.get_run(run.run_id)).status is RunStatus.QUEUED
        assert await runtime.list_steps(second.run_id) == []
        assert set((await runtime.recover()).executed) == {first.run_id, second.run_id}
    assert [claim for _, claim in site.ran(READ.tool)] == [1, 1]  # it was not even claimed
