"""A few of the rounds that `make crash ROUNDS=200` plays at length: faults at points of a plan, people, and workers."""

from collections.abc import Generator

import pytest

from tests.crash.rounds.plan import POINTS, Fault, Plan, plan_of
from tests.crash.rounds.round import Grounds, a_folder

SEEDS = (12, 47, 16, 61)
"""Plans with a stopped process and one without grace; a late report; a locked database; a server that restarts."""


@pytest.fixture(scope="module")
def grounds() -> Generator[Grounds]:
    with Grounds() as grounds:
        yield grounds


@pytest.mark.promise("P8", "P9", "P16", "P18", "P19", "P20", "P21", "P22")
@pytest.mark.report(16, 22, 24, 28)
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_strikes_no_promise_is_broken(grounds: Grounds, seed: int) -> None:
    plan = plan_of(seed)
    with a_folder() as folder:
        outcome = grounds.play(plan, folder)
    assert outcome.violations == []
    assert outcome.counts["run completed"] + outcome.counts["run cancelled"] == len(plan.runs)


def test_two_hundred_rounds_in_a_row_plan_every_fault_at_every_point() -> None:
    plans: list[Plan] = [plan_of(seed) for seed in range(200)]
    strikes = {strike for plan in plans for stint in plan.stints for strike in stint.strikes}
    assert {strike.fault for strike in strikes} == set(Fault)
    assert {strike.point.rstrip(" 0123456789") for strike in strikes} == set(POINTS)
