"""An approval expires by the database's clock, by the stricter of the stored and the loaded agent."""

import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from byline import (
    AgentRuntime,
    ApprovalExpired,
    Decision,
    Deny,
    Run,
    RunFinished,
    RunStatus,
    StepKind,
)
from byline.approval.decision import Approve, Change
from byline.store.sql import SqlStore
from tests.host import ALICE, BOB, Host
from tests.kernel.gate_entries import ADD, SET, Script, digest, pending

HOUR = 3_600.0
SET_ONLY: Script = ([SET], "Done.")


class Clock:
    """The database's clock, moved by the test."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def later(self, seconds: float) -> datetime:
        return datetime.fromtimestamp(self.now, UTC) + timedelta(seconds=seconds)


def runtime_of(host: Host, clock: Clock, ttl: float | None, script: Script = SET_ONLY) -> AgentRuntime:
    store = SqlStore(f"sqlite:///{host.path.parent / 'byline.db'}", clock=clock)
    return host.runtime(script, store=store, agent={"approval_ttl": ttl})


async def expired(host: Host, runtime: AgentRuntime, run: Run, decision: Decision) -> None:
    with pytest.raises(ApprovalExpired):
        await runtime.decide(run.run_id, decision, actor=BOB)
    assert pending(await runtime.get_run(run.run_id)).decided == {}
    assert (host.executions(), host.heard()) == (0, [])


@pytest.mark.promise("P13")
@pytest.mark.report(15)
async def test_an_approval_expires_by_the_database_s_clock(host: Host) -> None:
    clock = Clock()
    async with runtime_of(host, clock, HOUR) as runtime:
        in_time = await runtime.run("editor", "See to page 42.", actor=ALICE)
        too_late = await runtime.run("editor", "See to page 42.", actor=ALICE)
        assert pending(in_time).expires_at == clock.later(HOUR)

        clock.now += HOUR - 0.001
        in_time = await runtime.decide(in_time.run_id, Decision.approve(digest(in_time)), actor=BOB)
        assert (in_time.status, host.executions()) == (RunStatus.COMPLETED, 1)

        clock.now += 0.001
        (waiting,) = pending(too_late).calls
        for decision in (
            Decision.approve(digest(too_late)),
            Decision.deny(digest(too_late)),
            Decision.per_call(digest(too_late), {waiting.id: Approve()}),
            Decision.per_call(digest(too_late), {waiting.id: Deny()}),
            Decision.per_call(digest(too_late), {waiting.id: Change(waiting.arguments)}),
        ):
            with pytest.raises(ApprovalExpired):
                await runtime.decide(too_late.run_id, decision, actor=BOB)
            assert pending(await runtime.get_run(too_late.run_id)).turn == pending(too_late).turn
        assert host.executions() == 1


@pytest.mark.promise("P13")
@pytest.mark.report(15)
async def test_what_has_expired_is_settled_with_a_reason_of_its_own(host: Host) -> None:
    clock = Clock()
    async with runtime_of(host, clock, HOUR, ([SET, ADD], "Done.")) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        to_set, _ = pending(run).calls
        await runtime.decide(run.run_id, Decision.per_call(digest(run), {to_set.id: Approve()}), actor=BOB)
        assert (await runtime.recover()).expired == ()
        clock.now += HOUR
        assert (await runtime.recover()).expired == (run.run_id,)
        run_after = await runtime.get_run(run.run_id)
        assert (run_after.status, run_after.reason) == (RunStatus.FAILED, "approval_expired")
        assert (host.executions(), host.heard()) == (0, [])
        settled = (await runtime.list_steps(run.run_id))[-1]
        assert settled.kind is StepKind.SETTLED
        assert settled.payload == {"status": "failed", "reason": "approval_expired"}
        with pytest.raises(RunFinished):
            await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
    with closing(sqlite3.connect(host.path.parent / "byline.db")) as database:
        assert database.execute("select count(*) from byline_message").fetchone() == (0,)
        assert database.execute("select turn from byline_run").fetchone() == (None,)


@pytest.mark.promise("P13")
async def test_without_a_ttl_an_approval_never_expires(host: Host) -> None:
    clock = Clock()
    async with runtime_of(host, clock, None) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        assert pending(run).expires_at is None
        clock.now += 10 * 365 * 24 * HOUR
        assert (await runtime.recover()).expired == ()
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P14")
@pytest.mark.parametrize(
    "stored, loaded", [(HOUR, None), (HOUR, 9 * HOUR), (None, HOUR), (9 * HOUR, HOUR)],
    ids=["stored", "stored is less", "loaded", "loaded is less"],
)  # fmt: skip
@pytest.mark.parametrize("how", ["decide", "change", "recover"])
async def test_the_stricter_of_the_stored_and_the_loaded_expiry_holds(
    host: Host, stored: float | None, loaded: float | None, how: str
) -> None:
    clock = Clock()
    async with runtime_of(host, clock, stored) as runtime:
        asked = await runtime.run("editor", "See to page 42.", actor=ALICE)
        began = clock.now
    async with runtime_of(host, clock, loaded) as runtime:
        run = await runtime.get_run(asked.run_id)
        assert pending(run).expires_at == datetime.fromtimestamp(began + HOUR, UTC)
        assert digest(run) == digest(asked)
        clock.now = began + HOUR - 1
        assert (await runtime.recover()).expired == ()
        clock.now = began + HOUR
        match how:
            case "decide":
                await expired(host, runtime, run, Decision.approve(digest(run)))
            case "change":
                better = Change({"page_id": 42, "description": "Who we really are."})
                await expired(host, runtime, run, Decision.per_call(digest(run), {pending(run).calls[0].id: better}))
            case _:
                assert (await runtime.recover()).expired == (run.run_id,)
                assert (await runtime.get_run(run.run_id)).reason == "approval_expired"


@pytest.mark.promise("P13")
async def test_a_changed_turn_has_its_whole_time(host: Host) -> None:
    clock = Clock()
    async with runtime_of(host, clock, HOUR) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        clock.now += HOUR - 1
        better = Change({"page_id": 42, "description": "Who we really are."})
        changed = Decision.per_call(digest(run), {pending(run).calls[0].id: better})
        run = await runtime.decide(run.run_id, changed, actor=BOB)
        assert pending(run).expires_at == clock.later(HOUR)
        clock.now += HOUR - 1
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, host.description()) == (RunStatus.COMPLETED, "Who we really are.")


@pytest.mark.promise("P13")
async def test_the_clock_of_this_process_is_not_asked(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose clock is ten years ahead lets nothing expire, and one that is behind keeps nothing alive."""
    real = time.time
    async with host.runtime([[SET], "Done."], agent={"approval_ttl": HOUR}) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        monkeypatch.setattr(time, "time", lambda: real() + 10 * 365 * 24 * HOUR)
        assert (await runtime.recover()).expired == ()
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert run.status is RunStatus.COMPLETED
