"""How runs begin: here or in a queue, once for each key, with what was said before."""

from collections.abc import Sequence
from typing import Literal
from uuid import uuid4

import pytest

from byline import (
    AiActorContext,
    AssistantMessage,
    Decision,
    DedupeConflict,
    ModelAnswer,
    Reconciliation,
    RecordReference,
    RunStatus,
    ToolEffect,
    ToolMessage,
    UserMessage,
    WriteKind,
)
from byline.models.messages import Message
from byline.models.scripted import Turn
from byline.testing import ScriptedModel
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import Clock, die_in_write, left_queued, store_of, unknown, waiting
from tests.kernel.stopping import ADD, READ, SET
from tests.kernel.writers import TURNS as WRITE_TURNS
from tests.kernel.writers import WRITES, writer

TURNS: list[Turn] = [[SET], "Done."]
How = Literal["run", "enqueue"]


@pytest.mark.promise("P17")
async def test_a_queued_run_waits_for_whoever_executes_it(host: Host) -> None:
    """With a queue, `run` does what `enqueue` does everywhere: the model is asked nothing before the worker comes."""
    async with host.runtime(model := ScriptedModel(TURNS), execution="queued") as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        assert (run.status, run.pending, model.requests) == (RunStatus.QUEUED, None, [])
    async with host.runtime(model, execution="inline") as runtime:
        also = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        assert (also.status, model.requests) == (RunStatus.QUEUED, [])
        for each in (run, also):
            assert waiting(await runtime.execute(each.run_id))
        assert len(model.requests) == 2


@pytest.mark.promise("P13", "P17")
async def test_with_a_queue_a_decision_only_queues(host: Host) -> None:
    async with host.runtime(model := ScriptedModel(TURNS), execution="queued") as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        run = await runtime.execute(run.run_id)
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert (run.status, host.executions(), len(model.requests)) == (RunStatus.QUEUED, 0, 1)
        assert (await runtime.execute(run.run_id)).status is RunStatus.COMPLETED
        assert host.executions() == 1


@pytest.mark.promise("P13", "P17", "P20")
async def test_with_a_queue_a_verdict_on_an_uncertain_call_only_queues(host: Host) -> None:
    clock = Clock()
    turns: list[Turn] = [[ADD], "Done."]
    run_id = await left_queued(host, turns, clock)
    die_in_write(host, run_id, clock)
    async with host.runtime(turns, store=store_of(host, clock), execution="queued") as runtime:
        run = await runtime.execute(run_id)
        landed = Reconciliation.landed(unknown(run).digest, RecordReference("elements", 1), WriteKind.CREATED)
        run = await runtime.reconcile(run_id, landed, actor=BOB)
        assert (run.status, host.heard()) == (RunStatus.QUEUED, [])
        assert (await runtime.execute(run_id)).status is RunStatus.COMPLETED
        assert (host.executions(), host.heard()) == (0, [("elements:1", "created")])


@pytest.mark.promise("P17")
@pytest.mark.parametrize("second", ["run", "enqueue"])
@pytest.mark.parametrize("first", ["run", "enqueue"])
async def test_one_key_starts_one_run(host: Host, first: How, second: How) -> None:
    """Whatever has become of it: it is returned as it stands, in any process, and nothing more is begun."""
    async with host.runtime(TURNS) as runtime:
        start = runtime.run if first == "run" else runtime.enqueue
        run = await start("editor", "Please do.", actor=ALICE, dedupe_key="order 7")
    async with host.runtime(model := ScriptedModel(TURNS)) as runtime:
        again = runtime.run if second == "run" else runtime.enqueue
        assert await again("editor", "Please do this instead.", actor=ALICE, dedupe_key="order 7") == run
        assert model.requests == []
        await runtime.cancel(run.run_id, actor=ALICE)
        ended = await again("editor", "Please do.", actor=ALICE, dedupe_key="order 7")
        assert (ended.run_id, ended.status) == (run.run_id, RunStatus.CANCELLED)
        assert len(await runtime.list_runs()) == 1


