"""A process that was stopped past its lease, and comes back while another has its run: it changes nothing any more.

What it finished before it noticed it still announces, and appends a late report: the one insert that needs no live
claim.
"""

import asyncio
import signal
import time
from collections.abc import Sequence

import pytest

from byline import (
    ModelCall,
    Reconciliation,
    RecordReference,
    Run,
    RunStatus,
    UncertaintyReason,
    WriteKind,
)
from tests.crash.program import Order
from tests.crash.site import ADD, READ, SET, Flavour, Site
from tests.crash.story import announced, approved, killed_at, recovered, suspended, the_run
from tests.crash.workers import PATIENCE, Worker, Workers
from tests.host import BOB

LEASE, BEAT = 0.6, 0.2

pytestmark = [pytest.mark.promise("P18"), pytest.mark.report(45)]


async def taken_over(site: Site, *turns: Sequence[ModelCall]) -> None:
    """Take the one run over as soon as its lease has run out, by the database's own clock."""
    patience = time.monotonic() + PATIENCE
    async with site.opened(*turns) as runtime:
        while not (await runtime.recover()).executed:
            assert time.monotonic() < patience
            await asyncio.sleep(0.02)


def comes_back(zombie: Worker, *points: str) -> None:
    """Let a stopped process go on, to its end."""
    for point in points:
        zombie.go_on(point)
    zombie.signal(signal.SIGCONT)
    assert zombie.ended() == 0, zombie.said()


@pytest.mark.parametrize("heartless", [False, True], ids=["its heart beats again", "its heart does not"])
@pytest.mark.parametrize("flavour", [READ, SET, ADD], ids=str)
async def test_stopped_just_before_execute_it_does_not_execute(
    site: Site, workers: Workers, flavour: Flavour, heartless: bool
) -> None:
    """Where no heartbeat tells it, the age of the last one does, by the monotonic clock."""
    turn = [flavour.call]
    if flavour is READ:
        point = "after answer"
        order = Order("run", (turn,), watched={point}, lease=LEASE, beat=BEAT, heartless=heartless)
    else:
        point, run = "after fence", await suspended(site, turn)
        order = Order(
            "decide", (turn,), run_id=run.run_id, watched={point}, lease=LEASE, beat=BEAT, heartless=heartless
        )
    zombie = workers.start(order).at(point).signal(signal.SIGSTOP)
    await taken_over(site, turn)
    before, executed = site.stored(), site.ran(flavour.tool)
    assert len(executed) == (0 if flavour is ADD else 1)

    comes_back(zombie, point)

    assert (site.stored(), site.ran(flavour.tool)) == (before, executed)
    assert site.heard() == ([] if flavour is ADD else list(flavour.told))
    assert "stops" in zombie.said()
    run = await the_run(site)
    assert run.status is (RunStatus.UNCERTAIN if flavour is ADD else RunStatus.COMPLETED)


async def test_one_that_nobody_replaced_finishes_its_write(site: Site, workers: Workers) -> None:
    run = await suspended(site, [ADD.call])
    order = Order("decide", ([ADD.call],), run_id=run.run_id, watched={"host committed"}, lease=2 * LEASE, beat=BEAT)
    sleeper = workers.start(order).at("host committed").signal(signal.SIGSTOP)
    await asyncio.sleep(3 * LEASE)  # time is the subject: it is gone for longer than its lease
    comes_back(sleeper, "host committed")
    assert (await the_run(site)).status is RunStatus.COMPLETED
    assert site.ran(ADD.tool) == [(1, 2)]
    assert site.heard() == await announced(site) == list(ADD.told)


@pytest.mark.promise("P8")
@pytest.mark.parametrize("point", ["execute begins", "host committed"])
async def test_stopped_in_an_idempotent_write_it_announces_and_reports_late(
    site: Site, workers: Workers, point: str
) -> None:
    run = await suspended(site, [SET.call])
    order = Order("decide", ([SET.call],), run_id=run.run_id, watched={point})
    zombie = workers.start(order).at(point).signal(signal.SIGSTOP)
    assert (await recovered(site, [SET.call])).status is RunStatus.COMPLETED
    before = site.stored()

    comes_back(zombie, point)

    assert site.stored() == before
    assert site.ran(SET.tool) == [(1, 2), (2, 3)]
    assert site.heard() == [("pages:42", "updated")] * 2
    assert await announced(site) == [("pages:42", "updated")]
    async with site.opened() as runtime:
        (report,) = await runtime.late_reports()
    assert (report.claim.run_id, report.claim.number) == (run.run_id, 2)
    assert (str(report.target.record), report.fence.attempt) == ("pages:42", 1)
    assert (report.settled, report.conflict) == (False, False)


