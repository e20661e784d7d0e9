"""Retention: what is deleted after how long, what stays, and what nothing touches (P23)."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import event

from byline import (
    AgentRuntime,
    ConfigurationError,
    Decision,
    ModelAnswer,
    ModelError,
    PrivacyLevel,
    Purged,
    Run,
    RunStatus,
    StepKind,
    TerminationReason,
    UnknownRun,
)
from byline.models.scripted import Turn
from byline.runtime import retention
from byline.testing import call
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import Clock, die_after_claim, left_queued, store_of, waiting

SET = call("set_description", page_id=42, description="We are open.")
SCRIPT: list[Turn] = [[SET], "Done."]
MONTH, YEAR = timedelta(days=30), timedelta(days=365)


async def ended(runtime: AgentRuntime) -> Run:
    run = await runtime.run("editor", "Describe page 42.", actor=ALICE)
    return await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)


def rows(host: Host, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(host.path.parent / "byline.db")) as database:
        return database.execute(sql).fetchall()


def sealed(host: Host) -> list[bytes]:
    """All that is sealed, as it stands in the store."""
    columns = [
        *("body from byline_message", "turn from byline_run", "output from byline_run"),
        *("detail from byline_step", "reason from byline_decision"),
    ]
    found = [value for column in columns for (value,) in rows(host, f"select {column}")]
    return [value for value in found if isinstance(value, bytes)]


@pytest.mark.promise("P23")
async def test_content_and_trace_go_and_provenance_stays(host: Host) -> None:
    clock = Clock()
    async with host.runtime(SCRIPT, store=store_of(host, clock), privacy=PrivacyLevel.FULL) as runtime:
        run = await ended(runtime)
        cursor = (await runtime.writes())[0].cursor
        assert [step for step in await runtime.list_steps(run.run_id) if step.detail]
        clock.now += MONTH.total_seconds() - 1
        assert await runtime.purge(older_than=MONTH) == Purged()
        clock.now += 1
        assert await runtime.purge(older_than=MONTH) == Purged(runs=1)
        assert await runtime.purge(older_than=MONTH) == Purged()
        assert sealed(host) == []
        left = await runtime.get_run(run.run_id)
        assert (left.status, left.output, left.problem) == (RunStatus.COMPLETED, None, None)
        assert left.purged_at is not None
        assert left.actor == ALICE
        assert [step.kind for step in await runtime.list_steps(run.run_id)] == [StepKind.WRITE]
        assert [str(fact.record) for fact in await runtime.writes()] == ["pages:42"]
        assert rows(host, "select verdict, actor_id from byline_decision") == [("approve", BOB.id)]

        clock.now += YEAR.total_seconds()
        later = await ended(runtime)
        assert await runtime.purge(older_than=MONTH, provenance_older_than=YEAR) == Purged(forgotten=1)
        with pytest.raises(UnknownRun):
            await runtime.get_run(run.run_id)
        assert [fact.correlation_id for fact in await runtime.writes(after=cursor)] == [later.run_id]
        for table in ("step", "decision", "message", "run"):
            column = "id" if table == "run" else "run_id"
            found = rows(host, f"select distinct {column} from byline_{table}")  # noqa: S608
            assert {UUID(str(value)) for (value,) in found} <= {later.run_id}


@pytest.mark.promise("P21", "P23")
async def test_what_has_not_ended_is_never_touched(host: Host) -> None:
    clock = Clock()
    queued, claimed = [await left_queued(host, SCRIPT, clock) for _ in range(2)]
    die_after_claim(host, claimed, clock)
    async with host.runtime(SCRIPT, store=store_of(host, clock)) as runtime:
        waits = await runtime.run("editor", "Describe page 42.", actor=ALICE)
    async with host.runtime(Tried(), store=store_of(host, clock)) as runtime:
        dead = await runtime.run("editor", "Describe page 42.", actor=ALICE)
        assert dead.status is RunStatus.DEAD_LETTER
        clock.now += YEAR.total_seconds()
        younger = await runtime.run("editor", "Describe page 42.", actor=ALICE)
        assert await runtime.purge(older_than=MONTH) == Purged(runs=1, dead_letters=1)
        found = {run.run_id: (run.status, run.reason) for run in await runtime.list_runs()}
        assert found == {
            queued: (RunStatus.QUEUED, None),
            claimed: (RunStatus.RUNNING, None),
            waits.run_id: (RunStatus.AWAITING_APPROVAL, None),
            dead.run_id: (RunStatus.FAILED, TerminationReason.RETENTION),
            younger.run_id: (RunStatus.DEAD_LETTER, TerminationReason.NOT_RETRYABLE),
        }
    async with host.runtime(SCRIPT, store=store_of(host, clock)) as runtime:
        for run_id in (queued, claimed):
            assert (await runtime.execute(run_id)).status is RunStatus.AWAITING_APPROVAL
        run = await runtime.decide(waits.run_id, Decision.approve(waiting(waits)), actor=BOB)
        assert run.output == "Done."


class Tried:
    """A model that is not there."""

    async def answer(self, _request: object, /) -> ModelAnswer:
        raise ModelError("no line")


@pytest.mark.promise("P23")
async def test_what_was_broken_off_is_done_by_the_next(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    clock = Clock()
    told: list[Purged] = []

    def interrupt(so_far: Purged) -> None:
        told.append(so_far)
        raise KeyError("stop here")

    async with host.runtime(SCRIPT, store=store_of(host, clock)) as runtime:
        for _ in range(5):
            await ended(runtime)
        clock.now += YEAR.total_seconds()
        with pytest.raises(KeyError):
            await runtime.purge(older_than=MONTH, progress=interrupt)
        assert told == [Purged(runs=2)]
        assert await runtime.purge(older_than=MONTH, progress=told.append) == Purged(runs=3)
        assert told[1:] == [Purged(runs=2), Purged(runs=3)]


@pytest.mark.promise("P23")
async def test_a_batch_takes_as_many_queries_for_one_run_as_for_many(host: Host) -> None:
    clock = Clock()
    store = store_of(host, clock)
    async with host.runtime(SCRIPT, store=store) as runtime:
        counted: list[int] = []
        for runs in (1, 12):
            for _ in range(runs):
                await ended(runtime)
            clock.now += YEAR.total_seconds()
            statements: list[str] = []

            def count(_c: object, _cursor: object, statement: str, *_: object, said: list[str] = statements) -> None:
                said.append(statement)

            event.listen(store.engine, "before_cursor_execute", count)
            assert await runtime.purge(older_than=MONTH) == Purged(runs=runs)
            event.remove(store.engine, "before_cursor_execute", count)
            counted.append(len(statements))
        assert counted[0] == counted[1]


@pytest.mark.promise("P23")
async def test_not_even_what_was_sealed_is_left_in_a_file(host: Host) -> None:
    clock = Clock()
    async with host.runtime(SCRIPT, store=store_of(host, clock), privacy=PrivacyLevel.FULL) as runtime:
        await ended(runtime)
        there = sealed(host)
        assert there
        clock.now += YEAR.total_seconds()
        await runtime.purge(older_than=MONTH)
        files = [path.read_bytes() for path in host.path.parent.glob("byline.db*") if path.suffix != ".key"]
        assert not [value for value in there for data in files if value[-40:] in data]


@pytest.mark.promise("P23")
async def test_who_reads_meanwhile_holds_up_no_purge(host: Host) -> None:
    """The log stays as long as it is read; a purge does not wait for that, and neither does who writes."""
    clock = Clock()
    async with host.runtime(SCRIPT, store=store_of(host, clock)) as runtime:
        await ended(runtime)
        clock.now += YEAR.total_seconds()
        with closing(sqlite3.connect(host.path.parent / "byline.db", isolation_level=None)) as reader:
            reader.execute("begin")
            reader.execute("select count(*) from byline_run").fetchall()
            async with asyncio.timeout(5):  # half of what a store waits for a lock
                assert await runtime.purge(older_than=MONTH) == Purged(runs=1)
                await runtime.enqueue("editor", "Describe page 42.", actor=ALICE)


@pytest.mark.promise("P23")
@pytest.mark.parametrize("how", ["recover", "purge"])
async def test_an_answer_is_hidden_when_its_time_is_up_and_then_deleted(host: Host, how: str) -> None:
    clock = Clock()
    async with host.runtime(SCRIPT, store=store_of(host, clock), output_ttl=60) as runtime:
        run = await ended(runtime)
        clock.now += 59
        assert await answers(runtime, run.run_id) == ["Done."] * 2
        clock.now += 1
        assert await answers(runtime, run.run_id) == [None] * 2
        assert rows(host, "select count(*) from byline_run where output is not null") == [(1,)]
        await (runtime.recover() if how == "recover" else runtime.purge(older_than=YEAR))
        assert rows(host, "select count(*) from byline_run where output is not null") == [(0,)]
        assert (await runtime.get_run(run.run_id)).status is RunStatus.COMPLETED


async def answers(runtime: AgentRuntime, run_id: UUID) -> Sequence[str | None]:
    return [(await runtime.get_run(run_id)).output, (await runtime.list_runs())[0].output]


@pytest.mark.promise("P23")
@pytest.mark.parametrize(
    "ages",
    [
        {"older_than": timedelta(seconds=-1)},
        {"older_than": 30},
        {"older_than": MONTH, "provenance_older_than": timedelta(days=29)},
        {"older_than": MONTH, "provenance_older_than": 365},
    ],
)
async def test_ages_that_make_no_sense_delete_nothing(host: Host, ages: dict[str, Any]) -> None:
    async with host.runtime(SCRIPT) as runtime:
        run = await ended(runtime)
        with pytest.raises(ConfigurationError):
            await runtime.purge(**ages)
        assert (await runtime.get_run(run.run_id)).output == "Done."


def test_a_time_to_live_that_makes_no_sense_is_refused(host: Host) -> None:
    with pytest.raises(ConfigurationError, match="output_ttl"):
        host.runtime(SCRIPT, output_ttl=0)