@pytest.mark.promise("P17")
async def test_other_keys_and_none_start_other_runs(host: Host) -> None:
    keys = ["a", "A", "a ", "ä", "a" * 255, None, None]
    async with host.runtime(["Done."]) as runtime:
        runs = [await runtime.run("editor", "Please do.", actor=ALICE, dedupe_key=key) for key in keys]
        assert len({run.run_id for run in runs}) == len(keys)


@pytest.mark.promise("P17", "P24")
@pytest.mark.parametrize("actor", [BOB, AiActorContext.service(ALICE.id)], ids=["another person", "a service"])
async def test_a_key_belongs_to_who_used_it_first(host: Host, actor: AiActorContext) -> None:
    """Nobody is handed the run of another; and nothing is started."""
    async with host.runtime(["Done."]) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE, dedupe_key="order 7")
        with pytest.raises(DedupeConflict):
            await runtime.run("editor", "Please do.", actor=actor, dedupe_key="order 7")
        assert [each.run_id for each in await runtime.list_runs()] == [run.run_id]


EARLIER: Sequence[Message] = (
    UserMessage("What does page 42 say?"),
    AssistantMessage(ModelAnswer(text="That we are a bakery."), ()),
)


@pytest.mark.promise("P12", "P19")
@pytest.mark.parametrize("how", ["run", "enqueue"])
async def test_the_model_reads_what_was_said_before(host: Host, how: How) -> None:
    """In its order, before the prompt; and it is still there when a fresh process goes on."""
    model = ScriptedModel([[SET], "Done."], earlier_answers=1)
    async with host.runtime(model) as runtime:
        start = runtime.run if how == "run" else runtime.enqueue
        run = await start("editor", "Now say so.", actor=ALICE, history=EARLIER)
        await runtime.execute(run.run_id)
        assert model.requests[0].messages == (*EARLIER, UserMessage("Now say so."))
    async with host.runtime(model) as runtime:
        run = await runtime.get_run(run.run_id)
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
        assert model.requests[1].messages[:3] == model.requests[0].messages


@pytest.mark.promise("P12")
async def test_calls_of_the_history_are_not_executed(host: Host) -> None:
    """They are what was said, in another run or another system: they have been answered, or never will be."""
    async with host.runtime([[READ], "Done."]) as runtime:
        run = await runtime.run("editor", "Look.", actor=ALICE)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)
    call_id = uuid4()
    asked = AssistantMessage(ModelAnswer(calls=(ADD,)), (call_id,))
    said = (UserMessage("Add one."), asked, ToolMessage(call_id, "add_element", "Added."))
    model = ScriptedModel(["Done."], earlier_answers=1)
    async with host.runtime(model) as runtime:
        run = await runtime.run("editor", "And now?", actor=ALICE, history=said)
        assert (run.status, run.pending, host.executions()) == (RunStatus.COMPLETED, None, 1)
        assert model.requests[0].messages == (*said, UserMessage("And now?"))


@pytest.mark.promise("P12")
async def test_rounds_are_counted_from_the_prompt(host: Host) -> None:
    """What a conversation has used up before is not taken from this run."""
    earlier: list[Message] = []
    for _ in range(5):
        earlier += EARLIER
    model = ScriptedModel([[READ], "Done."], earlier_answers=5)
    async with host.runtime(model, agent={"max_rounds": 1}) as runtime:
        run = await runtime.run("editor", "Look.", actor=ALICE, history=earlier)
        assert (run.output, host.executions("read_page")) == ("Done.", 1)


@pytest.mark.promise("P13")
@pytest.mark.parametrize("effect", WRITES)
async def test_a_run_reads_the_same_wherever_it_is_read(host: Host, effect: ToolEffect) -> None:
    """What `run` and `decide` return is what `get_run` and `list_runs` say, here and in a fresh process."""
    tools = [writer(host, effect)]
    async with host.runtime(WRITE_TURNS, tools=tools) as runtime, host.runtime(WRITE_TURNS, tools=tools) as other:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        for each in (runtime, other):
            assert await each.get_run(str(run.run_id)) == run
            assert await each.list_runs() == [run]
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        for each in (runtime, other):
            assert await each.get_run(run.run_id) == run
            assert await each.list_runs() == [run]
