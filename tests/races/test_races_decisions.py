"""Who is first to say what becomes of a waiting turn: in threads and in processes."""

from collections import Counter

import pytest

from byline import AlreadyDecided, RunFinished, RunStatus
from tests.races.crew import Ground, Threads
from tests.races.outcome import Left, left
from tests.races.stage import ALICE, BOB, FEW, ROUNDS, TTL, Contestant, OwnClock, Round, Site, Stage, told

WROTE = Left("completed", "answered", ran=1, heard=1, facts=1, outcomes=("succeeded",))
DENIED = Left("completed", "answered", ran=0, heard=0, facts=0, outcomes=("denied",))
STOPPED = Left("cancelled", "cancelled", ran=0, heard=0, facts=0, outcomes=("cancelled",))
STOPPED_AFTER = Left("cancelled", "cancelled", ran=1, heard=1, facts=1, outcomes=("succeeded",))
EXPIRED = Left("failed", "approval_expired", ran=0, heard=0, facts=0, outcomes=("expired",))
TOO_LATE = ("ApprovalExpired", "RunFinished")
"""What is told who decides on an expired turn: before that is settled, and after."""


def approves(stage: Stage, this: Round) -> str:
    stage.start(this)
    return told(lambda: stage.runtime.decide(this.run_id, this.approve, actor=BOB))


def denies(stage: Stage, this: Round) -> str:
    stage.start(this)
    return told(lambda: stage.runtime.decide(this.run_id, this.deny, actor=BOB))


def changes(stage: Stage, this: Round) -> str:
    stage.start(this)
    return told(lambda: stage.runtime.decide(this.run_id, this.change, actor=BOB))


def cancels(stage: Stage, this: Round) -> str:
    stage.start(this)
    return told(lambda: stage.runtime.cancel(this.run_id, actor=ALICE))


def expires(stage: Stage, this: Round) -> str:
    """Let the time of this round's approval be up, and settle what has expired."""
    stage.start(this)
    stage.clock.value = max(stage.clock.value, this.expires_at)
    return "expired" if this.run_id in stage.runtime.recover().expired else "nothing"


def race(
    site: Site, ground: Ground, *contestants: Contestant, number: int = ROUNDS
) -> list[tuple[tuple[str, ...], Left]]:
    """Run the rounds. What the contestants of each were told, and what it left."""
    rounds = site.prepare(ground.clock, number)
    heard = ground.race(site, rounds, contestants)
    return list(zip(heard, left(site, ground.clock, rounds), strict=True))


def every(rounds: list[tuple[tuple[str, ...], Left]], *legal: tuple[tuple[str, ...], Left]) -> None:
    """Nothing else than this happened."""
    others = Counter(rounds) - Counter(round_ for round_ in rounds if round_ in legal)
    assert not others


@pytest.mark.promise("P13", "P17", "P18")
@pytest.mark.report(21)
def test_two_approvals(ground: Ground, site: Site) -> None:
    rounds = race(site, ground, approves, approves)
    every(rounds, (("completed", "AlreadyDecided"), WROTE), (("AlreadyDecided", "completed"), WROTE))


@pytest.mark.promise("P13")
@pytest.mark.report(20, 21)
def test_who_comes_second_is_told_so_however_fast_the_run_was(site: Site) -> None:
    """It has ended by then: that is true as well, and whoever asks for the one error or the other finds it."""
    clock = OwnClock()
    rounds = site.prepare(clock, 2)
    with site.runtime(clock).sync as runtime:
        first, second = rounds
        assert runtime.decide(first.run_id, first.approve, actor=BOB).status is RunStatus.COMPLETED
        for late in (first.approve, first.deny, first.change):
            with pytest.raises(AlreadyDecided) as raised:
                runtime.decide(first.run_id, late, actor=BOB)
            assert isinstance(raised.value, RunFinished)
        with pytest.raises(RunFinished) as other:  # another turn's decision was never taken
            runtime.decide(first.run_id, second.approve, actor=BOB)
        assert not isinstance(other.value, AlreadyDecided)
    assert site.lines("ran")[str(first.run_id)] == 1


