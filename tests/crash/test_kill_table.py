"""Kill -9 at every row of the crash table, and what another process makes of it (DESIGN, section 3).

What happened is read in the host's own database and in the listener's table there. Every row is tried where it
can be reached: in the process that decides, in a worker's, and in one that took the run over from a dead one.
"""

import pytest

from byline import NotDecidable, Reconciliation, RecordReference, Run, RunStatus, UncertaintyReason, WriteKind
from tests.crash.program import Order
from tests.crash.site import ADD, COMPARE, GATED_READ, READ, SET, UPSERT, Flavour, Site
from tests.crash.story import Entry, announced, approved, killed_at, recovered, suspended
from tests.crash.workers import Workers
from tests.host import ALICE, BOB

WRITES = (SET, COMPARE, UPSERT, ADD)
GATED = (GATED_READ, *WRITES)
EVERY = (READ, *GATED)
ENTRIES: tuple[Entry, ...] = ("direct", "queued", "recovered")


def on_every_entry(*flavours: Flavour) -> list[tuple[Flavour, Entry]]:
    """Each flavour where it is decided; one for each effect also in a worker, and taken over from a dead process."""
    return [(f, e) for f in flavours for e in ENTRIES if e == "direct" or f in (READ, SET, ADD)]


# Where it dies between the fence and the stored result: how often it had executed, landed, and been heard of by then.
FENCED = {
    "after fence": (0, 0, 0),
    "execute begins": (1, 0, 0),
    "in execute": (1, 0, 0),
    "host committed": (1, 1, 0),
    "dispatching": (1, 1, 0),
    "listener told": (1, 1, 0),
    "listener heard": (1, 1, 1),
    "before step": (1, 1, 1),
}

# Every one of these is about what was kept (P19), and about what is never done twice (report 22).
pytestmark = [pytest.mark.promise("P19"), pytest.mark.report(22)]


async def assert_done_once(site: Site, flavour: Flavour, run: Run, *, asked: list[str]) -> None:
    """It executed once, landed once, was heard of once, and the model was asked so often."""
    assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
    assert [attempt for attempt, _ in site.ran(flavour.tool)] == [1]
    assert site.rows(flavour) == len(flavour.told)
    assert site.heard() == list(flavour.told)
    assert await announced(site) == list(flavour.told)
    assert site.asked() == asked


@pytest.mark.parametrize("flavour", EVERY, ids=str)
async def test_before_the_run_row_commits_nothing_has_happened(site: Site, workers: Workers, flavour: Flavour) -> None:
    order = Order("run", ([flavour.call],), watched={"before create"})
    workers.start(order).at("before create").kill()
    assert site.asked() == []
    async with site.opened([flavour.call], hours=1) as runtime:
        assert await runtime.list_runs() == []
        assert (await runtime.recover()).executed == ()
        run = await runtime.run("editor", "Describe page 42.", actor=ALICE, dedupe_key="describe 42")
    if flavour is not READ:
        assert (run.status, site.ran(flavour.tool)) == (RunStatus.AWAITING_APPROVAL, [])
        run = await approved(site, run, [flavour.call])
    await assert_done_once(site, flavour, run, asked=["first", "closing"])


@pytest.mark.parametrize(
    "point, asks", [("after create", 1), ("first answer", 2), ("before suspend", 2), ("after suspend", 1)]
)
@pytest.mark.parametrize("flavour", GATED, ids=str)
async def test_an_answer_is_asked_for_again_only_if_it_was_not_stored(
    site: Site, workers: Workers, flavour: Flavour, point: str, asks: int
) -> None:
    workers.start(Order("run", ([flavour.call],), watched={point})).at(point).kill()
    run = await recovered(site, [flavour.call])
    assert run.status is RunStatus.AWAITING_APPROVAL
    assert site.asked() == ["first"] * asks
    async with site.opened([flavour.call], hours=2) as runtime:  # who asks again for the same run gets it
        same = await runtime.run("editor", "Describe page 42.", actor=ALICE, dedupe_key="describe 42")
        assert same.run_id == run.run_id
    run = await approved(site, run, [flavour.call])
    await assert_done_once(site, flavour, run, asked=["first"] * asks + ["closing"])


async def test_a_decision_that_did_not_commit_released_nothing(site: Site, workers: Workers) -> None:
    for flavour in (SET, ADD):
        waiting = await suspended(site, [flavour.call])
        order = Order("decide", ([flavour.call],), run_id=waiting.run_id, watched={"before decide"})
        workers.start(order).at("before decide").kill()
        async with site.opened([flavour.call], hours=1) as runtime:
            assert (await runtime.recover()).executed == ()
            (run,) = await runtime.list_runs(status=RunStatus.AWAITING_APPROVAL)
        assert run.pending is not None
        assert waiting.pending is not None
        assert (run.pending.digest, run.pending.decided) == (waiting.pending.digest, {})
        assert site.ran(flavour.tool) == []
        run = await approved(site, run, [flavour.call])
        assert run.status is RunStatus.COMPLETED
        assert [attempt for attempt, _ in site.ran(flavour.tool)] == [1]


