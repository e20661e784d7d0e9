"""The idempotency key is the call's: equal across attempts and restarts, new for a new call.

Whatever a provider's ids are: they repeat.
"""

import pytest

from byline import (
    Decision,
    ModelAnswer,
    ModelCall,
    Reconciliation,
    RunStatus,
    ToolContext,
    ToolResult,
)
from byline.models.scripted import Turn
from byline.testing import ScriptedModel
from tests.host import BOB, Host
from tests.kernel.entries import (
    ENTRIES,
    Clock,
    Entry,
    die_in_write,
    executed,
    left_queued,
    start_and_approve,
    store_of,
    unknown,
    waiting,
)
from tests.kernel.writers import WRITES, writer, written

CALL = ModelCall("write", '{"text": "x"}', provider_id="call_0")
TURN: Turn = ModelAnswer(calls=(CALL, CALL))
IDEMPOTENT, NON_IDEMPOTENT = WRITES


class Keys:
    """Keeps the keys that a tool was given; raises in the first attempt of each call, if it is to."""

    def __init__(self, *, raises: bool = False) -> None:
        self.raises = raises
        self.given: list[tuple[str, int]] = []

    def __call__(self, context: ToolContext) -> ToolResult:
        self.given.append((context.idempotency_key, context.attempt))
        if self.raises and context.attempt == 1:
            raise ConnectionError
        return written(context)

    @property
    def distinct(self) -> set[str]:
        return {key for key, _ in self.given}


@pytest.mark.report(24)
@pytest.mark.parametrize("entry", ENTRIES)
async def test_calls_with_one_provider_id_have_keys_of_their_own(host: Host, entry: Entry) -> None:
    keys, model = Keys(), ScriptedModel([TURN, "Done."])
    async with executed(host, entry, model, tools=[writer(host, NON_IDEMPOTENT, keys)]) as (_, run):
        assert run.status is RunStatus.COMPLETED
        assert len(keys.given) == len(keys.distinct) == 2
        assert len(model.requests) == 2  # an approved call is never asked of the model again


@pytest.mark.report(24)
async def test_the_same_call_of_a_later_answer_has_a_key_of_its_own(host: Host) -> None:
    keys = Keys()
    async with host.runtime([TURN, TURN, "Done."], tools=[writer(host, NON_IDEMPOTENT, keys)]) as runtime:
        run = await start_and_approve(runtime)
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert run.status is RunStatus.COMPLETED
        assert len(keys.given) == len(keys.distinct) == 4


@pytest.mark.promise("P10")
@pytest.mark.report(24)
async def test_attempts_in_place_after_a_crash_and_after_a_verdict_have_one_key(host: Host) -> None:
    clock, keys = Clock(), Keys(raises=True)
    tools = [writer(host, IDEMPOTENT, keys)]
    model = ScriptedModel([ModelAnswer(calls=(CALL,)), "Done."])
    run_id = await left_queued(host, model, clock, tools=tools)
    fence = die_in_write(host, run_id, clock)
    async with host.runtime(model, store=store_of(host, clock), tools=tools) as runtime:
        assert (await runtime.execute(run_id)).status is RunStatus.COMPLETED
        assert keys.given == [(str(fence.call_id), 2)]

    in_place = Keys(raises=True)
    async with host.runtime(model, tools=[writer(host, IDEMPOTENT, in_place)]) as runtime:
        assert (await start_and_approve(runtime)).status is RunStatus.COMPLETED
        assert [attempt for _, attempt in in_place.given] == [1, 2]
        assert len(in_place.distinct) == 1

    told = Keys(raises=True)
    async with host.runtime(model, tools=[writer(host, NON_IDEMPOTENT, told)]) as runtime:
        call = unknown(await start_and_approve(runtime))
        run = await runtime.reconcile(call.run_id, Reconciliation.run_again(call.digest), actor=BOB)
        assert run.status is RunStatus.COMPLETED
        assert [attempt for _, attempt in told.given] == [1, 2]
        assert told.distinct == {str(call.call_id)}
