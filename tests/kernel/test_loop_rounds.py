"""A run is bounded: at most `max_rounds` answers with tools, then one closing answer without; and what a model sees."""

import pytest

from byline import (
    Decision,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    RunStatus,
    StepKind,
    TerminationReason,
    ToolContext,
    ToolEffect,
    ToolResult,
)
from byline.testing import ScriptedModel, call
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import ENTRIES, Entry, executed, waiting
from tests.kernel.writers import WRITE, WRITES, writer, written

READ = call("read_page", page_id=42)
ADD = call("add_element", page_id=42, text="Come in.")


@pytest.mark.report(14)
@pytest.mark.parametrize("rounds", [1, 3])
async def test_after_the_last_round_the_model_closes_without_tools(host: Host, rounds: int) -> None:
    model = ScriptedModel([*([READ],) * rounds, "That is all."])
    async with host.runtime(model, agent={"max_rounds": rounds}) as runtime:
        run = await runtime.run("editor", "Please look.", actor=ALICE)

    assert (run.status, run.reason, run.output) == (RunStatus.COMPLETED, TerminationReason.MAX_ROUNDS, "That is all.")
    assert host.executions() == rounds
    assert [bool(request.tools) for request in model.requests] == [True] * rounds + [False]


@pytest.mark.report(14)
async def test_calls_in_the_closing_answer_are_neither_asked_about_nor_run(host: Host) -> None:
    def insist(request: ModelRequest) -> ModelAnswer:
        return ModelAnswer(text="Just once more.", calls=(ADD, READ))

    model = ScriptedModel([[READ], insist])
    async with host.runtime(model, agent={"max_rounds": 1}) as runtime:
        run = await runtime.run("editor", "Please look.", actor=ALICE)

        assert (run.status, run.reason, run.output) == (
            RunStatus.COMPLETED,
            TerminationReason.MAX_ROUNDS,
            "Just once more.",
        )
        assert (host.executions(), len(model.requests)) == (1, 2)


@pytest.mark.report(14)
@pytest.mark.parametrize("turn", [[ADD], [call("no_such_tool")], [call("read_page", page_id="x")]])
async def test_a_model_that_is_refused_for_ever_comes_to_an_end(host: Host, turn: list[ModelCall]) -> None:
    """A refusal of any kind is a round like any other; a denial is told apart from an error."""
    model = ScriptedModel([turn, turn, turn, "I give up."])
    async with host.runtime(model, agent={"max_rounds": 3}) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        while run.status is RunStatus.AWAITING_APPROVAL:
            run = await runtime.decide(run.run_id, Decision.deny(waiting(run), "Not today."), actor=BOB)

        assert (run.status, run.reason) == (RunStatus.COMPLETED, TerminationReason.MAX_ROUNDS)
        assert len(model.requests) == 4
        assert host.executions() == 0
        steps = await runtime.list_steps(run.run_id)
        outcomes = {str(step.payload["outcome"]) for step in steps if step.kind is StepKind.TOOL}
        assert outcomes == {
            {"add_element": "denied", "no_such_tool": "not_offered", "read_page": "invalid"}[turn[0].name]
        }


@pytest.mark.report(14)
@pytest.mark.parametrize("entry", ENTRIES)
async def test_rounds_are_counted_across_segments(host: Host, entry: Entry) -> None:
    model = ScriptedModel([[READ], [ADD], "That is all."])
    async with executed(host, entry, model, agent={"max_rounds": 2}) as (_, run):
        assert (run.reason, run.output) == (TerminationReason.MAX_ROUNDS, "That is all.")
        assert [bool(request.tools) for request in model.requests] == [True, True, False]


@pytest.mark.promise("P10")
@pytest.mark.parametrize("effect", [ToolEffect.READ_ONLY, *WRITES])
async def test_artifacts_never_reach_the_model_and_are_kept_for_the_host(host: Host, effect: ToolEffect) -> None:
    secret = "only-for-the-host"

    def end(context: ToolContext) -> ToolResult:
        result = ToolResult.text("Done so.") if effect is ToolEffect.READ_ONLY else written(context)
        return result.with_artifacts({"thumbnail": secret})

    seen: list[str] = []

    def look(request: ModelRequest) -> str:
        seen.append(repr(request))
        return "Done."

    async with host.runtime([[WRITE], [READ], look], tools=[writer(host, effect, end), *host.tools()]) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        if run.status is RunStatus.AWAITING_APPROVAL:
            run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)

        assert run.status is RunStatus.COMPLETED
        (request,) = seen
        assert "Come in." in request  # what the model said itself is there
        assert secret not in request
