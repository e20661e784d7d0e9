"""Within a turn: reads run side by side, writes one after the other, and every call ends with exactly one result."""

import asyncio
import threading
from collections import Counter
from uuid import UUID

import pytest

from byline import (
    Approve,
    Change,
    Decision,
    Deny,
    RunStatus,
    StepKind,
    StoreUnavailable,
    Tool,
    ToolContext,
    ToolEffect,
    ToolMessage,
    ToolResult,
    tool,
)
from byline.store.protocol import Change as StoredChange
from byline.store.protocol import Claim, Progress
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel, call
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import (
    ENTRIES,
    Clock,
    Entry,
    executed,
    left_queued,
    store_of,
    waiting,
)
from tests.kernel.silence import Silence
from tests.kernel.writers import WRITES, written

READ = call("read_page", page_id=42)
ADD = call("add_element", page_id=42, text="Come in.")


def results(model: ScriptedModel) -> Counter[UUID]:
    """How many results the model was told, by call."""
    return Counter(said.call_id for said in model.requests[-1].messages if isinstance(said, ToolMessage))


async def test_consecutive_reads_run_side_by_side(host: Host) -> None:
    """Each waits for the others: one after the other they would never end."""
    together, on_thread = asyncio.Barrier(6), threading.Barrier(2)

    @tool(effect=ToolEffect.READ_ONLY, timeout=20)
    async def look(context: ToolContext) -> ToolResult:
        """Look, on the loop."""
        await together.wait()
        return ToolResult.text("seen")

    @tool(effect=ToolEffect.READ_ONLY, timeout=20)
    def peer(context: ToolContext) -> ToolResult:
        """Look, on a thread."""
        on_thread.wait(20)
        return ToolResult.text("seen")

    model = ScriptedModel([[*[call("look")] * 6, call("peer"), call("peer")], "Done."])
    async with host.runtime(model, tools=[look, peer]) as runtime:
        run = await runtime.run("editor", "Please look.", actor=ALICE)
        assert run.status is RunStatus.COMPLETED
        assert [said.text for said in model.requests[-1].messages if isinstance(said, ToolMessage)] == ["seen"] * 8
        assert set(results(model).values()) == {1}


async def test_results_are_told_in_the_order_of_the_calls(host: Host) -> None:
    """Whichever ended first: what a model reads does not vary from one time to the next."""
    second_ended = asyncio.Event()

    @tool(effect=ToolEffect.READ_ONLY)
    async def first(context: ToolContext) -> ToolResult:
        """Read what takes longer."""
        await second_ended.wait()
        return ToolResult.text("The first.")

    @tool(effect=ToolEffect.READ_ONLY)
    async def second(context: ToolContext) -> ToolResult:
        """Read what is quick."""
        return ToolResult.text("The second.")

    class Watching(SqlStore):
        def advance(self, claim: Claim, change: StoredChange, *, at: int, revision: int) -> bool:
            stored = super().advance(claim, change, at=at, revision=revision)
            if isinstance(change, Progress) and any(isinstance(said, ToolMessage) for said in change.messages):
                loop.call_soon_threadsafe(second_ended.set)
            return stored

    loop = asyncio.get_running_loop()
    model = ScriptedModel([[call("first"), call("second")], "Done."])
    store = Watching(str(store_of(host).engine.url))
    async with host.runtime(model, tools=[first, second], store=store) as runtime, asyncio.timeout(10):
        assert (await runtime.run("editor", "Read both.", actor=ALICE)).output == "Done."
    told = [said.text for said in model.requests[-1].messages if isinstance(said, ToolMessage)]
    assert told == ["The first.", "The second."]


