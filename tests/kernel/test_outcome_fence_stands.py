"""No run settles, and none is handed back, while its fence stands: whatever would end it makes it UNCERTAIN (P9)."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from byline import (
    Agent,
    AgentRuntime,
    AiActorContext,
    KeyMissing,
    Reconciliation,
    RunStatus,
    StepKind,
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    UncertaintyReason,
    WriteKind,
    tool,
)
from byline.store.sealing import KeyRing
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel
from tests.host import ALICE, BOB, Host, Settings
from tests.kernel.entries import ENTRIES, Clock, Entry, die_in_write, executed, left_queued, store_of, unknown
from tests.kernel.writers import PAGE, TURNS, WRITES, add, unnamed, writer, written
from tests.unit.hearing import Ears


async def _nothing(runtime: AgentRuntime, run_id: object) -> None: ...


async def _cancel(runtime: AgentRuntime, run_id: object) -> None:
    run = await runtime.cancel(str(run_id), actor=ALICE)
    assert (run.status, run.cancel_requested) == (RunStatus.RUNNING, True)


def _same_tool(host: Host, effect: ToolEffect) -> list[Tool]:
    return [writer(host, effect)]


def _no_tool(host: Host, effect: ToolEffect) -> list[Tool]:
    return host.tools()


def _stricter_tool(host: Host, effect: ToolEffect) -> list[Tool]:
    return [writer(host, ToolEffect.NON_IDEMPOTENT_WRITE)]


def _other_parameters(host: Host, effect: ToolEffect) -> list[Tool]:
    @tool(effect=effect)
    def write(context: ToolContext, text: int) -> ToolResult:
        """Write."""
        add(host, context, str(text))
        return written(context)

    return [write]


def _disable(who: AiActorContext) -> Callable[[Host], None]:
    return lambda host: host.people.disabled.add(who.id)


def _forbid(host: Host) -> None:
    host.people.forbidden = lambda _actor, call: call.tool == "write"


@dataclass(frozen=True, slots=True)
class Cause:
    """What would end a run whose segment died in a write."""

    meanwhile: Callable[[Host], None] = lambda _host: None
    ask: Callable[[AgentRuntime, object], Awaitable[None]] = _nothing
    tools: Callable[[Host, ToolEffect], list[Tool]] = _same_tool
    settings: Settings = field(default_factory=Settings)


CAUSES = {
    "cancel": Cause(ask=_cancel),
    "spent budget": Cause(settings=Settings(max_takeovers=0)),
    "withdrawn tool": Cause(tools=_no_tool),
    "tool declared stricter": Cause(tools=_stricter_tool),
    "tool takes other arguments": Cause(tools=_other_parameters),
    "disabled initiator": Cause(meanwhile=_disable(ALICE)),
    "disabled approver": Cause(meanwhile=_disable(BOB)),
    "permission gone": Cause(meanwhile=_forbid),
}


@pytest.mark.promise("P9")
@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
@pytest.mark.parametrize("effect", WRITES)
async def test_what_would_end_a_run_makes_it_uncertain_while_its_fence_stands(
    host: Host, effect: ToolEffect, cause: Cause
) -> None:
    clock = Clock()
    run_id = await left_queued(host, TURNS, clock, tools=[writer(host, effect)])
    fence = die_in_write(host, run_id, clock)
    cause.meanwhile(host)
    tools = cause.tools(host, effect)
    store = store_of(host, clock)
    async with host.runtime(TURNS, store=store, tools=tools, **cause.settings) as runtime:
        await cause.ask(runtime, run_id)
        run = await runtime.execute(run_id)

        call = unknown(run)
        assert call.fence == fence
        assert call.reason in (UncertaintyReason.INTERRUPTED, UncertaintyReason.NOT_REPEATABLE)
        assert host.executions() == 0
        assert host.heard() == []
        steps = await runtime.list_steps(run_id)
        assert steps[-1].kind is StepKind.UNCERTAIN
        assert not {StepKind.SETTLED, StepKind.HANDED_BACK} & {step.kind for step in steps}


@pytest.mark.promise("P9")
@pytest.mark.parametrize("effect", WRITES)
async def test_nothing_but_a_verdict_moves_an_uncertain_run(host: Host, effect: ToolEffect) -> None:
    clock, ears = Clock(), Ears()
    run_id = await left_queued(host, TURNS, clock, tools=[writer(host, effect)])
    die_in_write(host, run_id, clock)
    settings = Settings(listeners=[ears], max_takeovers=0)
    store = store_of(host, clock)
    async with host.runtime(TURNS, store=store, tools=[writer(host, effect)], **settings) as runtime:
        digest = unknown(await runtime.execute(run_id)).digest

        clock.let_leases_expire()
        await runtime.recover()
        await runtime.execute(run_id)
        await runtime.verify(run_id)
        run = await runtime.cancel(run_id, actor=ALICE)
        assert unknown(run).digest == digest
        assert run.cancel_requested

        run = await runtime.reconcile(run_id, Reconciliation.landed(digest, PAGE, WriteKind.UPDATED), actor=BOB)

        assert run.status is RunStatus.CANCELLED  # asked for meanwhile; it takes effect after the verdict
        assert [str(event.record) for event in ears.heard] == ["pages:42"]
        assert [fact.correlation_id for fact in await runtime.writes()] == [run_id]
        assert host.executions() == 0


@pytest.mark.promise("P9")
async def test_a_result_clears_the_fence(host: Host) -> None:
    """The stored result of an idempotent write that ran again: the run is told nothing, and is not uncertain."""
    clock = Clock()
    tools = [writer(host, ToolEffect.IDEMPOTENT_WRITE)]
    run_id = await left_queued(host, TURNS, clock, tools=tools)
    die_in_write(host, run_id, clock)
    async with host.runtime(TURNS, store=store_of(host, clock), tools=tools) as runtime:
        run = await runtime.execute(run_id)
        assert run.status is RunStatus.COMPLETED
        assert host.executions() == 1


@pytest.mark.promise("P9")
@pytest.mark.parametrize("effect", WRITES)
async def test_a_run_whose_agent_is_missing_stays_with_its_fence(host: Host, effect: ToolEffect) -> None:
    """Nothing of it can be executed here, so that nothing ends it; a process that has the agent goes on."""
    clock = Clock()
    tools = [writer(host, effect)]
    run_id = await left_queued(host, TURNS, clock, tools=tools)
    die_in_write(host, run_id, clock)
    other = Agent(name="other", model=ScriptedModel(["Done."]))
    async with AgentRuntime(store=store_of(host, clock), agents=[other], max_takeovers=0) as runtime:
        assert (await runtime.recover()).executed == ()
        run = await runtime.execute(run_id)
        assert (run.status, run.problem) == (RunStatus.RUNNING, "agent 'editor' is not loaded in this process")
        run = await runtime.cancel(run_id, actor=ALICE)
        assert (run.status, run.cancel_requested) == (RunStatus.RUNNING, True)
    async with host.runtime(TURNS, store=store_of(host, clock), tools=tools) as runtime:
        unknown(await runtime.execute(run_id))
        assert host.executions() == 0


@pytest.mark.promise("P9")
@pytest.mark.parametrize("effect", WRITES)
async def test_a_run_whose_key_is_missing_stays_with_its_fence(host: Host, effect: ToolEffect) -> None:
    clock = Clock()
    tools = [writer(host, effect)]
    run_id = await left_queued(host, TURNS, clock, tools=tools)
    die_in_write(host, run_id, clock)
    url = f"sqlite:///{host.path.parent / 'byline.db'}"
    keyless = SqlStore(url, keys=KeyRing.generate(), clock=clock)
    async with host.runtime(TURNS, store=keyless, tools=tools) as runtime:
        with suppress(KeyMissing):
            await runtime.execute(run_id)
        run = await runtime.get_run(run_id)
        assert run.status is RunStatus.RUNNING
        assert run.problem is not None
        assert (await runtime.recover()).skipped == {}  # it is left alone for a while
        clock.now += 121
        assert (await runtime.recover()).skipped.keys() == {run_id}
    async with host.runtime(TURNS, store=store_of(host, clock), tools=tools, max_takeovers=0) as runtime:
        unknown(await runtime.execute(run_id))
        assert host.executions() == 0


@pytest.mark.promise("P9", "P10")
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("effect", WRITES)
async def test_a_writer_that_names_no_record_leaves_its_fence(host: Host, entry: Entry, effect: ToolEffect) -> None:
    ears = Ears()
    async with executed(host, entry, TURNS, tools=[writer(host, effect, unnamed)], listeners=[ears]) as (_, run):
        assert unknown(run).reason is UncertaintyReason.UNNAMED
        assert host.executions() == 1
        assert ears.heard == []
