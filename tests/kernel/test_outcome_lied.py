"""A read-only tool that names a record it wrote has lied: that is announced all the same, then the run fails (P10)."""

import asyncio
from collections.abc import Sequence

import pytest

from byline import RunStatus, StepKind, StoreUnavailable, TerminationReason, Tool, ToolEffect
from byline.testing import ScriptedModel, call
from tests.host import ALICE, Host
from tests.kernel.entries import Clock, start_and_approve, store_of, until
from tests.kernel.silence import Silence
from tests.kernel.writers import PAGE, WRITE, writer
from tests.unit.hearing import Ears

READ = call("read_page", page_id=42)
ADD = call("add_element", page_id=42, text="Never.")


def with_liar(host: Host) -> Sequence[Tool]:
    return [writer(host, ToolEffect.READ_ONLY), *host.tools()]


@pytest.mark.promise("P10")
async def test_a_lie_is_announced_and_recorded_and_then_the_run_fails(host: Host) -> None:
    ears, model = Ears(), ScriptedModel([[READ, WRITE, READ], "Never said."])
    async with host.runtime(model, tools=with_liar(host), listeners=[ears]) as runtime:
        run = await runtime.run("editor", "Please look.", actor=ALICE)

        assert (run.status, run.reason) == (RunStatus.FAILED, TerminationReason.READ_ONLY_TOOL_WROTE)
        assert [(event.correlation_id, event.record) for event in ears.heard] == [(run.run_id, PAGE)]
        assert [(fact.correlation_id, fact.record) for fact in await runtime.writes()] == [(run.run_id, PAGE)]
        assert host.executions("write") == 1
        assert len(model.requests) == 1
        steps = await runtime.list_steps(run.run_id)
        assert sum(step.kind is StepKind.TOOL for step in steps) == 3
        assert steps[-1].kind is StepKind.SETTLED


@pytest.mark.promise("P10")
async def test_after_a_lie_no_approved_write_of_the_turn_runs(host: Host) -> None:
    async with host.runtime([[WRITE, ADD], "Never said."], tools=with_liar(host)) as runtime:
        run = await start_and_approve(runtime)

        assert run.reason is TerminationReason.READ_ONLY_TOOL_WROTE
        assert (host.executions("write"), host.executions("add_element")) == (1, 0)
        assert host.heard() == [("pages:42", "updated")]


@pytest.mark.promise("P9", "P10")
@pytest.mark.parametrize("commits", [1, 8])
async def test_where_the_store_does_not_answer_the_lie_is_tried_again_and_not_the_tool(
    host: Host, commits: int
) -> None:
    store = store_of(host)
    silence = Silence(store)
    async with host.runtime([[WRITE], "Never said."], store=store, tools=with_liar(host), listeners=[
        lambda _event: silence.begin(commits)
    ]) as runtime:
        run = await runtime.run("editor", "Please look.", actor=ALICE)

        assert run.reason is TerminationReason.READ_ONLY_TOOL_WROTE
        assert host.executions() == 1
        assert [fact.record for fact in await runtime.writes()] == [PAGE]


@pytest.mark.promise("P10")
@pytest.mark.parametrize("stored", [0, 1])
async def test_a_run_that_dies_after_the_lie_fails_all_the_same(host: Host, stored: int) -> None:
    """`stored`: how many commits succeed between the announcement and the death."""
    clock, ears = Clock(), Ears()
    store = store_of(host, clock)
    silence = Silence(store)
    commits: list[int] = []

    def die(_event: object) -> None:
        def fails() -> bool:
            commits.append(1)
            return len(commits) > stored

        silence.fails = fails

    model = [[WRITE], "Never said."]
    runtime = host.runtime(model, store=store, tools=with_liar(host), listeners=[ears, die], grace=0.1)
    async with runtime:
        running = asyncio.create_task(runtime.run("editor", "Please look.", actor=ALICE))
        await until(lambda: silence.refused > 0 or running.done())
    if not running.done() or running.exception() is not None:
        with pytest.raises(StoreUnavailable):
            await running
    clock.let_leases_expire()

    async with host.runtime(model, store=store_of(host, clock), tools=with_liar(host), listeners=[ears]) as runtime:
        (run,) = await runtime.list_runs()
        run = await runtime.execute(run.run_id)
        assert (run.status, run.reason) == (RunStatus.FAILED, TerminationReason.READ_ONLY_TOOL_WROTE)
        assert {event.record for event in ears.heard} == {PAGE}
