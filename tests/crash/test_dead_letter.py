"""A run that kills whoever executes it: taken over so often without progress, then in dead letter, with its reason."""

import pytest

from byline import (
    NotRetryable,
    Reconciliation,
    RecordReference,
    Run,
    RunStatus,
    StepKind,
    TerminationReason,
    UncertaintyReason,
    WriteKind,
)
from byline.testing import call
from tests.crash.program import Order
from tests.crash.site import ADD, INSERT, READ, SET, Site
from tests.crash.story import announced, killed_at, recovered, suspended, the_run
from tests.crash.workers import Workers
from tests.host import BOB

pytestmark = pytest.mark.promise("P21")
THREE_READS = tuple([call("read_page", page_id=uid)] for uid in (41, 42, 43))


async def dead_letter(site: Site, workers: Workers, point: str) -> Run:
    """A run that killed the process that began it, and the one that took it over, at the same point."""
    await killed_at(point, site, workers, READ)
    for_the_last_time = Order("recover", ([READ.call],), hours=1, watched={point}, max_takeovers=1)
    workers.start(for_the_last_time).at(point).kill()
    return await recovered(site, [READ.call], max_takeovers=1)


@pytest.mark.promise("P20")
@pytest.mark.parametrize("point, reads", [("first answer", 0), ("in execute", 2)])
async def test_it_is_taken_over_no_more_and_listed_with_its_reason(
    site: Site, workers: Workers, point: str, reads: int
) -> None:
    run = await dead_letter(site, workers, point)
    assert (run.status, run.reason) == (RunStatus.DEAD_LETTER, TerminationReason.RETRIES_EXHAUSTED)
    assert len(site.ran(READ.tool)) == reads
    assert site.asked() == ["first"] * (1 if reads else 2)
    async with site.opened([READ.call], hours=3) as runtime:
        assert [listed.run_id for listed in await runtime.list_runs(status=RunStatus.DEAD_LETTER)] == [run.run_id]
        assert (await runtime.recover()).executed == ()
        assert (await runtime.execute(run.run_id)).status is RunStatus.DEAD_LETTER
        *_, last = await runtime.list_steps(run.run_id)
    assert last.kind is StepKind.SETTLED
    assert last.payload == {"status": "dead_letter", "reason": "retries_exhausted"}
    assert len(site.ran(READ.tool)) == reads


@pytest.mark.promise("P19")
async def test_a_retry_takes_it_up_where_it_stood_with_its_budget_restored(site: Site, workers: Workers) -> None:
    run = await dead_letter(site, workers, "in execute")
    async with site.opened([READ.call], hours=3, execution="queued", max_takeovers=1) as runtime:
        assert (await runtime.retry(run.run_id)).status is RunStatus.QUEUED
    order = Order("execute", ([READ.call],), run_id=run.run_id, hours=3, watched={"in execute"}, max_takeovers=1)
    workers.start(order).at("in execute").kill()
    run = await recovered(site, [READ.call], hours=4, max_takeovers=1)
    assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
    assert site.asked() == ["first", "closing"]
    async with site.opened([READ.call], hours=4) as runtime:
        with pytest.raises(NotRetryable):
            await runtime.retry(run.run_id)


async def test_without_any_takeovers_the_first_death_is_the_last(site: Site, workers: Workers) -> None:
    await killed_at("in execute", site, workers, READ)
    run = await recovered(site, [READ.call], max_takeovers=0)
    assert (run.status, run.reason) == (RunStatus.DEAD_LETTER, TerminationReason.RETRIES_EXHAUSTED)
    assert len(site.ran(READ.tool)) == 1


async def test_a_queued_run_is_no_takeover(site: Site, workers: Workers) -> None:
    """A decision that was stored, and a run that was handed back, cost nothing of the budget."""
    waiting = await suspended(site, [SET.call])
    order = Order("decide", ([SET.call],), run_id=waiting.run_id, watched={"after decide"})
    workers.start(order).at("after decide").kill()
    assert (await recovered(site, [SET.call], max_takeovers=0)).status is RunStatus.COMPLETED


@pytest.mark.promise("P19")
async def test_progress_restores_the_budget(site: Site, workers: Workers) -> None:
    """Three reads, at each of which one process dies: never twice in the same place."""
    workers.start(Order("run", THREE_READS, watched={"in execute"})).at("in execute").kill()
    for hours in (1, 2):  # it reads what the one before could not, and dies at the next
        order = Order("recover", THREE_READS, hours=hours, watched={"in execute 2"}, max_takeovers=1)
        workers.start(order).at("in execute 2").kill()
    run = await recovered(site, *THREE_READS, hours=3, max_takeovers=1)
    assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
    assert site.asked() == ["first", "2.", "3.", "closing"]
    assert len(site.ran(READ.tool)) == 6