async def uncertain_under_a_zombie(site: Site, workers: Workers, point: str = "host committed") -> tuple[Worker, Run]:
    """A run that is uncertain, while the process that was in its write is only stopped."""
    waiting = await suspended(site, [ADD.call])
    zombie = workers.start(Order("decide", ([ADD.call],), run_id=waiting.run_id, watched={point}))
    zombie.at(point).signal(signal.SIGSTOP)
    run = await recovered(site, [ADD.call])
    assert (run.status, run.reason) == (RunStatus.UNCERTAIN, UncertaintyReason.INTERRUPTED)
    return zombie, run


@pytest.mark.promise("P8", "P20")
@pytest.mark.parametrize("point", ["execute begins", "host committed", "listener told"])
async def test_stopped_in_a_write_that_is_not_repeated_its_report_settles_the_run(
    site: Site, workers: Workers, point: str
) -> None:
    zombie, run = await uncertain_under_a_zombie(site, workers, point)
    comes_back(zombie, point)
    assert site.heard() == list(ADD.told)
    async with site.opened() as runtime:
        (report,) = await runtime.late_reports()
    assert (report.settled, report.conflict, str(report.target.record)) == (True, False, "elements:1")
    settled = await recovered(site, [ADD.call], hours=3)
    assert (settled.run_id, settled.status, settled.output) == (run.run_id, RunStatus.COMPLETED, "Done.")
    assert site.ran(ADD.tool) == [(1, 2)]
    assert site.heard() == list(ADD.told) * 2
    assert await announced(site) == list(ADD.told)


@pytest.mark.promise("P8", "P9", "P20")
@pytest.mark.parametrize(
    "verdict, conflict, feed", [("landed", False, [1]), ("leave it", True, [1]), ("run again", True, [2, 1])]
)
async def test_a_report_against_what_was_decided_is_listed_for_the_operator(
    site: Site, workers: Workers, verdict: str, conflict: bool, feed: list[int]
) -> None:
    zombie, run = await uncertain_under_a_zombie(site, workers)
    assert run.uncertain is not None
    digest = run.uncertain.digest
    said = {
        "landed": Reconciliation.landed(digest, RecordReference("elements", 1), WriteKind.CREATED),
        "leave it": Reconciliation.leave_it(digest),
        "run again": Reconciliation.run_again(digest),
    }[verdict]
    async with site.opened([ADD.call], hours=3) as runtime:
        assert (await runtime.reconcile(run.run_id, said, actor=BOB)).status is RunStatus.COMPLETED
    before, heard = site.stored(), site.heard()

    comes_back(zombie, "host committed")

    assert site.stored() == before
    assert site.heard() == [*heard, ("elements:1", "created")]
    assert await announced(site) == [(f"elements:{uid}", "created") for uid in feed]
    async with site.opened() as runtime:
        (report,) = await runtime.late_reports()
        assert (report.settled, report.conflict) == (False, conflict)
        assert len(await runtime.late_reports(conflicts_only=True)) == conflict


async def finish_elsewhere(site: Site, flavour: Flavour) -> None:
    """Let another process bring the one run to wherever it gets."""
    run = await recovered(site, [flavour.call], hours=3)
    if run.status is RunStatus.AWAITING_APPROVAL:
        run = await approved(site, run, [flavour.call])
    assert run.status in (RunStatus.COMPLETED, RunStatus.UNCERTAIN)