@pytest.mark.report(24)
@pytest.mark.promise("P20")
@pytest.mark.parametrize(
    "flavour, entry, point",
    [
        *((flavour, "direct", "after decide") for flavour in WRITES),
        *(
            (*case, point)
            for case in on_every_entry(*WRITES)
            for point in ("before claim", "after claim", "before fence")
        ),
    ],
    ids=str,
)
async def test_a_write_that_never_started_starts_and_nobody_is_asked_again(
    site: Site, workers: Workers, flavour: Flavour, entry: Entry, point: str
) -> None:
    run_id = await killed_at(point, site, workers, flavour, entry)
    assert site.ran(flavour.tool) == []
    run = await recovered(site, [flavour.call])
    assert run.run_id == run_id
    await assert_done_once(site, flavour, run, asked=["first", "closing"])


@pytest.mark.parametrize("point", ["execute begins", "in execute", "host committed", "before step"])
@pytest.mark.parametrize("flavour, entry", on_every_entry(READ, GATED_READ), ids=str)
async def test_a_read_runs_again(site: Site, workers: Workers, flavour: Flavour, entry: Entry, point: str) -> None:
    await killed_at(point, site, workers, flavour, entry)
    assert len(site.ran(flavour.tool)) == 1
    run = await recovered(site, [flavour.call])
    assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
    assert len(site.ran(flavour.tool)) == 2
    assert site.asked() == ["first", "closing"]
    assert (site.heard(), await announced(site)) == ([], [])


@pytest.mark.report(24)
@pytest.mark.promise("P8", "P10", "P18", "P20")
@pytest.mark.parametrize("point", FENCED)
@pytest.mark.parametrize("flavour, entry", on_every_entry(SET, COMPARE, UPSERT), ids=str)
async def test_a_fenced_idempotent_write_runs_again_and_is_announced(
    site: Site, workers: Workers, flavour: Flavour, entry: Entry, point: str
) -> None:
    executed, landed, heard = FENCED[point]
    run_id = await killed_at(point, site, workers, flavour, entry)
    assert [attempt for attempt, _ in site.ran(flavour.tool)] == [1] * executed
    assert (site.rows(flavour), site.heard()) == (landed, list(flavour.told) * heard)
    assert await announced(site) == []

    run = await recovered(site, [flavour.call])

    assert (run.run_id, run.status, run.output) == (run_id, RunStatus.COMPLETED, "Done.")
    attempts, claims = zip(*site.ran(flavour.tool), strict=True)
    assert attempts == (*[1] * executed, 2)
    assert list(claims) == sorted(set(claims))
    assert len(set(site.keys(flavour.tool))) == 1
    assert site.rows(flavour) == 1
    assert site.heard() == list(flavour.told) * (heard + 1)
    assert await announced(site) == list(flavour.told)
    assert site.asked() == ["first", "closing"]


@pytest.mark.promise("P8", "P9", "P20")
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    "point, verdict",
    [
        *((point, "landed") for point, (_, landed, _) in FENCED.items() if landed),
        *((point, "run again") for point in ("after fence", "in execute", "host committed")),
        *((point, "leave it") for point in ("after fence", "in execute", "before step")),
    ],
)
async def test_a_fenced_non_idempotent_write_is_for_a_person_to_settle(
    site: Site, workers: Workers, point: str, verdict: str, entry: Entry
) -> None:
    executed, landed, heard = FENCED[point]
    run_id = await killed_at(point, site, workers, ADD, entry)
    await recovered(site, [ADD.call])
    run = await recovered(site, [ADD.call], hours=3)  # it is not executed, and looking at it again changes nothing
    assert (run.run_id, run.status, run.reason) == (run_id, RunStatus.UNCERTAIN, UncertaintyReason.INTERRUPTED)
    assert run.uncertain is not None
    assert run.uncertain.call is not None
    assert run.uncertain.call.arguments == {"page_id": 42, "text": "Who we are."}
    assert [attempt for attempt, _ in site.ran(ADD.tool)] == [1] * executed
    assert (site.rows(ADD), site.heard()) == (landed, list(ADD.told) * heard)
    assert await announced(site) == []

    digest = run.uncertain.digest
    said = {
        "landed": Reconciliation.landed(digest, RecordReference("elements", 1), WriteKind.CREATED),
        "run again": Reconciliation.run_again(digest),
        "leave it": Reconciliation.leave_it(digest),
    }[verdict]
    async with site.opened([ADD.call], hours=3) as runtime:
        run = await runtime.reconcile(run_id, said, actor=BOB)
        with pytest.raises(NotDecidable):
            await runtime.reconcile(run_id, said, actor=BOB)

    assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
    assert site.asked() == ["first", "closing"]
    again = verdict == "run again"
    assert [attempt for attempt, _ in site.ran(ADD.tool)] == [1] * executed + [2] * again
    assert len(set(site.keys(ADD.tool))) <= 1
    assert site.rows(ADD) == landed + again
    told = [] if verdict == "leave it" else [(f"elements:{landed + 1 if again else 1}", "created")]
    assert site.heard() == list(ADD.told) * heard + told
    assert await announced(site) == told


@pytest.mark.promise("P20")
@pytest.mark.parametrize(
    "point, asks", [("after step", 1), ("closing answer", 2), ("before settle", 2), ("after settle", 1)]
)
@pytest.mark.parametrize("flavour, entry", on_every_entry(*EVERY), ids=str)
async def test_a_finished_call_never_runs_again(
    site: Site, workers: Workers, flavour: Flavour, entry: Entry, point: str, asks: int
) -> None:
    run_id = await killed_at(point, site, workers, flavour, entry)
    run = await recovered(site, [flavour.call])
    assert run.run_id == run_id
    await assert_done_once(site, flavour, run, asked=["first", *["closing"] * asks])
