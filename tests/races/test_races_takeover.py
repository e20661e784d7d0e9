"""A segment that is alive, or thought dead, and whoever takes up its run: in threads and in processes."""

from collections import Counter
from collections.abc import Sequence

import pytest

from byline import LateReport, ReconcileVerdict, Reconciliation, RecordReference, Run, RunStatus, WriteKind
from tests.races.crew import Ground
from tests.races.outcome import Left, left
from tests.races.stage import BOB, FEW, LEASE, Round, Site, Stage, told

WROTE = Left("completed", "answered", ran=1, heard=1, facts=1, outcomes=("succeeded",))
WROTE_AND_TOLD_TWICE = Left("completed", "answered", ran=1, heard=2, facts=1, outcomes=("succeeded",))
"""It was announced when it landed, and again on the word of who settled it (P8)."""
KEPT_TWICE = Left("completed", "answered", ran=1, heard=2, facts=2, outcomes=("succeeded",))
"""The same, where the report came before anybody knew that the call was uncertain: the feed has both at once."""


def writes(stage: Stage, this: Round) -> str:
    """Approve, and go on: in the tool, behind its write, meet the others, and then start with them."""
    stage.in_write = lambda: _meet_and_start(stage, this)
    return told(lambda: stage.runtime.decide(this.run_id, this.approve, actor=BOB))


def _meet_and_start(stage: Stage, this: Round) -> None:
    stage.meet()
    stage.start(this)


def recovers(stage: Stage, this: Round) -> str:
    """Recover while the segment that writes is alive, as its lease says."""
    stage.meet()
    stage.start(this)
    return "took it" if this.run_id in stage.runtime.recover().executed else "left it"


def recovers_late(stage: Stage, this: Round) -> str:
    """Recover when the lease of the segment that writes has ended although it is alive."""
    stage.meet()
    stage.clock.value += LEASE + 1
    stage.start(this)
    return "took it" if this.run_id in stage.runtime.recover().executed else "left it"


def decides_and_goes_on(stage: Stage, this: Round) -> str:
    stage.start(this)
    return told(lambda: stage.runtime.decide(this.run_id, this.approve, actor=BOB))


def recovers_at_once(stage: Stage, this: Round) -> str:
    stage.start(this)
    return "took it" if this.run_id in stage.runtime.recover().executed else "left it"


def settles(stage: Stage, this: Round) -> str:
    """Take over from the segment that writes, and then say what became of its call: each round another word."""
    stage.meet()
    stage.clock.value += LEASE + 1
    run = stage.runtime.execute(this.run_id)
    assert run.uncertain is not None, run.status
    word = _word(run, this)
    stage.start(this)
    return told(lambda: stage.runtime.reconcile(this.run_id, word, actor=BOB))


def _word(run: Run, this: Round) -> Reconciliation:
    assert run.uncertain is not None
    digest = run.uncertain.digest
    match _verdict(this):
        case ReconcileVerdict.LANDED:
            record = this.call_id if this.number % 4 else "another"
            return Reconciliation.landed(digest, RecordReference("lines", str(record)), WriteKind.CREATED)
        case _:
            return Reconciliation.leave_it(digest)


def _verdict(this: Round) -> ReconcileVerdict:
    return ReconcileVerdict.LEAVE_IT if this.number % 2 else ReconcileVerdict.LANDED


def settles_as_well(stage: Stage, this: Round) -> str:
    """Read what `settles` has read, and say the same at the same time."""
    stage.meet()
    while (run := stage.runtime.get_run(this.run_id)).uncertain is None:
        assert run.status is RunStatus.RUNNING, run.status
    word = _word(run, this)
    stage.start(this)
    return told(lambda: stage.runtime.reconcile(this.run_id, word, actor=BOB))


def finish(site: Site, ground: Ground) -> Sequence[LateReport]:
    """What a worker does afterwards; and the late reports."""
    with site.runtime(ground.clock).sync as runtime:
        while runtime.recover().executed:
            pass
        return runtime.late_reports(limit=1_000)


