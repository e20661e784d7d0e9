"""A read-only tool that names a record it wrote has lied: that is announced all the same, then the run fails (P10)."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from byline import AfterAiRecordWrittenEvent, RunStatus, StepKind, TerminationReason, Tool, ToolEffect
from byline.models.scripted import Turn
from byline.testing import ScriptedModel, call
from tests.host import ALICE, Host
from tests.kernel.entries import ENTRIES, Clock, Entry, executed, store_of, until
from tests.kernel.silence import Silence
from tests.kernel.writers import PAGE, WRITE, Held, writer
from tests.unit.hearing import Ears

READ = call("read_page", page_id=42)
ADD = call("add_element", page_id=42, text="Never.")
LYING: list[Turn] = [[WRITE], "Never said."]
LIED = (RunStatus.FAILED, TerminationReason.READ_ONLY_TOOL_WROTE)


def with_liar(host: Host) -> Sequence[Tool]:
    return [writer(host, ToolEffect.READ_ONLY), *host.tools()]


@pytest.mark.promise("P10")
async def test_a_lie_is_announced_and_recorded_and_then_the_run_fails(host: Host) -> None:
    ears, model = Ears(), ScriptedModel([[READ, WRITE, READ], "Never said."])
    async with host.runtime(model, tools=with_liar(host), listeners=[ears]) as runtime:
        run = await runtime.run("editor", "Please look.", actor=ALICE)

        assert (run.status, run.reason) == LIED
        assert [(event.correlation_id, event.record) for event in ears.heard] == [(run.run_id, PAGE)]
        assert [(fact.correlation_id, fact.record) for fact in await runtime.writes()] == [(run.run_id, PAGE)]
        assert host.executions("write") == 1
        assert len(model.requests) == 1
        steps = await runtime.list_steps(run.run_id)
        assert steps[-1].kind is StepKind.SETTLED
        assert list(Counter(s.call_id for s in steps if s.kind is StepKind.TOOL).values()) == [1, 1, 1]


@pytest.mark.promise("P10")
@pytest.mark.report(18)
@pytest.mark.parametrize("entry", ENTRIES)
async def test_after_a_lie_no_approved_write_of_the_turn_runs(host: Host, entry: Entry) -> None:
    turns: list[Turn] = [[WRITE, ADD], "Never said."]
    async with executed(host, entry, turns, tools=with_liar(host)) as (runtime, run):
        assert (run.status, run.reason) == LIED
        assert (host.executions("write"), host.executions("add_element")) == (1, 0)
        assert host.heard() == [("pages:42", "updated")]
        steps = [step for step in await runtime.list_steps(run.run_id) if step.kind is StepKind.TOOL]
        assert [step.payload["outcome"] for step in steps] == ["succeeded", "cancelled"]


@pytest.mark.promise("P9", "P10")
@pytest.mark.parametrize("commits", [1, 8])
async def test_where_the_store_does_not_answer_the_lie_is_tried_again_and_not_the_tool(
    host: Host, commits: int
) -> None:
    store = store_of(host)
    silence = Silence(store)

    def fall_silent(_event: AfterAiRecordWrittenEvent) -> None:
        silence.begin(commits)

    async with host.runtime(LYING, store=store, tools=with_liar(host), listeners=[fall_silent]) as runtime:
        run = await runtime.run("editor", "Please look.", actor=ALICE)

        assert (run.status, run.reason) == LIED
        assert host.executions() == 1
        assert [fact.record for fact in await runtime.writes()] == [PAGE]


@pytest.mark.promise("P10")
@pytest.mark.parametrize("stored", [0, 1])
async def test_a_run_that_dies_after_the_lie_fails_all_the_same(host: Host, stored: int) -> None:
    """`stored`: how many commits succeed between the announcement and the death."""
    clock, ears = Clock(), Ears()
    store = store_of(host, clock)
    silence = Silence(store)

    def die(_event: AfterAiRecordWrittenEvent) -> None:
        commits = iter(range(stored))
        silence.fails = lambda: next(commits, None) is None

    runtime = host.runtime(LYING, store=store, tools=with_liar(host), listeners=[ears, die], grace=0.1)
    async with runtime:
        running = asyncio.create_task(runtime.run("editor", "Please look.", actor=ALICE))
        await until(lambda: silence.refused > 0 or running.done())
    await asyncio.gather(running, return_exceptions=True)
    clock.let_leases_expire()

    async with host.runtime(LYING, store=store_of(host, clock), tools=with_liar(host), listeners=[ears]) as runtime:
        (run,) = await runtime.list_runs()
        run = await runtime.execute(run.run_id)
        assert (run.status, run.reason) == LIED
        assert {event.record for event in ears.heard} == {PAGE}


@pytest.mark.promise("P10")
async def test_a_run_that_is_to_be_handed_back_fails_at_a_lie_all_the_same(host: Host) -> None:
    """Closing finishes the step in flight. That it lied is part of that step, and is not forgotten."""
    held = Held()
    tools = [writer(host, ToolEffect.READ_ONLY, held)]
    async with host.runtime(LYING, tools=tools) as runtime:
        running = asyncio.create_task(runtime.run("editor", "Please look.", actor=ALICE))
        await until(held.begun.is_set)
        asyncio.get_running_loop().call_later(0.1, held.let_go.set)  # while the runtime closes
    await asyncio.wait({running})

    async with host.runtime(LYING, tools=tools) as runtime:
        (run,) = await runtime.list_runs()
        assert (run.status, run.reason) == LIED
        assert host.heard() == [("pages:42", "updated")]


@pytest.mark.promise("P8", "P10", "P18")
async def test_a_lie_whose_claim_was_lost_is_reported_late(host: Host) -> None:
    clock, held = Clock(), Held()
    lying = [writer(host, ToolEffect.READ_ONLY, held)]
    async with host.runtime(LYING, store=store_of(host, clock), tools=lying) as first:
        running = asyncio.create_task(first.run("editor", "Please look.", actor=ALICE))
        await until(held.begun.is_set)
        clock.let_leases_expire()
        honest = [writer(host, ToolEffect.READ_ONLY, lambda context: held.end(context).text("seen"))]
        async with host.runtime(LYING, store=store_of(host, clock), tools=honest) as second:
            (run,) = await second.list_runs()
            assert (await second.execute(run.run_id)).status is RunStatus.COMPLETED
            held.let_go.set()
            await running
            (report,) = await second.late_reports()
            assert (report.target.record, report.fence.effect) == (PAGE, ToolEffect.READ_ONLY)
            assert [fact.record for fact in await second.writes()] == [PAGE]
            assert host.heard() == [("pages:42", "updated")]