@pytest.mark.promise("P13")
@pytest.mark.report(21)
def test_two_approvals_through_one_runtime(site: Site) -> None:
    rounds = race(site, Threads(shared=True), approves, approves, number=FEW)
    every(rounds, (("completed", "AlreadyDecided"), WROTE), (("AlreadyDecided", "completed"), WROTE))


@pytest.mark.promise("P13", "P17")
@pytest.mark.report(21)
def test_two_approvals_that_only_queue(ground: Ground, site: Site) -> None:
    """Four deciders, and a worker that comes later: it finds one verdict."""
    queued = Site(site.folder, queued=True)
    for words, kept in race(queued, ground, approves, approves, approves, approves, number=FEW):
        assert sorted(words) == ["AlreadyDecided"] * 3 + ["queued"]
        assert (kept.status, kept.ran) == ("queued", 0)
    with queued.runtime(ground.clock).sync as runtime:
        while runtime.recover().executed:
            pass
        assert len(runtime.list_runs(status=RunStatus.COMPLETED, limit=1_000)) == FEW
    assert set(queued.lines("ran").values()) == set(queued.lines("heard").values()) == {1}
    assert len(queued.lines("ran")) == len(queued.lines("heard")) == FEW


@pytest.mark.promise("P13")
def test_an_approval_and_a_denial(ground: Ground, site: Site) -> None:
    rounds = race(site, ground, approves, denies, number=FEW)
    every(rounds, (("completed", "AlreadyDecided"), WROTE), (("AlreadyDecided", "completed"), DENIED))


@pytest.mark.promise("P13", "P14")
def test_an_approval_and_a_change(ground: Ground, site: Site) -> None:
    """The change puts another turn in the place of the waiting one: whoever approved the first read something else."""
    waits = Left("awaiting_approval", None, ran=0, heard=0, facts=0, outcomes=())
    rounds = race(site, ground, approves, changes, number=FEW)
    every(
        rounds,
        (("completed", "AlreadyDecided"), WROTE),
        (("StaleDecision", "awaiting_approval"), waits),
    )


@pytest.mark.promise("P13", "P22")
def test_an_approval_and_a_cancel(ground: Ground, site: Site) -> None:
    """The cancel is first, or is asked of a run that is on its way, or comes too late; a write is never silent."""
    rounds = race(site, ground, approves, cancels)
    every(
        rounds,
        (("RunFinished", "cancelled"), STOPPED),
        *((("cancelled", words), kept) for words in ("cancelled", "running") for kept in (STOPPED, STOPPED_AFTER)),
        (("completed", "RunFinished"), WROTE),
    )


@pytest.mark.promise("P13", "P22")
def test_an_approval_and_a_cancel_through_one_runtime(site: Site) -> None:
    rounds = race(site, Threads(shared=True), approves, cancels, number=FEW)
    every(
        rounds,
        (("RunFinished", "cancelled"), STOPPED),
        *((("cancelled", words), kept) for words in ("cancelled", "running") for kept in (STOPPED, STOPPED_AFTER)),
        (("completed", "RunFinished"), WROTE),
    )


@pytest.mark.promise("P22")
def test_two_cancels(ground: Ground, site: Site) -> None:
    rounds = race(site, ground, cancels, cancels, number=FEW)
    every(rounds, (("cancelled", "RunFinished"), STOPPED), (("RunFinished", "cancelled"), STOPPED))


@pytest.mark.promise("P13", "P21")
def test_an_approval_and_its_expiry(ground: Ground, site: Site) -> None:
    """Two processes settle what has expired, while a third decides: one transaction says which it is."""
    expiring = Site(site.folder, approval_ttl=TTL)
    rounds = expiring.prepare(ground.clock, apart=TTL)
    ground.clock.value = rounds[0].expires_at - TTL
    heard = ground.race(expiring, rounds, [approves, expires, expires])
    kept = left(expiring, ground.clock, rounds)
    every(
        list(zip(heard, kept, strict=True)),
        *(((status, "nothing", "nothing"), WROTE) for status in ("completed", "running")),
        *(((late, *who), EXPIRED) for late in TOO_LATE for who in (("expired", "nothing"), ("nothing", "expired"))),
    )