@pytest.mark.parametrize(
    "flavour, what",
    [
        *((READ, what) for what in ("answer", "step", "settle")),
        *((SET, what) for what in ("suspend", "fence", "step", "settle")),
        *((ADD, what) for what in ("fence", "step", "settle")),
    ],
    ids=str,
)
async def test_its_writes_to_the_store_touch_no_row(site: Site, workers: Workers, flavour: Flavour, what: str) -> None:
    point = f"entering {what}"
    if flavour is READ or what == "suspend":
        zombie = workers.start(Order("run", ([flavour.call],), watched={point}))
    else:
        waiting = await suspended(site, [flavour.call])
        zombie = workers.start(Order("decide", ([flavour.call],), run_id=waiting.run_id, watched={point}))
    zombie.at(point)
    await finish_elsewhere(site, flavour)
    before, executed = site.stored(), site.ran(flavour.tool)
    zombie.go_on(point)
    assert zombie.ended() == 0, zombie.said()
    late = flavour is ADD and what == "step"  # the one insert that needs no live claim, and what it settles
    assert (site.stored() != before) is late
    assert site.ran(flavour.tool) == executed


async def test_it_cannot_say_either_that_its_write_is_uncertain(site: Site, workers: Workers) -> None:
    await killed_at("host committed", site, workers, ADD)
    zombie = workers.start(Order("recover", ([ADD.call],), hours=1, watched={"entering uncertain"}))
    zombie.at("entering uncertain")
    run = await recovered(site, [ADD.call], hours=3)
    assert run.uncertain is not None
    async with site.opened([ADD.call], hours=4) as runtime:
        run = await runtime.reconcile(run.run_id, Reconciliation.leave_it(run.uncertain.digest), actor=BOB)
    assert run.status is RunStatus.COMPLETED
    before = site.stored()
    zombie.go_on("entering uncertain")
    assert zombie.ended() == 0, zombie.said()
    assert site.stored() == before


async def test_it_cannot_hand_back_what_it_has_lost(site: Site, workers: Workers) -> None:
    waiting = await suspended(site, [SET.call])
    watched = {"host committed", "stopping", "entering hand back"}
    order = Order("decide", ([SET.call],), run_id=waiting.run_id, watched=watched, serves=True)
    zombie = workers.start(order).at("host committed").signal(signal.SIGTERM).at("stopping")
    zombie.go_on("stopping").go_on("host committed").at("entering hand back")
    run = await recovered(site, [SET.call])
    assert run.status is RunStatus.COMPLETED
    before = site.stored()
    zombie.go_on("entering hand back")
    assert zombie.ended() == 0, zombie.said()
    assert site.stored() == before
    assert len(site.ran(SET.tool)) == 1


async def test_its_heartbeat_does_not_extend_the_lease_of_its_successor(site: Site, workers: Workers) -> None:
    """The successor's clock is an hour ahead here, so that a lease which the zombie had set would be seen."""
    waiting = await suspended(site, [SET.call])
    watched = {"execute begins", "entering beat", "after beat"}
    order = Order("decide", ([SET.call],), run_id=waiting.run_id, watched=watched, beat=BEAT)
    zombie = workers.start(order).at("execute begins").at("entering beat")
    successor = workers.start(Order("recover", ([SET.call],), hours=1, watched={"execute begins"}))
    successor.at("execute begins")
    before = site.stored()
    zombie.go_on("entering beat").at("after beat")
    assert site.stored() == before
    zombie.go_on("after beat").go_on("execute begins")
    assert zombie.ended() == 0, zombie.said()
    assert site.stored() == before
    successor.go_on("execute begins")
    assert successor.ended() == 0, successor.said()
    assert (await the_run(site)).status is RunStatus.COMPLETED
    assert site.ran(SET.tool) == [(1, 2), (2, 3)]


@pytest.mark.report(44)
async def test_two_that_claim_at_once_are_one_executor(site: Site, workers: Workers) -> None:
    await killed_at("after fence", site, workers, SET)
    order = Order("recover", ([SET.call],), hours=1, watched={"entering claim", "host committed"})
    both = [workers.start(order), workers.start(order)]
    for worker in both:
        worker.at("entering claim")
    for worker in both:
        worker.go_on("entering claim")
    for worker in both:
        worker.go_on("host committed")
    assert [worker.ended() for worker in both] == [0, 0]
    assert site.ran(SET.tool) == [(2, 3)]
    assert (await the_run(site)).status is RunStatus.COMPLETED
