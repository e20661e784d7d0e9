"""A decision that could not be stored releases nothing, and a write whose fence could not be set does not run."""

import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Literal

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from byline import (
    AgentRuntime,
    AiActorContext,
    AlreadyDecided,
    Decision,
    ModelCall,
    ProposedCall,
    Run,
    RunStatus,
    StepKind,
    StoreUnavailable,
)
from byline.approval.decision import Approve, Change, Deny, Verdict
from byline.store.sql import SqlStore
from tests.host import ALICE, BOB, Host
from tests.kernel.gate_entries import ADD, SET, digest, pending

WAY = ["create", "suspend", "decide", "claim", "fence", "result", "settle"]
"""The commits of the way of one write (DESIGN, section 3)."""


@dataclass(slots=True)
class Faults:
    """What goes wrong in a store: at which commit from now on, how, and for how many attempts."""

    store: SqlStore
    commits: int = 0
    at: int = 0
    lost: bool = False
    attempts: int = 0
    falls_silent: bool = False
    deaf: bool = False
    refuse: str = ""

    def __post_init__(self) -> None:
        event.listen(self.store.engine, "commit", self._commit)
        event.listen(self.store.engine, "before_cursor_execute", self._execute)

    def fail(self, at: str, *, attempts: int = 1_000) -> None:
        """Let this commit of the way fail, that many times."""
        self.at, self.attempts, self.lost = WAY.index(at) + 1, attempts, False

    def lose(self, at: str, *, and_fall_silent: bool = False) -> None:
        """Let this commit of the way succeed, and its answer be lost; then let the store say nothing more."""
        self.at, self.attempts, self.lost, self.falls_silent = WAY.index(at) + 1, 1, True, and_fall_silent

    def heal(self) -> None:
        self.at, self.attempts, self.deaf, self.refuse = 0, 0, False, ""

    def _commit(self, connection: Connection) -> None:
        if self.commits + 1 == self.at and self.attempts > 0:
            self.attempts -= 1
            if self.lost:
                self.commits += 1
                connection.connection.commit()
                self.deaf = self.falls_silent
            raise unanswered("COMMIT")
        self.commits += 1

    def _execute(self, connection: object, cursor: object, statement: str, *_: object) -> None:
        if self.deaf or (self.refuse and statement.startswith(self.refuse)):
            raise unanswered(statement)


def unanswered(statement: str) -> OperationalError:
    return OperationalError(statement, None, sqlite3.OperationalError("disk I/O error"))


class Clock:
    """The database's clock: an hour later, once the test says so."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def store_of(host: Host, clock: Clock | None = None, *, busy_timeout: float = 10.0) -> SqlStore:
    return SqlStore(f"sqlite:///{host.path.parent / 'byline.db'}", clock=clock, busy_timeout=busy_timeout)


TRIES = 5
"""How often the store tries a commit that fails. What comes after it succeeds: a write that ran would be recorded."""

Execution = Literal["inline", "queued"]
WRITES = pytest.mark.parametrize("write", [SET, ADD], ids=["idempotent", "non-idempotent"])


async def landed_once(host: Host, runtime: AgentRuntime, run: Run, write: ModelCall) -> None:
    run = await runtime.get_run(run.run_id)
    assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
    assert (host.executions(write.name), len(host.heard())) == (1, 1)
    kinds = [step.kind for step in await runtime.list_steps(run.run_id)]
    assert kinds == [
        StepKind.MODEL, StepKind.SUSPENDED, StepKind.TOOL, StepKind.WRITE, StepKind.MODEL, StepKind.SETTLED,
    ]  # fmt: skip
    assert len(await runtime.writes()) == 1


@pytest.mark.promise("P16")
@WRITES
@pytest.mark.parametrize("how", ["its answer is lost", "fails once"])
@pytest.mark.parametrize("at", WAY)
async def test_what_stands_after_a_broken_commit_is_continued_from(
    host: Host, at: str, how: str, write: ModelCall
) -> None:
    store = store_of(host)
    async with host.runtime([[write], "Done."], store=store) as runtime:
        faults = Faults(store)
        faults.lose(at) if how == "its answer is lost" else faults.fail(at, attempts=1)
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        await landed_once(host, runtime, run, write)
        assert (faults.attempts, faults.commits) == (0, len(WAY))
    with closing(sqlite3.connect(host.path.parent / "byline.db")) as database:
        assert database.execute("select count(*) from byline_decision").fetchone() == (1,)
        assert database.execute("select count(*), max(claim) from byline_run").fetchone() == (1, 2)


# -- a decision that could not be stored


async def not_decided(host: Host, runtime: AgentRuntime, run: Run) -> None:
    """Nothing was executed or decided, and nothing was left for a worker either."""
    after = await runtime.get_run(run.run_id)
    assert pending(after) == pending(run)
    assert await runtime.execute(run.run_id) == after
    assert (await runtime.recover()).executed == ()
    assert (host.executions(), host.heard()) == (0, [])


DECISIONS: dict[str, Callable[[Run], Decision]] = {
    "approve": lambda run: Decision.approve(digest(run)),
    "deny": lambda run: Decision.deny(digest(run), "No."),
    "some": lambda run: per_call(run, Approve()),
    "mixed": lambda run: per_call(run, Approve(), Deny("No.")),
    "change": lambda run: per_call(run, Change({"page_id": 42, "description": "Who we really are."})),
}


def per_call(run: Run, *verdicts: Verdict) -> Decision:
    calls = [waiting.id for waiting in pending(run).calls]
    return Decision.per_call(digest(run), dict(zip(calls, verdicts, strict=False)))


@pytest.mark.promise("P16", "P13")
@pytest.mark.parametrize(
    "kind, execution", [*((kind, "inline") for kind in DECISIONS), ("approve", "queued")], ids=lambda part: str(part)
)
@pytest.mark.parametrize("fault", ["commit", "INSERT", "UPDATE"])
async def test_a_decision_that_could_not_be_stored_releases_nothing(
    host: Host, kind: str, execution: Execution, fault: str
) -> None:
    """Wherever in its transaction it fails: verdict and release are stored together or not at all."""
    async with host.runtime([[SET, ADD], "Done."]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
    store = store_of(host)
    async with host.runtime([[SET, ADD], "Done."], store=store, execution=execution) as runtime:
        faults = Faults(store, commits=WAY.index("decide"))
        if fault == "commit":
            faults.fail("decide")
        else:
            faults.refuse = f"{fault} INTO byline_decision" if fault == "INSERT" else "UPDATE byline_run"
        stored_all_the_same = fault == "UPDATE" and kind == "some"  # which releases nothing, and updates no run
        if stored_all_the_same:
            await runtime.decide(run.run_id, DECISIONS[kind](run), actor=BOB)
            faults.heal()
            run = await runtime.get_run(run.run_id)
            assert len(pending(run).decided) == 1
        else:
            with pytest.raises(StoreUnavailable):
                await runtime.decide(run.run_id, DECISIONS[kind](run), actor=BOB)
            faults.heal()
        await not_decided(host, runtime, run)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        if execution == "queued":
            run = await runtime.execute(run.run_id)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 2)


@contextmanager
def locked(host: Host) -> Generator[None]:
    """Another process that holds the file's write lock, and does not let go."""
    with closing(
        sqlite3.connect(host.path.parent / "byline.db", isolation_level=None, check_same_thread=False)
    ) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.mark.promise("P16")
