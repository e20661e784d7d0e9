"""What is sealed opens with its key, in its place; without it a run stays, and is not executed."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from byline import (
    AgentRuntime,
    Decision,
    KeyMissing,
    Run,
    RunStatus,
    StoreError,
)
from byline.store.sealing import KeyRing
from byline.store.sql import SqlStore
from tests.host import ALICE, BOB, Host
from tests.kernel.gate_entries import SET, Script, digest


def store_of(host: Host, keys: KeyRing | None = None) -> SqlStore:
    return SqlStore(f"sqlite:///{host.path.parent / 'byline.db'}", keys=keys)


async def cannot_be_read(host: Host, runtime: AgentRuntime, run: Run, *, why: str) -> None:
    """The run stays as it is, listed with the reason, and nothing of it runs."""
    (listed,) = [each for each in await runtime.list_runs() if each.run_id == run.run_id]
    assert (listed.status, listed.pending) == (RunStatus.AWAITING_APPROVAL, None)
    assert listed.problem is not None
    assert why in listed.problem
    with pytest.raises(StoreError) as refused:
        await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
    assert why in str(refused.value)
    assert (await runtime.execute(run.run_id)).status is RunStatus.AWAITING_APPROVAL
    assert (host.executions(), host.heard()) == (0, [])


@pytest.mark.promise("P23")
async def test_with_another_key_a_run_stays_and_the_message_names_the_key_it_needs(host: Host) -> None:
    mine, other = KeyRing.generate(), KeyRing.generate()
    script: Script = [[SET], "Done."]
    async with host.runtime(script, store=store_of(host, mine)) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
    async with host.runtime(script, store=store_of(host, other)) as runtime:
        await cannot_be_read(host, runtime, run, why=mine.active)
        with pytest.raises(KeyMissing):
            await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
    async with host.runtime(script, store=store_of(host, mine)) as runtime:
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P23")
async def test_a_queued_run_without_its_key_is_not_executed_and_not_lost(host: Host) -> None:
    mine, other = KeyRing.generate(), KeyRing.generate()
    script: Script = [[SET], "Done."]
    async with host.runtime(script, store=store_of(host, mine), execution="queued") as runtime:
        run = await runtime.execute((await runtime.enqueue("editor", "See to it.", actor=ALICE)).run_id)
        await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
    async with host.runtime(script, store=store_of(host, other)) as runtime:
        recovered = await runtime.recover()
        assert recovered.executed == ()
        assert mine.active in recovered.skipped[run.run_id]
        assert (await runtime.get_run(run.run_id)).status is RunStatus.QUEUED
    async with host.runtime(script, store=store_of(host, mine)) as runtime:
        run = await runtime.execute(run.run_id)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P23")
async def test_a_sealed_turn_opens_in_its_own_run_only(host: Host) -> None:
    """Whoever can write the file cannot have one run's approved call run in another."""
    script: Script = [[SET], "Done."]
    async with host.runtime(script) as runtime:
        one = await runtime.run("editor", "See to page 42.", actor=ALICE)
        other = await runtime.run("editor", "See to page 42.", actor=ALICE)

    def swap() -> None:
        with closing(sqlite3.connect(host.path.parent / "byline.db")) as database, database:
            turns = database.execute("select turn, id from byline_run order by id").fetchall()
            database.execute("update byline_run set turn = ? where id = ?", (turns[0][0], turns[1][1]))
            database.execute("update byline_run set turn = ? where id = ?", (turns[1][0], turns[0][1]))

    swap()
    async with host.runtime(script) as runtime:
        for run in (one, other):
            await cannot_be_read(host, runtime, run, why="changed or moved")
    swap()
    async with host.runtime(script) as runtime:
        run = await runtime.decide(one.run_id, Decision.approve(digest(one)), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P23")
def test_the_key_file_is_its_owner_s_alone(host: Host) -> None:
    with host.runtime(["Done."]).sync:
        key = Path(f"{host.path.parent / 'byline.db'}.key")
        assert key.stat().st_mode & 0o777 == 0o600
