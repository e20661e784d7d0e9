"""A caller who goes away in the middle: they get their error at once, and what the run was at ends well (P22)."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Literal
from uuid import UUID

import pytest

from byline import (
    AfterAiRecordWrittenEvent,
    AgentRuntime,
    Decision,
    Reconciliation,
    Run,
    RunStatus,
    StepKind,
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    tool,
)
from byline.models.scripted import Turn
from byline.testing import ScriptedModel
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import Clock, die_in_write, left_queued, store_of, unknown, until_left, waiting
from tests.kernel.stopping import ADD, READ, SET, Hold, kinds, outcomes
from tests.kernel.writers import WRITE, WRITES, async_writer, writer

Form = Literal["sync", "async"]
Leaving = Callable[[Coroutine[object, object, object], Hold], Awaitable[None]]

PROMPT = 2.0
"""Seconds within which a caller hears of their own cancellation, whatever else goes on."""


async def by_time_out(asking: Coroutine[object, object, object], hold: Hold) -> None:
    """The caller has a time limit of their own, as a web server has."""
    clock = asyncio.get_running_loop().time
    up: list[float] = []

    async def limited() -> None:
        async with asyncio.timeout(None) as limit:

            def time_is_up(_: object) -> None:
                up.append(clock())
                limit.reschedule(up[0])

            reached.add_done_callback(time_is_up)
            await asking

    reached = asyncio.ensure_future(hold.is_reached())
    with pytest.raises(TimeoutError):
        await limited()
    assert clock() - up[0] < PROMPT


async def by_cancellation(asking: Coroutine[object, object, object], hold: Hold) -> None:
    """The caller's task is cancelled, as by a browser that was closed; and again, as by a server that shuts down."""
    task = asyncio.create_task(asking)
    await hold.is_reached()
    task.cancel()
    task.cancel()
    async with asyncio.timeout(PROMPT):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert task.cancelled()


LEAVING: tuple[Leaving, ...] = (by_time_out, by_cancellation)


def held_writer(host: Host, effect: ToolEffect, form: Form, hold: Hold) -> Tool:
    """A tool that writes, and stops behind its write."""
    return writer(host, effect, hold.end) if form == "sync" else async_writer(host, effect, hold.end_on_loop)


async def goes_on(host: Host, runtime: AgentRuntime, run_id: UUID, hold: Hold) -> Run:
    """The write ends well, is announced and recorded, its run is handed back, and goes on from there."""
    assert (await runtime.get_run(run_id)).status is RunStatus.RUNNING
    assert (host.executions("write"), host.heard()) == (1, [])
    hold.let_go()
    run = await until_left(runtime, run_id, RunStatus.RUNNING)
    assert (run.status, run.cancel_requested, run.uncertain) == (RunStatus.QUEUED, False, None)
    assert (await outcomes(runtime, run_id))[0] == ("write", "succeeded")
    assert (await kinds(runtime, run_id))[-3:] == [StepKind.TOOL, StepKind.WRITE, StepKind.HANDED_BACK]
    assert host.heard() == [("pages:42", "updated")]
    assert [fact.correlation_id for fact in await runtime.writes()] == [run_id]
    return await runtime.execute(run_id)


@pytest.mark.promise("P22", "P9", "P19")
@pytest.mark.report(28, 30)
@pytest.mark.parametrize("leaves", LEAVING)
@pytest.mark.parametrize("form", ["sync", "async"])
@pytest.mark.parametrize("effect", WRITES)
async def test_in_a_write(host: Host, effect: ToolEffect, form: Form, leaves: Leaving) -> None:
    hold = Hold()
    model = ScriptedModel([[WRITE, ADD], "Done."])
    async with host.runtime(model, tools=[held_writer(host, effect, form, hold), *host.tools()]) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        await leaves(runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB), hold)
        run = await goes_on(host, runtime, run.run_id, hold)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
        assert await outcomes(runtime, run.run_id) == [("write", "succeeded"), ("add_element", "succeeded")]
        assert (host.executions("write"), host.executions("add_element")) == (1, 1)
        assert len(model.requests) == 2


async def _by_execute(runtime: AgentRuntime, _run_id: UUID) -> None:
    await runtime.execute(_run_id)


async def _by_recover(runtime: AgentRuntime, _run_id: UUID) -> None:
    await runtime.recover()


@pytest.mark.promise("P22", "P19")
@pytest.mark.report(28)
@pytest.mark.parametrize("leaves", LEAVING)
@pytest.mark.parametrize("enters", [_by_execute, _by_recover])
async def test_in_a_write_of_a_run_from_the_queue(
    host: Host, enters: Callable[[AgentRuntime, UUID], Coroutine[object, object, None]], leaves: Leaving
) -> None:
    hold, clock = Hold(), Clock()
    tools = [held_writer(host, ToolEffect.NON_IDEMPOTENT_WRITE, "sync", hold)]
    turns: list[Turn] = [[WRITE], "Done."]
    run_id = await left_queued(host, turns, clock, tools=tools)
    async with host.runtime(turns, store=store_of(host, clock), tools=tools, execution="queued") as runtime:
        await leaves(enters(runtime, run_id), hold)
        assert (await goes_on(host, runtime, run_id, hold)).output == "Done."
        assert host.executions() == 1


