"""Numbers of runs: what the store says when it is asked, what fails, and how long things take."""

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.metrics.export import HistogramDataPoint

from byline import AfterAiRecordWrittenEvent, ModelAnswer, RunStatus, Telemetry, ToolEffect, Usage
from byline.models.scripted import Turn
from byline.store.sql import SqlStore
from byline.telemetry.census import PATIENCE
from byline.testing import call
from tests.host import ALICE, Host
from tests.kernel.collecting import Collected, attributes_of, context_of, runs_of
from tests.kernel.entries import Clock, start_and_approve, store_of, unknown
from tests.kernel.stopping import Hold
from tests.kernel.test_recover_late_reports import in_a_write
from tests.kernel.writers import TURNS, unnamed, writer

DESCRIBED = call("set_description", page_id=42, description="Who we are.")
WAITS: list[Turn] = [[DESCRIBED], ModelAnswer("Done.", usage=Usage(120, 7))]
STATUS = "byline.run.status"


def histogram(collected: Collected, name: str) -> list[HistogramDataPoint]:
    return [point for point in collected.points(name) if isinstance(point, HistogramDataPoint)]


@pytest.mark.promise("P21")
async def test_runs_by_status_and_how_long_the_oldest_has_waited(host: Host) -> None:
    collected, clock = Collected(), Clock()
    async with host.runtime(WAITS, store=store_of(host, clock), telemetry=collected.telemetry) as runtime:
        assert set(collected.numbers("byline.runs", STATUS).values()) == {0}
        assert collected.numbers("byline.runs.oldest", STATUS) == {}
        await runtime.run("editor", "Please do.", actor=ALICE)
        clock.now += 30
        await runtime.run("editor", "Please do.", actor=ALICE)
        await runtime.enqueue("editor", "Please do.", actor=ALICE)
        await start_and_approve(runtime)
        clock.now += 12
        assert collected.numbers("byline.runs", STATUS) == {
            "queued": 1, "running": 0, "awaiting_approval": 2, "awaiting_input": 0, "uncertain": 0, "dead_letter": 0,
        }  # fmt: skip
        assert collected.numbers("byline.runs.oldest", STATUS) == {"queued": 12, "awaiting_approval": 42}


async def test_uncertain_runs(host: Host) -> None:
    collected = Collected()
    tools = [writer(host, ToolEffect.NON_IDEMPOTENT_WRITE, unnamed)]
    async with host.runtime(TURNS, tools=tools, telemetry=collected.telemetry) as runtime:
        unknown(await start_and_approve(runtime))
        assert collected.numbers("byline.runs", STATUS)["uncertain"] == 1


class Counted(SqlStore):
    """A store that counts how often it is asked for its numbers, and may be dead."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked = 0
        self.dead = Hold()
        self.dead.let_go()

    def census(self, limit: int) -> Sequence[tuple[RunStatus, int, float]]:
        self.asked += 1
        self.dead.wait()
        return super().census(limit)


def counted(host: Host) -> Counted:
    return Counted(store_of(host).engine.url.render_as_string())


async def test_the_store_is_asked_when_metrics_are_collected_and_not_before_or_after(host: Host) -> None:
    collected, store = Collected(), counted(host)
    assert collected.points("byline.runs") == []
    async with host.runtime(["Done."], store=store, telemetry=collected.telemetry) as runtime:
        for _ in range(3):
            await runtime.run("editor", "Please do.", actor=ALICE)
        assert store.asked == 0
        assert len(collected.points("byline.runs")) == 6
        assert store.asked == 2  # of how many there are, and of how long they have stood there
    assert collected.points("byline.runs") == []
    assert store.asked == 2


async def test_a_dead_store_holds_up_a_collection_for_no_longer_than_is_said(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does it hold up the runs, nor are more questions asked of it while one is open."""
    collected, store = Collected(), counted(host)
    async with host.runtime(["Done."], store=store, telemetry=collected.telemetry) as runtime:
        store.dead.freed.clear()
        began = time.monotonic()
        collecting = asyncio.create_task(asyncio.to_thread(collected.points, "byline.runs"))
        await store.dead.is_reached()
        assert (await runtime.run("editor", "Please do.", actor=ALICE)).status is RunStatus.COMPLETED
        assert await collecting == []
        assert time.monotonic() - began < 3 * PATIENCE
        assert [vars(record)["action"] for record in caplog.records if record.levelname == "WARNING"] == [
            "telemetry_failed"
        ]
        assert store.asked == 1
        store.dead.let_go()
        await asyncio.to_thread(census_threads_end)
        assert len(await asyncio.to_thread(collected.points, "byline.runs")) == 6


def census_threads_end() -> None:
    for thread in threading.enumerate():
        if thread.name == "byline-census":
            thread.join(20)