async def test_a_decision_on_a_store_that_stays_locked_releases_nothing(host: Host) -> None:
    async with host.runtime([[SET], "Done."], store=store_of(host, busy_timeout=0.2)) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        with locked(host):
            with pytest.raises(StoreUnavailable):
                await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
            assert pending(await runtime.get_run(run.run_id)) == pending(run)
        await not_decided(host, runtime, run)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P16")
@WRITES
async def test_a_decision_whose_fate_nobody_can_read_stands_or_not_and_runs_once(host: Host, write: ModelCall) -> None:
    """COMMIT succeeded, its answer was lost, and the store says nothing more: what stands there goes on later."""
    store = store_of(host)
    async with host.runtime([[write], "Done."], store=store) as runtime:
        faults = Faults(store)
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        decision = Decision.approve(digest(run))
        faults.lose("decide", and_fall_silent=True)
        with pytest.raises(StoreUnavailable):
            await runtime.decide(run.run_id, decision, actor=BOB)
        faults.heal()

        assert (host.executions(), (await runtime.get_run(run.run_id)).status) == (0, RunStatus.QUEUED)
        with pytest.raises(AlreadyDecided):
            await runtime.decide(run.run_id, decision, actor=BOB)
        assert (await runtime.recover()).executed == (run.run_id,)
        await landed_once(host, runtime, run, write)


# -- a fence that could not be set


@pytest.mark.promise("P16")
@WRITES
async def test_a_write_whose_fence_could_not_be_set_does_not_run(host: Host, write: ModelCall) -> None:
    clock = Clock()
    store = store_of(host, clock)
    async with host.runtime([[write], "Done."], store=store) as runtime:
        faults = Faults(store)
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        faults.fail("fence", attempts=TRIES)
        with pytest.raises(StoreUnavailable):
            await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        faults.heal()
        assert (host.executions(), host.heard()) == (0, [])
        after = await runtime.get_run(run.run_id)
        assert (after.status, after.uncertain) == (RunStatus.RUNNING, None)

        clock.ahead = 3_600  # the lease of the segment that gave up has run out
        assert (await runtime.recover()).executed == (run.run_id,)
        await landed_once(host, runtime, run, write)


@pytest.mark.promise("P16")
@WRITES
async def test_a_write_whose_fence_is_locked_out_does_not_run(host: Host, write: ModelCall) -> None:
    """The file is locked from right after the claim: seen at the last question before the write."""
    clock = Clock()
    held = ExitStack()

    def lock(actor: AiActorContext, _call: ProposedCall) -> bool:
        if actor.id == ALICE.id:
            host.people.forbidden = lambda _actor, _call: False
            held.enter_context(locked(host))
        return False

    async with host.runtime([[write], "Done."], store=store_of(host, clock, busy_timeout=0.2)) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        host.people.forbidden = lock
        with pytest.raises(StoreUnavailable):
            await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (host.executions(), host.heard()) == (0, [])
        held.close()
        clock.ahead = 3_600
        assert (await runtime.recover()).executed == (run.run_id,)
        await landed_once(host, runtime, run, write)


@pytest.mark.promise("P16")
@WRITES
async def test_a_suspension_that_could_not_be_stored_asks_nobody_and_runs_nothing(host: Host, write: ModelCall) -> None:
    clock = Clock()
    store = store_of(host, clock)
    async with host.runtime([[write], "Done."], store=store) as runtime:
        faults = Faults(store)
        faults.fail("suspend")
        with pytest.raises(StoreUnavailable):
            await runtime.run("editor", "See to page 42.", actor=ALICE)
        faults.heal()
        (run,) = await runtime.list_runs()
        assert (run.status, run.pending, host.executions()) == (RunStatus.RUNNING, None, 0)
        clock.ahead = 3_600
        await runtime.recover()
        run = await runtime.get_run(run.run_id)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        await landed_once(host, runtime, run, write)