@pytest.mark.promise("P22", "P20")
@pytest.mark.report(28)
@pytest.mark.parametrize("leaves", LEAVING)
async def test_in_a_write_that_was_reconciled_to_run_again(host: Host, leaves: Leaving) -> None:
    hold, clock = Hold(), Clock()
    tools = [held_writer(host, ToolEffect.NON_IDEMPOTENT_WRITE, "async", hold)]
    turns: list[Turn] = [[WRITE], "Done."]
    run_id = await left_queued(host, turns, clock, tools=tools)
    die_in_write(host, run_id, clock)
    async with host.runtime(turns, store=store_of(host, clock), tools=tools) as runtime:
        run = await runtime.execute(run_id)
        again = Reconciliation.run_again(unknown(run).digest)
        await leaves(runtime.reconcile(run_id, again, actor=BOB), hold)
        assert (await goes_on(host, runtime, run_id, hold)).output == "Done."
        assert host.executions() == 1


@pytest.mark.promise("P22", "P6")
@pytest.mark.parametrize("leaves", LEAVING)
async def test_while_listeners_are_told(host: Host, leaves: Leaving) -> None:
    """The cancellation of a caller is none of the announcement: everybody is told."""
    hold, told = Hold(), Hold()

    async def slow(_event: AfterAiRecordWrittenEvent) -> None:
        await hold.on_loop()
        told.reached.set()

    async with host.runtime([[SET], "Done."], listeners=[slow, host.listen]) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        await leaves(runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB), hold)
        hold.let_go()
        assert (await until_left(runtime, run.run_id, RunStatus.RUNNING)).status is RunStatus.QUEUED
        assert told.reached.is_set()
        assert host.heard() == [("pages:42", "updated")]
        assert (await runtime.execute(run.run_id)).status is RunStatus.COMPLETED
        assert host.executions() == 1


@pytest.mark.promise("P22", "P19")
@pytest.mark.parametrize("leaves", LEAVING)
async def test_while_the_model_answers(host: Host, leaves: Leaving) -> None:
    """The answer that was being paid for is kept; what it asks for is not begun."""
    hold = Hold()
    async with host.runtime(model := ScriptedModel([hold.then([READ]), "Done."])) as runtime:
        await leaves(runtime.run("editor", "Please do.", actor=ALICE, dedupe_key="one"), hold)
        (run,) = await runtime.list_runs()
        hold.let_go()
        assert (await until_left(runtime, run.run_id, RunStatus.RUNNING)).status is RunStatus.QUEUED
        assert await kinds(runtime, run.run_id) == [StepKind.MODEL, StepKind.HANDED_BACK]
        assert (host.executions(), len(model.requests)) == (0, 1)
        again = await runtime.run("editor", "Please do.", actor=ALICE, dedupe_key="one")
        assert (again.run_id, again.status) == (run.run_id, RunStatus.QUEUED)
        assert (await runtime.execute(run.run_id)).output == "Done."
        assert (host.executions(), len(model.requests)) == (1, 2)


@pytest.mark.promise("P22")
@pytest.mark.parametrize("leaves", LEAVING)
async def test_while_the_model_says_its_last(host: Host, leaves: Leaving) -> None:
    hold = Hold()
    async with host.runtime([hold.then("Done.")]) as runtime:
        await leaves(runtime.run("editor", "Please do.", actor=ALICE), hold)
        (run,) = await runtime.list_runs()
        hold.let_go()
        run = await until_left(runtime, run.run_id, RunStatus.RUNNING)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")


@pytest.mark.promise("P22", "P19")
@pytest.mark.parametrize("leaves", LEAVING)
async def test_while_previews_are_made(host: Host, leaves: Leaving) -> None:
    """The turn comes to wait all the same, and whoever looks finds it."""
    hold = Hold()

    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def set_description(context: ToolContext, page_id: int, description: str) -> ToolResult:
        """Set the description of a page."""
        raise AssertionError

    @set_description.preview
    async def _(context: ToolContext, page_id: int, description: str) -> list[str]:
        await hold.on_loop()
        return ["It will say who we are."]

    async with host.runtime([[SET], "Done."], tools=[set_description]) as runtime:
        await leaves(runtime.run("editor", "Please do.", actor=ALICE), hold)
        (run,) = await runtime.list_runs()
        hold.let_go()
        run = await until_left(runtime, run.run_id, RunStatus.RUNNING)
        assert waiting(run)
        assert run.pending is not None
        assert run.pending.calls[0].preview == ("It will say who we are.",)


@pytest.mark.promise("P22")
@pytest.mark.parametrize("leaves", LEAVING)
async def test_while_the_authority_thinks(host: Host, leaves: Leaving) -> None:
    """Nothing was decided yet, and so nothing is; it is not that an authority which nobody heard out said no."""
    hold = Hold()
    async with host.runtime([[SET], "Done."]) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        digest = waiting(run)

        def asked(_actor: object, _call: object) -> bool:
            hold.wait()
            return False

        host.people.forbidden = asked
        await leaves(runtime.decide(run.run_id, Decision.approve(digest), actor=BOB), hold)
        hold.let_go()
        run = await runtime.get_run(run.run_id)
        assert waiting(run) == digest
        assert run.pending is not None
        assert run.pending.decided == {}
        run = await runtime.decide(run.run_id, Decision.approve(digest), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P22", "P16")
async def test_before_anything_was_asked(host: Host) -> None:
    """A task that is cancelled before it begins has asked for nothing."""
    async with host.runtime([[SET], "Done."]) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        deciding = asyncio.create_task(runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB))
        deciding.cancel()
        with suppress(asyncio.CancelledError):
            await deciding
        assert waiting(await runtime.get_run(run.run_id))
        assert host.executions() == 0
