"""Runs that nobody has taken up yet, and stores that nobody has opened yet: whoever is first."""

import pytest

from byline import Decision, RunStatus
from tests.races.crew import Ground
from tests.races.outcome import Left, left
from tests.races.stage import ALICE, BOB, FEW, Clock, Round, Site, Stage, told

WROTE = Left("completed", "answered", ran=1, heard=1, facts=1, outcomes=("succeeded",))


def executes(stage: Stage, this: Round) -> str:
    stage.start(this)
    return told(lambda: stage.runtime.execute(this.run_id))


def recovers(stage: Stage, this: Round) -> str:
    stage.start(this)
    return "took it" if this.run_id in stage.runtime.recover().executed else "left it"


def cancels(stage: Stage, this: Round) -> str:
    stage.start(this)
    return told(lambda: stage.runtime.cancel(this.run_id, actor=ALICE))


def starts(stage: Stage, this: Round) -> str:
    stage.start(this)
    run = stage.runtime.run("writer", "Add a line.", actor=ALICE, dedupe_key=f"order {this.number}")
    return str(run.run_id)


def retries(stage: Stage, this: Round) -> str:
    stage.start(this)
    return told(lambda: stage.runtime.retry(this.run_id))


def opens(stage: Stage, this: Round) -> str:
    """Open a store that is not there yet, and use it."""
    folder = stage.site.folder / str(this.number)
    folder.mkdir(exist_ok=True)
    stage.start(this)
    with Site(folder).runtime(stage.clock).sync as runtime:
        run = runtime.run("writer", "Add a line.", actor=ALICE)
        assert run.pending is not None
        approve = Decision.approve(run.pending.digest)
        return told(lambda: runtime.decide(run.run_id, approve, actor=BOB))


def released(site: Site, clock: Clock, number: int) -> list[Round]:
    """Runs that have been approved, and that a worker is to execute."""
    rounds = site.prepare(clock, number)
    with site.runtime(clock).sync as runtime:
        for this in rounds:
            assert runtime.decide(this.run_id, this.approve, actor=BOB).status is RunStatus.QUEUED
    return rounds


@pytest.mark.promise("P17", "P18")
@pytest.mark.report(21, 42)
def test_four_workers_execute_one_run(ground: Ground, site: Site) -> None:
    """A wake-up that came four times."""
    queued = Site(site.folder, queued=True)
    rounds = released(queued, ground.clock, FEW)
    words = ground.race(queued, rounds, [executes] * 4)
    assert {word for each in words for word in each} <= {"completed", "running"}
    assert all("completed" in each for each in words)
    assert set(left(queued, ground.clock, rounds)) == {WROTE}


@pytest.mark.promise("P17", "P18")
@pytest.mark.report(44)
def test_workers_that_recover_at_once(ground: Ground, site: Site) -> None:
    queued = Site(site.folder, queued=True)
    rounds = released(queued, ground.clock, FEW)
    ground.race(queued, rounds, [recovers] * 4)
    assert set(left(queued, ground.clock, rounds)) == {WROTE}


@pytest.mark.promise("P17", "P22")
def test_a_worker_and_a_cancel(ground: Ground, site: Site) -> None:
    queued = Site(site.folder, queued=True)
    rounds = released(queued, ground.clock, FEW)
    words = ground.race(queued, rounds, [executes, cancels])
    for (_, said), kept in zip(words, left(queued, ground.clock, rounds), strict=True):
        if said == "RunFinished":
            assert kept == WROTE
        else:
            assert said in ("cancelled", "running")
            assert (kept.status, kept.heard, kept.facts) == ("cancelled", kept.ran, kept.ran)
            assert kept.outcomes == (("succeeded",) if kept.ran else ("cancelled",))


@pytest.mark.promise("P17")
def test_one_dedupe_key_starts_one_run(ground: Ground, site: Site) -> None:
    rounds = site.prepare(ground.clock, FEW)
    words = ground.race(site, rounds, [starts] * 4)
    assert [len(set(each)) for each in words] == [1] * FEW
    assert len({each[0] for each in words}) == FEW


@pytest.mark.promise("P21")
def test_two_retries(ground: Ground, site: Site) -> None:
    rounds = site.dead_letters(ground.clock, FEW)
    words = ground.race(site, rounds, [retries, retries])
    for each in words:
        assert sorted(each) == ["NotRetryable", "awaiting_approval"]


@pytest.mark.promise("P16", "P23")
def test_a_store_that_four_open_at_once(ground: Ground, site: Site) -> None:
    """One of them makes the file and its key; all of them read what is sealed in it."""
    rounds = site.prepare(ground.clock, 3)
    for each in ground.race(site, rounds, [opens] * 4):
        assert each == ("completed",) * 4
    for this in rounds:
        with Site(site.folder / str(this.number)).runtime(ground.clock).sync as runtime:
            assert [run.output for run in runtime.list_runs()] == ["Done."] * 4