@pytest.mark.promise("P18", "P17")
@pytest.mark.report(44)
def test_recovery_leaves_a_live_segment_alone(ground: Ground, site: Site) -> None:
    rounds = site.prepare(ground.clock)
    assert set(ground.race(site, rounds, [writes, recovers])) == {("completed", "left it")}
    assert set(left(site, ground.clock, rounds)) == {WROTE}


@pytest.mark.promise("P18", "P17")
def test_a_decision_and_a_recovery_execute_once(ground: Ground, site: Site) -> None:
    """Between the decision and its own claim, anybody may take the run up: one does."""
    rounds = site.prepare(ground.clock, FEW)
    words = set(ground.race(site, rounds, [decides_and_goes_on, recovers_at_once]))
    assert {who for _, who in words} <= {"took it", "left it"}
    assert {status for status, _ in words} <= {"completed", "running"}
    assert set(left(site, ground.clock, rounds)) == {WROTE}


@pytest.mark.promise("P18", "P20", "P8", "P9")
@pytest.mark.report(45)
def test_a_live_segment_whose_lease_has_ended(ground: Ground, site: Site) -> None:
    """Either its result is stored first, or the run is taken from it and its late report settles the call."""
    rounds = site.prepare(ground.clock)
    words = ground.race(site, rounds, [writes, recovers_late])
    reports = {report.claim.run_id: report for report in finish(site, ground)}
    for this, (status, _), kept in zip(rounds, words, left(site, ground.clock, rounds), strict=True):
        report = reports.get(this.run_id)
        assert status in ("completed", "running", "queued")
        if report is None:
            assert kept == WROTE
        else:
            assert (report.settled, report.conflict) == (True, False)
            assert kept in (WROTE_AND_TOLD_TWICE, KEPT_TWICE)


@pytest.mark.promise("P9", "P13", "P18", "P20")
@pytest.mark.report(45)
def test_a_reconciliation_and_a_late_report(ground: Ground, site: Site) -> None:
    """Either the report settles the call, or a person does; who comes second is told so, or listed as a conflict."""
    rounds = site.prepare(ground.clock)
    words = ground.race(site, rounds, [writes, settles])
    reports = {report.claim.run_id: report for report in finish(site, ground)}
    seen: Counter[str] = Counter()
    for this, (_, said), kept in zip(rounds, words, left(site, ground.clock, rounds), strict=True):
        report = reports[this.run_id]
        assert kept.ran == 1
        if report.settled:
            seen["the report"] += 1
            assert said == "AlreadyDecided"
            assert kept == WROTE_AND_TOLD_TWICE
        elif _verdict(this) is ReconcileVerdict.LEAVE_IT:
            seen["left"] += 1
            assert (said, report.conflict, kept.outcomes) == ("completed", True, ("left",))
            assert kept.heard == kept.facts == 1
        else:
            seen["landed"] += 1
            assert (said, report.conflict) == ("completed", this.number % 4 == 0)
            assert kept.outcomes == ("succeeded",)
            assert (kept.heard, kept.facts) == (2, 2 if report.conflict else 1)
    assert len(seen) == 3


@pytest.mark.promise("P13")
def test_two_reconciliations(ground: Ground, site: Site) -> None:
    """The segment that wrote reports at the same time: of the three, one settles the call."""
    rounds = site.prepare(ground.clock, FEW)
    words = ground.race(site, rounds, [writes, settles, settles_as_well])
    reports = {report.claim.run_id: report for report in finish(site, ground)}
    for this, (_, first, second) in zip(rounds, words, strict=True):
        told_late = [first, second].count("AlreadyDecided")
        assert told_late == (2 if reports[this.run_id].settled else 1), (first, second)
        assert {first, second} <= {"completed", "AlreadyDecided"}
    assert {kept.ran for kept in left(site, ground.clock, rounds)} == {1}
