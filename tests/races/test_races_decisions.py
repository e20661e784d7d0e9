"""Who is first to say what becomes of a waiting turn: 200 rounds each, in threads and in processes."""

import pytest

from byline import Reconciliation
from tests.races.crew import Ground, Threads
from tests.races.outcome import Left, left
from tests.races.stage import ALICE, BOB, TTL, Round, Site, Stage, told

LATE = {"AlreadyDecided", "RunFinished"}
"""What the loser of two decisions is told: the winner's run may have ended before the loser has read it."""


def approves(stage: Stage, this: Round) -> str:
    stage.start(this)
    return told(lambda: stage.runtime.decide(this.run_id, this.approve, actor=BOB))


def denies(stage: Stage, this: Round) -> str:
    stage.start(this)
    return told(lambda: stage.runtime.decide(this.run_id, this.deny, actor=BOB))


def cancels(stage: Stage, this: Round) -> str:
    stage.start(this)
    return told(lambda: stage.runtime.cancel(this.run_id, actor=ALICE))


def expires(stage: Stage, this: Round) -> str:
    """Let the approval's time be up, and settle what has expired."""
    stage.start(this)
    stage.clock.value = _deadline(stage.clock.value) + 1
    expired = stage.runtime.recover().expired
    return "expired" if this.run_id in expired else "nothing"


def _deadline(now: float) -> float:
    return now


WROTE = Left("completed", "answered", ran=1, heard=1, facts=1, outcomes=("succeeded",))
DENIED = Left("completed", "answered", ran=0, heard=0, facts=0, outcomes=("denied",))


@pytest.mark.promise("P13")
@pytest.mark.report(21)
def test_two_approvals(ground: Ground, site: Site) -> None:
    rounds = site.prepare(ground.clock)
    for first, second in ground.race(site, rounds, [approves, approves]):
        assert {first, second} & LATE, (first, second)
        assert "completed" in {first, second}
    assert set(left(site, ground.clock, rounds)) == {WROTE}
