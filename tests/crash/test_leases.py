"""Leases: who beats keeps its run, however busy it is and whatever its clock says; who does not loses it."""

import asyncio
import time
from typing import Literal

import pytest

from byline import ConfigurationError, RunStatus
from tests.crash.program import Order
from tests.crash.site import AN_HOUR, ON_LOOP, SET, Flavour, Site
from tests.crash.story import queued, suspended
from tests.crash.workers import PATIENCE, Workers
from tests.host import ALICE

LEASE, BEAT = 1.5, 0.25
TEN_MINUTES = 600.0


@pytest.mark.promise("P18")
@pytest.mark.report(36, 44)
@pytest.mark.parametrize("flavour", [SET, ON_LOOP], ids=["a thread", "the event loop"])
async def test_a_tool_that_blocks_for_three_leases_keeps_its_run(
    site: Site, workers: Workers, flavour: Flavour
) -> None:
    run = await suspended(site, [flavour.call])
    order = Order("decide", ([flavour.call],), run_id=run.run_id, watched={"execute begins"}, lease=LEASE, beat=BEAT)
    worker = workers.start(order).at("execute begins")
    held_since = time.monotonic()
    async with site.opened([flavour.call], lease=LEASE, beat=BEAT) as runtime:  # another one, by the same clock
        while time.monotonic() < held_since + 3 * LEASE:
            recovery = await runtime.recover()
            assert recovery.executed == ()
            assert (await runtime.execute(run.run_id)).status is RunStatus.RUNNING
            await asyncio.sleep(0.05)
        worker.go_on("execute begins")
        assert worker.ended() == 0, worker.said()
        run = await runtime.get_run(run.run_id)
    assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
    assert site.ran(flavour.tool) == [(1, 2)]
    assert site.heard() == list(flavour.told)


@pytest.mark.promise("P18", "P21")
@pytest.mark.parametrize("killed", [True, False], ids=["dead", "without a heartbeat"])
async def test_a_run_whose_lease_has_run_out_is_taken_over(site: Site, workers: Workers, killed: bool) -> None:
    """By the database's own clock, and not before: the test above would prove nothing if nothing were ever taken."""
    run = await suspended(site, [SET.call])
    order = Order(
        "decide", ([SET.call],), run_id=run.run_id, watched={"execute begins"}, lease=LEASE, beat=BEAT, heartless=True
    )
    claimed_after = time.monotonic()
    worker = workers.start(order).at("execute begins")
    if killed:
        worker.kill()
    async with site.opened([SET.call]) as runtime:
        while not (await runtime.recover()).executed:
            assert time.monotonic() < claimed_after + PATIENCE
            await asyncio.sleep(0.02)
        assert time.monotonic() > claimed_after + LEASE
        assert (await runtime.get_run(run.run_id)).status is RunStatus.COMPLETED
    assert site.ran(SET.tool) == [(1, 2), (2, 3)]


@pytest.mark.promise("P18")
@pytest.mark.report(46)
@pytest.mark.parametrize("do", ["recover", "execute"])
@pytest.mark.parametrize("off_by", [TEN_MINUTES, -TEN_MINUTES], ids=["ahead", "behind"])
async def test_a_worker_whose_clock_is_wrong_steals_nothing(
    site: Site, workers: Workers, off_by: float, do: Literal["recover", "execute"]
) -> None:
    run = await suspended(site, [SET.call])
    holder = workers.start(Order("decide", ([SET.call],), run_id=run.run_id, watched={"execute begins"}))
    holder.at("execute begins")
    thief = workers.start(Order(do, ([SET.call],), run_id=run.run_id, off_by=off_by))
    assert thief.ended() == 0, thief.said()
    assert site.ran(SET.tool) == [(1, 2)]
    holder.go_on("execute begins")
    assert holder.ended() == 0, holder.said()
    assert site.ran(SET.tool) == [(1, 2)]
    assert site.description() == "Who we are."


@pytest.mark.promise("P18")
@pytest.mark.report(46)
@pytest.mark.parametrize("off_by", [TEN_MINUTES, -TEN_MINUTES], ids=["ahead", "behind"])
async def test_a_worker_whose_clock_is_wrong_loses_nothing(site: Site, workers: Workers, off_by: float) -> None:
    run = await suspended(site, [SET.call])
    holder = workers.start(
        Order(
            "decide",
            ([SET.call],),
            run_id=run.run_id,
            watched={"execute begins", "after beat"},
            off_by=off_by,
            beat=0.1,
        )
    )
    holder.at("execute begins").at("after beat")
    async with site.opened([SET.call]) as runtime:
        assert (await runtime.recover()).executed == ()
        assert (await runtime.execute(run.run_id)).status is RunStatus.RUNNING
    async with site.opened([SET.call], hours=30 / AN_HOUR) as runtime:  # its lease of 60 s is one by our clock
        assert (await runtime.recover()).executed == ()
    holder.go_on("after beat").go_on("execute begins")
    assert holder.ended() == 0, holder.said()
    assert site.ran(SET.tool) == [(1, 2)]


@pytest.mark.promise("P17", "P18")
@pytest.mark.report(41, 44)
async def test_a_claim_is_a_number_that_grows_with_every_segment(site: Site, workers: Workers) -> None:
    """A restarted worker has no name that could hide a dead one's run from it."""
    run = await queued(site, [SET.call])  # claim 1 executed it until it waited
    for hours in (0, 1, 2):
        order = Order("execute", ([SET.call],), run_id=run.run_id, watched={"execute begins"}, hours=hours)
        workers.start(order).at("execute begins").kill()
    async with site.opened([SET.call], hours=3) as runtime:
        assert (await runtime.recover()).executed == (run.run_id,)
        assert (await runtime.get_run(run.run_id)).status is RunStatus.COMPLETED
    assert site.ran(SET.tool) == [(1, 2), (2, 3), (3, 4), (4, 5)]


@pytest.mark.promise("P18")
@pytest.mark.report(40)
@pytest.mark.parametrize("lease, beat", [(60.0, 20.01), (0.6, 0.21), (15.0, 15.0), (60.0, 600.0), (14.9, 15.0)])
def test_a_heartbeat_over_a_third_of_the_lease_is_refused(site: Site, lease: float, beat: float) -> None:
    with pytest.raises(ConfigurationError, match="third"):
        site.opened(lease=lease, beat=beat)


@pytest.mark.promise("P18")
@pytest.mark.report(40)
@pytest.mark.parametrize("lease, beat", [(60.0, 20.0), (0.75, 0.25), (0.6, 0.2), (0.3, 0.1)])
async def test_a_heartbeat_of_a_third_of_the_lease_will_do(site: Site, lease: float, beat: float) -> None:
    async with site.opened([SET.call], lease=lease, beat=beat) as runtime:
        assert (await runtime.run("editor", "Describe page 42.", actor=ALICE)).status is RunStatus.AWAITING_APPROVAL
