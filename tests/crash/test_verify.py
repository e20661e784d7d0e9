"""A tool that can look whether its call landed is asked when its run becomes uncertain after a crash."""

import pytest

from byline import NotLanded, Reconciliation, RunStatus, StepKind, UncertaintyReason
from tests.crash.program import Order
from tests.crash.site import INSERT, Site
from tests.crash.story import Entry, announced, killed_at, recovered
from tests.crash.workers import Workers
from tests.host import BOB

pytestmark = [pytest.mark.promise("P8", "P20"), pytest.mark.report(22)]
TURN = [INSERT.call]


@pytest.mark.parametrize("entry", ["direct", "queued", "recovered"])
@pytest.mark.parametrize("point, heard", [("host committed", 0), ("listener told", 0), ("before step", 1)])
async def test_what_landed_settles_itself_and_is_announced(
    site: Site, workers: Workers, point: str, heard: int, entry: Entry
) -> None:
    run_id = await killed_at(point, site, workers, INSERT, entry)
    run = await recovered(site, TURN)
    assert (run.run_id, run.status, run.output) == (run_id, RunStatus.COMPLETED, "Done.")
    assert (len(site.ran(INSERT.tool)), site.rows(INSERT), site.verified()) == (1, 1, 1)
    assert site.heard() == list(INSERT.told) * (heard + 1)
    assert await announced(site) == list(INSERT.told)
    async with site.opened() as runtime:
        kinds = [step.kind for step in await runtime.list_steps(run_id)]
    assert kinds[-5:] == [StepKind.UNCERTAIN, StepKind.TOOL, StepKind.WRITE, StepKind.MODEL, StepKind.SETTLED]


@pytest.mark.promise("P9")
@pytest.mark.parametrize("point", ["after fence", "in execute"])
async def test_what_did_not_land_is_only_shown(site: Site, workers: Workers, point: str) -> None:
    run_id = await killed_at(point, site, workers, INSERT)
    executed = len(site.ran(INSERT.tool))
    run = await recovered(site, TURN)
    assert (run.status, run.reason, site.verified()) == (RunStatus.UNCERTAIN, UncertaintyReason.INTERRUPTED, 1)
    async with site.opened(TURN, hours=2) as runtime:
        run = await runtime.verify(run_id)
        assert run.uncertain is not None
        assert run.uncertain.found == NotLanded()
        assert (await runtime.recover()).executed == ()
        assert len(site.ran(INSERT.tool)) == executed  # its write may still be on its way
        run = await runtime.reconcile(run_id, Reconciliation.run_again(run.uncertain.digest), actor=BOB)
    assert run.status is RunStatus.COMPLETED
    assert [attempt for attempt, _ in site.ran(INSERT.tool)] == [1] * executed + [2]
    assert site.heard() == await announced(site) == list(INSERT.told)


async def test_what_landed_after_it_was_looked_for_settles_when_it_is_looked_for_again(
    site: Site, workers: Workers
) -> None:
    run_id = await killed_at("in execute", site, workers, INSERT)
    run = await recovered(site, TURN)
    assert run.uncertain is not None
    with site.connect() as host:  # the write was on its way, in a queue of the host's own
        host.execute("insert into keyed_element values (?, 42, 'Who we are.')", (str(run.uncertain.call_id),))
    async with site.opened(TURN, hours=2) as runtime:
        run = await runtime.verify(run_id)
    assert run.status is RunStatus.COMPLETED
    assert len(site.ran(INSERT.tool)) == 1
    assert site.heard() == await announced(site) == list(INSERT.told)


async def test_a_fact_that_was_stored_outlives_the_process_that_found_it(site: Site, workers: Workers) -> None:
    run_id = await killed_at("host committed", site, workers, INSERT)
    order = Order("recover", (TURN,), hours=1, watched={"after reconcile"})
    workers.start(order).at("after reconcile").kill()
    assert site.heard() == []
    run = await recovered(site, TURN)
    assert (run.run_id, run.status) == (run_id, RunStatus.COMPLETED)
    assert (len(site.ran(INSERT.tool)), site.verified()) == (1, 1)
    assert site.heard() == await announced(site) == list(INSERT.told)


async def test_a_fact_that_was_found_and_not_stored_is_found_on_demand(site: Site, workers: Workers) -> None:
    run_id = await killed_at("host committed", site, workers, INSERT)
    order = Order("recover", (TURN,), hours=1, watched={"before reconcile"})
    workers.start(order).at("before reconcile").kill()
    run = await recovered(site, TURN)
    assert run.status is RunStatus.UNCERTAIN
    async with site.opened(TURN, hours=2) as runtime:
        run = await runtime.verify(run_id)
        assert run.status is RunStatus.COMPLETED
    assert len(site.ran(INSERT.tool)) == 1
    assert site.heard() == await announced(site) == list(INSERT.told)
