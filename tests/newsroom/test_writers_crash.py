"""Kill -9 in the middle of each writer's call, and what a fresh process makes of it (DESIGN, section 3).

All seven keep the call's key in the transaction of their write, so that each can look whether it has landed.
"""

import pytest

from byline import NotLanded, Reconciliation, RunStatus, UncertaintyReason
from tests.crash.story import killed_at, recovered
from tests.crash.workers import Workers
from tests.newsroom.cases import EACH, IDEMPOTENT, NOT_IDEMPOTENT, Case
from tests.newsroom.place import (
    Newsroom,
    assert_completed,
    assert_landed_once,
    assert_nothing_written,
    recovered_afresh,
)
from tests.newsroom.stage import DECIDES

# Where it dies between the fence and the stored result: how often it had executed, landed, and been heard of by then.
NOT_LANDED = {"after fence": 0, "in execute": 1}
LANDED = {"host committed": 0, "before step": 1}


@EACH
@pytest.mark.promise("P8", "P20")
async def test_a_write_that_never_started_starts(newsroom: Newsroom, workers: Workers, case: Case) -> None:
    run_id = await killed_at("before fence", newsroom, workers, newsroom.flavour(case))
    await assert_nothing_written(newsroom, case, executions=0)
    run = await recovered_afresh(newsroom, workers, case)
    assert run.run_id == run_id
    assert_completed(run)
    assert [attempt for attempt, _ in newsroom.ran(case.writer.tool)] == [1]
    await assert_landed_once(newsroom, case)


@pytest.mark.parametrize("point", [*NOT_LANDED, *LANDED])
@pytest.mark.parametrize("case", IDEMPOTENT, ids=str)
@pytest.mark.promise("P8", "P9", "P10", "P20")
async def test_an_idempotent_write_runs_again_and_is_announced(
    newsroom: Newsroom, workers: Workers, case: Case, point: str
) -> None:
    run_id = await killed_at(point, newsroom, workers, newsroom.flavour(case))
    executed = NOT_LANDED.get(point, 1)
    assert newsroom.effects(case) == (point in LANDED)
    assert len(newsroom.heard()) == LANDED.get(point, 0)

    run = await recovered_afresh(newsroom, workers, case)

    assert run.run_id == run_id
    assert_completed(run)
    assert [attempt for attempt, _ in newsroom.ran(case.writer.tool)] == [1] * executed + [2]
    assert len(set(newsroom.keys(case.writer.tool))) == 1
    await assert_landed_once(newsroom, case, heard=LANDED.get(point, 0) + 1)


@pytest.mark.parametrize("point", LANDED)
@pytest.mark.parametrize("case", NOT_IDEMPOTENT, ids=str)
@pytest.mark.promise("P8", "P9", "P10", "P20")
async def test_what_landed_settles_itself_and_is_announced(
    newsroom: Newsroom, workers: Workers, case: Case, point: str
) -> None:
    run_id = await killed_at(point, newsroom, workers, newsroom.flavour(case))
    assert (newsroom.effects(case), len(newsroom.heard())) == (1, LANDED[point])

    run = await recovered_afresh(newsroom, workers, case)

    assert run.run_id == run_id
    assert_completed(run)
    assert (len(newsroom.ran(case.writer.tool)), newsroom.verified()) == (1, 1)
    await assert_landed_once(newsroom, case, heard=LANDED[point] + 1)


@pytest.mark.parametrize(
    "point, verdict", [("after fence", "run again"), ("in execute", "run again"), ("in execute", "leave it")]
)
@pytest.mark.parametrize("case", NOT_IDEMPOTENT, ids=str)
@pytest.mark.promise("P8", "P9", "P20")
async def test_what_did_not_land_waits_for_a_person(
    newsroom: Newsroom, workers: Workers, case: Case, point: str, verdict: str
) -> None:
    await killed_at(point, newsroom, workers, newsroom.flavour(case))
    await recovered_afresh(newsroom, workers, case)
    run = await recovered(newsroom, newsroom.turn(case), hours=3)  # looking at it again changes nothing
    assert (run.status, run.reason) == (RunStatus.UNCERTAIN, UncertaintyReason.INTERRUPTED)
    await assert_nothing_written(newsroom, case, executions=NOT_LANDED[point])
    async with newsroom.opened(newsroom.turn(case), hours=3) as runtime:
        run = await runtime.verify(run.run_id)
        assert run.uncertain is not None
        assert run.uncertain.found == NotLanded()
        say = Reconciliation.run_again if verdict == "run again" else Reconciliation.leave_it
        run = await runtime.reconcile(run.run_id, say(run.uncertain.digest), actor=DECIDES)
    assert_completed(run)
    if verdict == "leave it":
        await assert_nothing_written(newsroom, case, executions=NOT_LANDED[point])
    else:
        assert [attempt for attempt, _ in newsroom.ran(case.writer.tool)] == [1] * NOT_LANDED[point] + [2]
        await assert_landed_once(newsroom, case)


@EACH
@pytest.mark.promise("P8", "P20")
async def test_a_stored_result_is_not_worked_for_again(newsroom: Newsroom, workers: Workers, case: Case) -> None:
    await killed_at("after step", newsroom, workers, newsroom.flavour(case))
    run = await recovered_afresh(newsroom, workers, case)
    assert_completed(run)
    assert [attempt for attempt, _ in newsroom.ran(case.writer.tool)] == [1]
    await assert_landed_once(newsroom, case)
