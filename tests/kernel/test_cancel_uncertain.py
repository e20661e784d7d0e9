"""A cancel of a run that is uncertain takes effect once somebody, or a fact, has said what became of its write."""

from dataclasses import dataclass
from typing import Literal

import pytest

from byline import (
    AgentRuntime,
    Landed,
    LateReport,
    ReconcileVerdict,
    Reconciliation,
    RecordReference,
    Run,
    RunStatus,
    StepKind,
    TerminationReason,
    ToolContext,
    ToolEffect,
    ToolResult,
    WriteKind,
    tool,
)
from byline.models.scripted import Turn
from byline.store.protocol import Claim
from byline.testing import ScriptedModel
from byline.tools.result import WriteTarget
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import Clock, die_in_write, left_queued, store_of, unknown
from tests.kernel.stopping import ADD, SET, Whence, cancel, kinds, outcomes
from tests.kernel.writers import PAGE, WRITE

TURN: list[Turn] = [[ADD, SET], "Done."]
Entry = Literal["inline", "queued"]


@dataclass(frozen=True, slots=True)
class Said:
    """What each verdict leaves of the uncertain call."""

    outcome: str
    heard: int


SAID = {
    ReconcileVerdict.LANDED: Said("succeeded", heard=1),
    ReconcileVerdict.LEAVE_IT: Said("left", heard=0),
    ReconcileVerdict.RUN_AGAIN: Said("cancelled", heard=0),
}


def word(run: Run, verdict: ReconcileVerdict) -> Reconciliation:
    digest = unknown(run).digest
    match verdict:
        case ReconcileVerdict.LANDED:
            return Reconciliation.landed(digest, RecordReference("elements", 1), WriteKind.CREATED)
        case ReconcileVerdict.LEAVE_IT:
            return Reconciliation.leave_it(digest)
        case ReconcileVerdict.RUN_AGAIN:
            return Reconciliation.run_again(digest)


async def is_cancelled(host: Host, runtime: AgentRuntime, run: Run, said: Said) -> None:
    """The call has the result that was said, the other call of its turn has not run, and the model is asked no more."""
    run = await runtime.get_run(run.run_id)
    assert (run.status, run.reason, run.uncertain) == (RunStatus.CANCELLED, TerminationReason.CANCELLED, None)
    assert await outcomes(runtime, run.run_id) == [("add_element", said.outcome), ("set_description", "cancelled")]
    assert len(host.heard()) == len(await runtime.writes()) == said.heard
    assert host.executions() == 0
    assert (await runtime.execute(run.run_id)).status is RunStatus.CANCELLED


@pytest.mark.promise("P22", "P9", "P20")
@pytest.mark.report(18, 28)
@pytest.mark.parametrize("order", ["cancelled first", "settled first"])
@pytest.mark.parametrize("execution", ["inline", "queued"])
@pytest.mark.parametrize("verdict", list(ReconcileVerdict))
async def test_waits_for_a_verdict(host: Host, verdict: ReconcileVerdict, execution: Entry, order: str) -> None:
    clock = Clock()
    run_id = await left_queued(host, TURN, clock)
    die_in_write(host, run_id, clock)
    model = ScriptedModel([])
    async with host.runtime(model, store=store_of(host, clock), execution="queued") as runtime:
        run = await runtime.execute(run_id)
        assert (await runtime.get_run(run_id)).uncertain is not None
        if order == "settled first":
            assert (await runtime.reconcile(run_id, word(run, verdict), actor=BOB)).status is RunStatus.QUEUED
        asked = await runtime.cancel(run_id, actor=ALICE)
        assert asked.cancel_requested
        assert asked.status is (RunStatus.UNCERTAIN if order == "cancelled first" else RunStatus.QUEUED)

    async with host.runtime(model, store=store_of(host, clock), execution=execution) as runtime:
        if order == "cancelled first":
            assert (await runtime.get_run(run_id)).status is RunStatus.UNCERTAIN
            await runtime.reconcile(run_id, word(run, verdict), actor=BOB)
        await runtime.execute(run_id)
        await is_cancelled(host, runtime, run, SAID[verdict])
    assert model.requests == []


@pytest.mark.promise("P22", "P20")
@pytest.mark.parametrize("whence", ["verify", "late report"])
async def test_waits_for_a_fact(host: Host, whence: str) -> None:
    clock = Clock()

    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def write(context: ToolContext, text: str) -> ToolResult:
        """Write."""
        raise AssertionError

    known = False

    @write.verify
    def _(context: ToolContext, text: str) -> Landed | None:
        return Landed(PAGE, WriteKind.UPDATED) if known else None

    run_id = await left_queued(host, [[WRITE]], clock, tools=[write])
    fence = die_in_write(host, run_id, clock)
    store = store_of(host, clock)
    async with host.runtime(model := ScriptedModel([]), store=store, tools=[write]) as runtime:
        unknown(await runtime.execute(run_id))
        assert (await runtime.cancel(run_id, actor=ALICE)).status is RunStatus.UNCERTAIN
        if whence == "verify":
            known = True
            await runtime.verify(run_id)
        else:
            landed = WriteTarget(PAGE, WriteKind.UPDATED)
            assert store.report_late(
                LateReport(report_id=run_id, claim=Claim(run_id, 1), fence=fence, target=landed)
            ).settled
            await runtime.recover()
        assert (await runtime.get_run(run_id)).status is RunStatus.CANCELLED
        assert await outcomes(runtime, run_id) == [("write", "succeeded")]
        assert host.heard() == [("pages:42", "updated")]
        assert (await kinds(runtime, run_id))[-2:] == [StepKind.WRITE, StepKind.SETTLED]
    assert model.requests == []


@pytest.mark.promise("P22", "P9")
@pytest.mark.parametrize("whence", ["here", "elsewhere"])
async def test_of_an_idempotent_write_that_would_be_taken_over(host: Host, whence: Whence) -> None:
    """Its process died in the write; after the cancel it is not run again, and nobody says that nothing was written."""
    clock = Clock()
    run_id = await left_queued(host, [[SET]], clock)
    die_in_write(host, run_id, clock)
    async with host.runtime(ScriptedModel([]), store=store_of(host, clock)) as runtime:
        asked = await cancel(host, runtime, whence, run_id)
        assert (asked.status, asked.cancel_requested) == (RunStatus.RUNNING, True)
        unknown(await runtime.execute(run_id))
        assert host.executions() == 0
        assert (await runtime.recover()).executed == ()
        run = await runtime.get_run(run_id)
        run = await runtime.reconcile(run_id, word(run, ReconcileVerdict.RUN_AGAIN), actor=BOB)
        assert run.status is RunStatus.CANCELLED
        assert (host.executions(), host.heard()) == (0, [])