@pytest.mark.parametrize("entry", ENTRIES)
async def test_writes_run_one_after_the_other_in_the_models_order_and_no_read_overtakes_one(
    host: Host, entry: Entry
) -> None:
    order: list[tuple[str, str]] = []
    running: list[str] = []

    def make(name: str, effect: ToolEffect) -> Tool:
        @tool(effect=effect, name=name)
        async def execute(context: ToolContext) -> ToolResult:
            """Note who else runs."""
            running.append(name)
            await asyncio.sleep(0.01)
            order.append((name, " ".join(sorted(running))))
            running.remove(name)
            return ToolResult.text("seen") if effect is ToolEffect.READ_ONLY else written(context)

        return execute

    first, second = WRITES
    tools = [
        make("r1", ToolEffect.READ_ONLY), make("r2", ToolEffect.READ_ONLY), make("w1", first), make("w2", second),
        make("w3", first), make("r3", ToolEffect.READ_ONLY), make("w4", second),
    ]  # fmt: skip
    names = ["w1", "w2", "r1", "r2", "w3", "w4", "r3"]
    async with executed(host, entry, [[call(name) for name in names], "Done."], tools=tools) as (_, run):
        assert run.status is RunStatus.COMPLETED
        reads = sorted(order[2:4])
        assert [*order[:2], *reads, *order[4:]] == [
            ("w1", "w1"), ("w2", "w2"), ("r1", "r1 r2"), ("r2", "r2"), ("w3", "w3"), ("w4", "w4"), ("r3", "r3"),
        ]  # fmt: skip


@pytest.mark.report(18, 19)
@pytest.mark.parametrize("entry", ENTRIES)
async def test_every_call_of_a_turn_ends_with_exactly_one_result(host: Host, entry: Entry) -> None:
    turn = [READ, call("no_such_tool"), ADD, call("read_page", page_id="x"), READ, ADD]
    model = ScriptedModel([turn, "Done."])
    async with executed(host, entry, model, tools=None) as (runtime, run):
        assert run.status is RunStatus.COMPLETED
        assert len(results(model)) == len(turn)
        assert set(results(model).values()) == {1}
        steps = [step for step in await runtime.list_steps(run.run_id) if step.kind is StepKind.TOOL]
        assert Counter(step.call_id for step in steps) == results(model)
        assert sorted(str(step.payload["outcome"]) for step in steps) == [
            "invalid", "not_offered", "succeeded", "succeeded", "succeeded", "succeeded",
        ]  # fmt: skip
        assert host.elements() == ["Come in.", "Come in."]


@pytest.mark.report(19)
async def test_a_mixed_verdict_runs_what_was_approved_and_answers_both(host: Host) -> None:
    model = ScriptedModel([[ADD, call("add_element", page_id=42, text="Go away.")], "Done."])
    async with host.runtime(model) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        digest = waiting(run)
        assert run.pending is not None
        keep, drop = (pending.id for pending in run.pending.calls)
        verdicts: dict[UUID, Approve | Deny | Change] = {keep: Approve(), drop: Deny("Too rude.")}
        run = await runtime.decide(run.run_id, Decision.per_call(digest, verdicts), actor=BOB)

        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
        assert host.elements() == ["Come in."]
        assert results(model) == Counter({keep: 1, drop: 1})
        told = {said.call_id: said for said in model.requests[-1].messages if isinstance(said, ToolMessage)}
        assert (told[keep].is_error, told[drop].is_error) == (False, True)
        assert "Too rude." in told[drop].text


@pytest.mark.promise("P19")
@pytest.mark.report(16, 18)
@pytest.mark.parametrize("written_before", [0, 1, 2])
async def test_after_a_crash_in_a_turn_of_three_writes_each_ran_once(host: Host, written_before: int) -> None:
    """The segment ends when it cannot set the next fence; whoever takes over goes on from there."""
    clock = Clock()
    texts = ["one", "two", "three"]
    model = ScriptedModel([[*(call("add_element", page_id=42, text=text) for text in texts), READ], "Done."])
    run_id = await left_queued(host, model, clock)
    store = store_of(host, clock)
    silence = Silence(store)
    commits = 0

    def fails() -> bool:
        nonlocal commits
        commits += 1
        return commits > 1 + 2 * written_before  # the claim; then a fence and a result for each write

    async with host.runtime(model, store=store) as runtime:
        silence.fails = fails
        with pytest.raises(StoreUnavailable):
            await runtime.execute(run_id)
        silence.end()
        assert host.elements() == texts[:written_before]
    clock.let_leases_expire()

    async with host.runtime(model, store=store_of(host, clock)) as runtime:
        run = await runtime.execute(run_id)
        assert run.status is RunStatus.COMPLETED
        assert host.elements() == texts
        assert host.executions() == 4
        assert len(host.heard()) == 3
        assert list(results(model).values()) == [1, 1, 1, 1]
        assert len(model.requests) == 2  # nobody asked it for the approved turn again