async def test_a_turn_that_was_stored_is_progress(site: Site, workers: Workers) -> None:
    workers.start(Order("run", ([SET.call],), watched={"first answer"})).at("first answer").kill()
    run = await recovered(site, [SET.call], hours=1, max_takeovers=1)
    assert run.status is RunStatus.AWAITING_APPROVAL
    order = Order("decide", ([SET.call],), run_id=run.run_id, hours=1, watched={"after claim"})
    workers.start(order).at("after claim").kill()
    run = await recovered(site, [SET.call], hours=2, max_takeovers=1)
    assert run.status is RunStatus.COMPLETED


@pytest.mark.promise("P9", "P20")
@pytest.mark.parametrize("max_takeovers", [0, 1])
async def test_while_a_fence_stands_it_is_uncertain_instead(site: Site, workers: Workers, max_takeovers: int) -> None:
    await killed_at("host committed", site, workers, SET)
    for hours in range(1, max_takeovers + 1):
        order = Order("recover", ([SET.call],), hours=hours, watched={"in execute"}, max_takeovers=max_takeovers)
        workers.start(order).at("in execute").kill()
    executed = len(site.ran(SET.tool))
    run = await recovered(site, [SET.call], max_takeovers=max_takeovers)
    assert (run.status, run.reason) == (RunStatus.UNCERTAIN, UncertaintyReason.NOT_REPEATABLE)
    assert len(site.ran(SET.tool)) == executed == max_takeovers + 1
    assert run.uncertain is not None
    async with site.opened([SET.call], hours=3, max_takeovers=max_takeovers) as runtime:
        steps = await runtime.list_steps(run.run_id)
        assert [step.payload["attempt"] for step in steps if step.kind is StepKind.UNCERTAIN] == [max_takeovers + 1]
        run = await runtime.reconcile(run.run_id, Reconciliation.run_again(run.uncertain.digest), actor=BOB)
    assert run.status is RunStatus.COMPLETED
    assert [attempt for attempt, _ in site.ran(SET.tool)] == list(range(1, max_takeovers + 3))
    assert len(set(site.keys(SET.tool))) == 1
    assert await announced(site) == list(SET.told)


@pytest.mark.promise("P9", "P20")
@pytest.mark.parametrize("point", ["after claim", "listener told"])
async def test_a_verdict_restores_the_budget(site: Site, workers: Workers, point: str) -> None:
    """Else what a person said would be lost with the next process, and asked of them again."""
    await killed_at("host committed", site, workers, SET)
    order = Order("recover", ([SET.call],), hours=1, watched={"in execute"}, max_takeovers=1)
    workers.start(order).at("in execute").kill()
    run = await recovered(site, [SET.call], max_takeovers=1)
    assert run.uncertain is not None
    landed = Reconciliation.landed(run.uncertain.digest, RecordReference("pages", 42), WriteKind.UPDATED)
    order = Order("reconcile", ([SET.call],), run_id=run.run_id, verdict=landed, hours=3, watched={point})
    workers.start(order).at(point).kill()
    run = await recovered(site, [SET.call], hours=4, max_takeovers=1)
    assert run.status is RunStatus.COMPLETED
    assert site.heard() == await announced(site) == list(SET.told)


@pytest.mark.promise("P20")
async def test_a_write_that_is_not_repeated_has_no_budget(site: Site, workers: Workers) -> None:
    await killed_at("host committed", site, workers, ADD)
    run = await recovered(site, [ADD.call], max_takeovers=0)
    assert (run.status, run.reason) == (RunStatus.UNCERTAIN, UncertaintyReason.INTERRUPTED)
    assert len(site.ran(ADD.tool)) == 1


@pytest.mark.promise("P20")
async def test_a_tool_that_can_look_is_asked_also_when_the_budget_is_spent(site: Site, workers: Workers) -> None:
    run_id = await killed_at("host committed", site, workers, INSERT)
    run = await recovered(site, [INSERT.call], max_takeovers=0)
    assert (run.run_id, run.status) == (run_id, RunStatus.COMPLETED)
    assert len(site.ran(INSERT.tool)) == 1
    assert site.heard() == await announced(site) == list(INSERT.told)


async def test_what_kills_at_each_verdict_is_not_asked_for_ever(site: Site, workers: Workers) -> None:
    """A fact may be found again and again; a listener that kills each process must not run for ever unseen."""
    run_id = await killed_at("host committed", site, workers, INSERT)
    hours = 1
    for _ in range(2):  # the fact settles it, and whoever announces it dies
        order = Order("recover", ([INSERT.call],), hours=hours, watched={"listener told"}, max_takeovers=1)
        workers.start(order).at("listener told").kill()
        hours += 1
    run = await recovered(site, [INSERT.call], hours=hours, max_takeovers=1)
    assert (run.run_id, run.status) == (run_id, RunStatus.UNCERTAIN)
    assert (await the_run(site)).uncertain is not None
    assert len(site.ran(INSERT.tool)) == 1


async def test_a_run_in_dead_letter_can_be_given_up(site: Site, workers: Workers) -> None:
    run = await dead_letter(site, workers, "in execute")
    async with site.opened([READ.call], hours=3) as runtime:
        assert (await runtime.cancel(run.run_id, actor=BOB)).status is RunStatus.CANCELLED
        with pytest.raises(NotRetryable):
            await runtime.retry(run.run_id)
