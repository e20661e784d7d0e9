"""Who may cancel a run, and of which runs."""

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from byline import (
    AgentRuntime,
    AiActorContext,
    Decision,
    Grant,
    InvalidIdentifier,
    NotAllowed,
    RunFinished,
    RunStatus,
    StepKind,
    TerminationReason,
    UnknownRun,
)
from byline.store.sealing import KeyRing
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel
from tests.host import ALICE, BOB, Host, People
from tests.kernel.entries import Clock, store_of, waiting
from tests.kernel.stopping import SET, kinds

CAROL = AiActorContext.user("9")
"""Neither started the run, nor comes with a grant."""


class Restricted(People):
    """An authority that gives nobody a grant but the one who decides."""

    def load(self, actor_id: str, /) -> AiActorContext | None:
        known = super().load(actor_id)
        return known if known is None or actor_id == BOB.id else replace(known, grants=frozenset())


async def waits(runtime: AgentRuntime) -> UUID:
    run = await runtime.run("editor", "Please do.", actor=ALICE)
    assert waiting(run)
    return run.run_id


@pytest.mark.promise("P22", "P14")
@pytest.mark.parametrize(
    "actor",
    [
        CAROL,
        AiActorContext.user("9", grants={Grant.RECONCILE}),
        AiActorContext.user("9", grants=tuple(Grant)),  # says the request; the authority does not know of it
        AiActorContext.service(ALICE.id + "0", grants=tuple(Grant)),
        AiActorContext.user(BOB.id),  # has the grant, and this session has not
    ],
)
async def test_somebody_else_may_not(host: Host, actor: AiActorContext) -> None:
    """The run stays as it is: whoever may decide it still does."""
    async with host.runtime([[SET], "Done."], authority=Restricted()) as runtime:
        run_id = await waits(runtime)
        with pytest.raises(NotAllowed):
            await runtime.cancel(run_id, actor=actor)
        run = await runtime.get_run(run_id)
        assert not run.cancel_requested
        run = await runtime.decide(run_id, Decision.deny(waiting(run)), actor=BOB)
        assert run.status is RunStatus.COMPLETED


@pytest.mark.promise("P22", "P14")
@pytest.mark.parametrize("actor", [ALICE, BOB, AiActorContext.user("8", grants={Grant.APPROVE})])
async def test_whoever_started_it_and_approvers_may(host: Host, actor: AiActorContext) -> None:
    async with host.runtime([[SET], "Done."]) as runtime:
        run_id = await waits(runtime)
        run = await runtime.cancel(str(run_id), actor=actor)
        assert (run.status, run.reason) == (RunStatus.CANCELLED, TerminationReason.CANCELLED)


@pytest.mark.promise("P22", "P14")
async def test_a_disabled_approver_may_not(host: Host) -> None:
    host.people.disabled.add(BOB.id)
    async with host.runtime([[SET], "Done."]) as runtime:
        run_id = await waits(runtime)
        with pytest.raises(NotAllowed):
            await runtime.cancel(run_id, actor=BOB)


@pytest.mark.promise("P22", "P14")
async def test_a_process_without_the_agent_can_cancel(host: Host) -> None:
    async with host.runtime([[SET], "Done."]) as runtime:
        run_id = await waits(runtime)
    async with AgentRuntime(store=store_of(host), agents=[], authority=host.people) as other:
        assert (await other.cancel(run_id, actor=ALICE)).status is RunStatus.CANCELLED


@pytest.mark.promise("P22")
@pytest.mark.parametrize("ended", ["completed", "cancelled", "expired"])
async def test_what_has_ended_is_not_cancelled(host: Host, ended: str) -> None:
    clock = Clock()
    store = store_of(host, clock)
    async with host.runtime([[SET], "Done."], store=store, agent={"approval_ttl": 60.0}) as runtime:
        run_id = await waits(runtime)
        if ended == "completed":
            run = await runtime.get_run(run_id)
            await runtime.decide(run_id, Decision.approve(waiting(run)), actor=BOB)
        elif ended == "cancelled":
            await runtime.cancel(run_id, actor=BOB)
        else:
            clock.now += 61
            assert (await runtime.recover()).expired == (run_id,)
        before = await runtime.get_run(run_id)
        with pytest.raises(RunFinished):
            await runtime.cancel(run_id, actor=ALICE)
        assert await runtime.get_run(run_id) == before


@pytest.mark.promise("P22", "P23")
async def test_a_process_without_the_key_can_cancel(host: Host) -> None:
    """It cannot read which calls there were; that is no reason to let the run wait."""
    async with host.runtime([[SET], "Done."]) as runtime:
        run_id = await waits(runtime)
    store = SqlStore(str(store_of(host).engine.url), keys=KeyRing.generate())
    async with host.runtime([[SET], "Done."], store=store) as other:
        assert (await other.get_run(run_id)).problem is not None
        assert (await other.cancel(run_id, actor=ALICE)).status is RunStatus.CANCELLED
        assert await kinds(other, run_id) == [StepKind.MODEL, StepKind.SUSPENDED, StepKind.SETTLED]


@pytest.mark.promise("P22")
async def test_what_is_not_there_is_not_cancelled(host: Host) -> None:
    async with host.runtime(ScriptedModel([])) as runtime:
        with pytest.raises(UnknownRun):
            await runtime.cancel(uuid4(), actor=ALICE)
        with pytest.raises(InvalidIdentifier):
            await runtime.cancel("42", actor=ALICE)