async def test_a_store_that_fails_is_no_number(host: Host) -> None:
    class Failing(SqlStore):
        def census(self, limit: int) -> Sequence[tuple[RunStatus, int, float]]:
            raise OSError("no")

    collected = Collected()
    store = Failing(store_of(host).engine.url.render_as_string())
    async with host.runtime(["Done."], store=store, telemetry=collected.telemetry):
        assert collected.points("byline.runs") == collected.points("byline.runs.oldest") == []


@pytest.mark.promise("P6")
@pytest.mark.report(31)
async def test_listeners_that_fail_come_late_or_are_skipped_are_counted(host: Host) -> None:
    collected, hung = Collected(), threading.Event()

    def failing(event: AfterAiRecordWrittenEvent) -> None:
        raise OSError

    def hanging(event: AfterAiRecordWrittenEvent) -> None:
        hung.wait(20)

    turns: list[Turn] = [[DESCRIBED, DESCRIBED], "Done."]
    listeners = [failing, hanging]
    runtime = host.runtime(turns, listeners=listeners, listener_timeout=0.2, telemetry=collected.telemetry)
    async with runtime:
        await start_and_approve(runtime)
    hung.set()
    outcomes = collected.numbers("byline.listener.failures", "byline.listener.outcome")
    assert outcomes == {"failed": 2, "late": 1, "skipped": 1}
    names = collected.numbers("byline.listener.failures", "byline.listener")
    assert {str(name).rpartition(".")[2] for name in names} == {"failing", "hanging"}


@pytest.mark.promise("P18")
async def test_a_lost_lease_is_counted(host: Host) -> None:
    hold, clock, collected, other = Hold(), Clock(), Collected(), Collected()
    tools = [writer(host, ToolEffect.NON_IDEMPOTENT_WRITE, hold.end)]
    first = host.runtime(TURNS, store=store_of(host, clock), tools=tools, telemetry=collected.telemetry)
    second = host.runtime(TURNS, store=store_of(host, clock), tools=tools, telemetry=other.telemetry)
    async with first, second:
        run_id, deciding = await in_a_write(first, hold, clock)
        assert (await second.execute(run_id)).status is RunStatus.UNCERTAIN
        hold.let_go()
        await deciding
    assert collected.numbers("byline.lease.losses", "gen_ai.agent.name") == {"editor": 1}
    assert other.points("byline.lease.losses") == []
    lost = collected.spans("invoke_agent")[-1]
    assert attributes_of(lost)["error.type"] == "ClaimLost"
    assert "byline.run.status" not in attributes_of(lost)


@pytest.mark.promise("P24")
async def test_durations_and_tokens_by_the_conventions(host: Host) -> None:
    collected = Collected()
    async with host.runtime(WAITS, telemetry=collected.telemetry) as runtime:
        run = await start_and_approve(runtime)
    (executed,) = histogram(collected, "gen_ai.execute_tool.duration")
    assert (executed.count, attributes_of(executed)["gen_ai.tool.name"]) == (1, "set_description")
    # A number leads to its run through the span of its exemplar: the uuid itself would be a time series a run.
    assert [example.span_id for example in executed.exemplars] == [context_of(collected.span("execute_tool")).span_id]
    assert runs_of(collected.spans("execute_tool")) == {run.run_id}
    assert str(run.run_id) not in str(attributes_of(executed))
    (asked,) = histogram(collected, "gen_ai.client.operation.duration")
    assert asked.count == 2
    assert attributes_of(asked) == {
        "gen_ai.agent.name": "editor",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "ScriptedModel",
    }
    assert {attributes_of(at)[STATUS]: at.count for at in histogram(collected, "gen_ai.invoke_agent.duration")} == {
        "awaiting_approval": 1,
        "completed": 1,
    }
    tokens = {
        attributes_of(at)["gen_ai.token.type"]: at.sum for at in histogram(collected, "gen_ai.client.token.usage")
    }
    assert tokens == {"input": 120, "output": 7}


async def test_two_runtimes_of_a_process_are_counted_as_the_one_that_was_opened_last(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    """And each instrument is made once, else a meter warns, and exports it twice."""
    collected = Collected()
    again = Telemetry(tracer_provider=collected.tracers, meter_provider=collected.meters)
    other = host.runtime(WAITS, store="sqlite://", telemetry=again)
    async with host.runtime(WAITS, telemetry=collected.telemetry) as runtime:
        await runtime.run("editor", "Please do.", actor=ALICE)
        async with other:
            assert collected.numbers("byline.runs", STATUS)["awaiting_approval"] == 0
            assert len(collected.points("byline.runs")) == 6
        assert collected.numbers("byline.runs", STATUS)["awaiting_approval"] == 1
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []
