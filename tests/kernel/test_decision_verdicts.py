"""Verdicts are given call by call, kept, and never changed; each call of the turn ends with exactly one result."""

import itertools
from collections.abc import Sequence
from uuid import UUID

import pytest

from byline import (
    Agent,
    AgentRuntime,
    AiActorContext,
    AlreadyDecided,
    Decision,
    Deny,
    ModelCall,
    Run,
    RunStatus,
    StepKind,
    ToolMessage,
    ToolNotLoaded,
)
from byline.approval.decision import Approve, Verdict
from byline.testing import ScriptedModel, call
from tests.host import ALICE, BOB, Host
from tests.kernel.gate_entries import ADD, READ, SET, Entry, Script, digest, entered, pending

CONTACT = call("set_description", page_id=41, description="Write to us.")
HOURS = call("set_description", page_id=43, description="From nine to five.")


def by_position(run: Run, *verdicts: Verdict | None) -> Decision:
    """Verdicts on the calls of the waiting turn, in its order; None leaves one undecided."""
    waits = pending(run)
    said = {waiting.id: verdict for waiting, verdict in zip(waits.calls, verdicts, strict=True) if verdict is not None}
    return Decision.per_call(waits.digest, said)


@pytest.mark.promise("P13")
@pytest.mark.report(19)
@pytest.mark.parametrize("entry", Entry)
@pytest.mark.parametrize("turn", [[SET, ADD], [ADD, SET]], ids=["first", "second"])
async def test_a_mixed_verdict_lets_the_one_run_and_refuses_the_other(
    host: Host, entry: Entry, turn: Sequence[ModelCall]
) -> None:
    async with entered(host, entry, [turn, "One is done."]) as play:
        run = await play.ask()
        approved, denied = pending(run).calls
        run = await play.decide(run, by_position(run, Approve(), Deny("We have that already.")))

        assert (run.status, run.output) == (RunStatus.COMPLETED, "One is done.")
        assert (host.executions(approved.tool), host.executions(denied.tool)) == (1, 0)
        assert len(host.heard()) == 1
        told = play.told()
        assert [(said.call_id, said.is_error) for said in told] == [(approved.id, False), (denied.id, True)]
        assert "We have that already." in told[1].text
        assert await play.outcomes(run) == [(approved.tool, "succeeded"), (denied.tool, "denied")]


@pytest.mark.promise("P13")
@pytest.mark.report(17)
@pytest.mark.parametrize("entry", Entry)
async def test_a_verdict_goes_to_the_call_it_names(host: Host, entry: Entry) -> None:
    """Three calls of one tool, which differ in their arguments only, decided in another order than they were made."""
    async with entered(host, entry, [[CONTACT, SET, HOURS], "Done."]) as play:
        run = await play.ask()
        contact, about, hours = pending(run).calls
        verdicts: dict[UUID, Verdict] = {hours.id: Approve(), contact.id: Approve(), about.id: Deny("Not this page.")}
        run = await play.decide(run, Decision.per_call(digest(run), verdicts))
        assert run.status is RunStatus.COMPLETED
        assert (host.description(41), host.description(42), host.description(43)) == (
            "Write to us.",
            "",
            "From nine to five.",
        )
        assert [said.call_id for said in play.told() if said.is_error] == [about.id]


@pytest.mark.promise("P13")
@pytest.mark.parametrize("entry", Entry)
@pytest.mark.parametrize("first", [Approve(), Deny("No.")], ids=["approve", "deny"])
async def test_verdicts_on_some_calls_are_kept_until_all_are_decided(host: Host, entry: Entry, first: Verdict) -> None:
    async with entered(host, entry, [[SET, READ, ADD], "Done."]) as play:
        run = await play.ask()
        to_set, _, to_add = pending(run).calls
        runtime = await play.runtime()
        partly = await runtime.decide(run.run_id, by_position(run, first, None, None), actor=BOB)
        if entry is Entry.QUEUED:
            partly = await runtime.execute(run.run_id)

        assert (host.executions(), digest(partly)) == (0, digest(run))
        assert pending(partly).undecided == {to_add.id}
        (kept,) = pending(partly).decided.values()
        assert (kept.call_id, kept.verdict, kept.actor_id) == (to_set.id, first, BOB.id)

        ended = await play.decide(partly, by_position(partly, None, None, Approve()))

        assert ended.status is RunStatus.COMPLETED
        assert host.executions("set_description") == int(isinstance(first, Approve))
        assert host.executions("add_element") == 1


@pytest.mark.promise("P13")
@pytest.mark.parametrize("second", [Approve(), Deny("Yes, no.")], ids=["approve", "deny"])
@pytest.mark.parametrize("first", [Approve(), Deny("No.")], ids=["approved", "denied"])
@pytest.mark.parametrize("entry", [Entry.DIRECT, Entry.RESUMED])
async def test_a_verdict_is_never_changed(host: Host, entry: Entry, first: Verdict, second: Verdict) -> None:
    async with entered(host, entry, [[SET, ADD], "Done."]) as play:
        run = await play.ask()
        run = await play.decide(run, by_position(run, first, None))
        before = pending(run).decided
        for again in (by_position(run, second, None), by_position(run, second, Approve())):
            with pytest.raises(AlreadyDecided):
                await play.decide(run, again)
            after = await (await play.runtime()).get_run(run.run_id)
            assert pending(after).decided == before
            assert host.executions() == 0
        run = await play.decide(run, by_position(run, None, Approve()))
        assert run.status is RunStatus.COMPLETED
        assert host.executions("set_description") == int(isinstance(first, Approve))


@pytest.mark.promise("P13")
@pytest.mark.parametrize("rest", ["approve", "deny"])
async def test_a_decision_for_all_is_about_what_is_still_undecided(host: Host, rest: str) -> None:
    async with entered(host, Entry.DIRECT, [[SET, ADD, CONTACT], "Done."]) as play:
        run = await play.ask()
        run = await play.decide(run, by_position(run, Approve(), Deny("No."), None))
        whole = Decision.approve(digest(run)) if rest == "approve" else Decision.deny(digest(run))
        run = await play.decide(run, whole)
        assert run.status is RunStatus.COMPLETED
        assert (host.description(42), host.executions("add_element")) == ("Who we are.", 0)
        assert host.description(41) == ("Write to us." if rest == "approve" else "")


@pytest.mark.promise("P13")
async def test_partial_verdicts_of_two_people_make_one_release(host: Host) -> None:
    async with entered(host, Entry.DIRECT, [[SET, ADD], "Done."]) as play:
        run = await play.ask()
        run = await play.decide(run, by_position(run, Approve(), None), BOB)
        run = await play.decide(run, by_position(run, None, Approve()), AiActorContext.user("9", grants=BOB.grants))
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 2)
        assert [step.payload["by"] for step in await play.steps(run)] == [BOB.id, "9"]


# -- the model is told


@pytest.mark.promise("P12")
@pytest.mark.report(1)
@pytest.mark.report(13)
@pytest.mark.parametrize("entry", Entry)
async def test_the_model_learns_who_refused_and_why(host: Host, entry: Entry) -> None:
    reason = "Der Text ist noch im Lektorat: bitte „warten“. 🕰"
    async with entered(host, entry, [[SET], "I see."]) as play:
        run = await play.ask()
        run = await play.decide(run, Decision.deny(digest(run), reason))
        (told,) = play.told()
        assert told.text.startswith("A person refused this call; it was not executed.")
        assert reason in told.text
        assert run.output == "I see."
        (step,) = await play.steps(run)
        assert (step.payload["outcome"], step.payload["by"]) == ("denied", BOB.id)


@pytest.mark.promise("P12")
@pytest.mark.report(13)
async def test_a_refusal_without_a_reason_gives_none(host: Host) -> None:
    async with entered(host, Entry.DIRECT, [[SET], "I see."]) as play:
        run = await play.ask()
        await play.decide(run, Decision.deny(digest(run)))
        (told,) = play.told()
        assert "They say" not in told.text


@pytest.mark.promise("P12")
@pytest.mark.report(14)
@pytest.mark.parametrize("entry", [Entry.DIRECT, Entry.QUEUED, Entry.RESUMED])
async def test_a_model_that_never_takes_no_comes_to_an_end(host: Host, entry: Entry) -> None:
    script: Script = [*itertools.repeat([SET], 4), "I give up."]
    async with entered(host, entry, script, agent={"max_rounds": 4}) as play:
        run = await play.ask()
        refusals = 0
        while run.status is RunStatus.AWAITING_APPROVAL:
            run = await play.decide(run, Decision.deny(digest(run), "No."))
            refusals += 1
        assert (run.status, run.reason, run.output) == (RunStatus.COMPLETED, "max_rounds", "I give up.")
        assert (refusals, host.executions()) == (4, 0)
        assert [outcome for _, outcome in await play.outcomes(run)] == ["denied"] * 4
        assert all("Do not make it again" in said.text for said in play.told())


@pytest.mark.promise("P12")
@pytest.mark.report(14)
async def test_a_refusal_is_no_failure_and_no_error_of_the_call(host: Host) -> None:
    """Four ways not to have written, each of its own name."""
    script: Script = [
        [
            SET,
            ModelCall("set_description", "{"),
            call("delete_page"),
            call("set_description", page_id=7, description="x"),
        ],
        "Done.",
    ]
    async with entered(host, Entry.DIRECT, script) as play:
        run = await play.ask()
        run = await play.decide(run, by_position(run, Deny("No."), Approve()))
        assert sorted(str(outcome) for _, outcome in await play.outcomes(run)) == [
            "denied",
            "failed",
            "invalid",
            "not_offered",
        ]


# -- exactly one result a call


@pytest.mark.promise("P12")
@pytest.mark.report(18)
@pytest.mark.parametrize("entry", Entry)
@pytest.mark.parametrize("denied", [None, "add_element"])
async def test_every_call_of_a_turn_ends_with_exactly_one_result(host: Host, entry: Entry, denied: str | None) -> None:
    turn = [READ, SET, ADD, ModelCall("add_element", "["), CONTACT, call("delete_page"), READ]
    async with entered(host, entry, [turn, "Done."]) as play:
        run = await play.ask()
        waits = pending(run)
        verdicts: dict[UUID, Verdict] = {
            waiting.id: Deny("No.") if waiting.tool == denied else Approve()
            for waiting in waits.calls
            if waiting.needs_decision
        }
        run = await play.decide(run, Decision.per_call(waits.digest, verdicts))

        assert run.status is RunStatus.COMPLETED
        made = [waiting.id for waiting in waits.calls] + [rejected.id for rejected in waits.rejected]
        assert sorted(said.call_id for said in play.told()) == sorted(made)
        assert sorted(step.call_id for step in await play.steps(run) if step.call_id) == sorted(made)


# -- what waits is listed


@pytest.mark.promise("P13")
@pytest.mark.report(27)
async def test_a_fresh_process_lists_the_same_pending_calls(host: Host) -> None:
    script: Script = [[READ, SET, ADD], "Done."]
    async with host.runtime(script) as runtime:
        asked = [await runtime.run("editor", f"Page 42, {number}.", actor=ALICE) for number in range(3)]
        waiting = [
            await runtime.decide(run.run_id, by_position(run, None, Approve(), None), actor=BOB) for run in asked
        ]
    async with host.runtime(script) as runtime:
        listed = await runtime.list_runs(status=RunStatus.AWAITING_APPROVAL)
        assert [run.run_id for run in listed] == [run.run_id for run in reversed(asked)]
        assert [pending(run) for run in listed] == [pending(run) for run in reversed(waiting)]
        assert [run.problem for run in listed] == [None] * 3
        for run in listed:
            assert (await runtime.get_run(run.run_id)) == run
            ended = await runtime.decide(run.run_id, by_position(run, None, None, Approve()), actor=BOB)
            assert ended.status is RunStatus.COMPLETED
        assert await runtime.list_runs(status=RunStatus.AWAITING_APPROVAL) == []
        assert host.executions("add_element") == 3


@pytest.mark.promise("P13")
@pytest.mark.report(26)
@pytest.mark.parametrize("gone", ["the agent", "a tool"])
async def test_what_waits_for_what_is_not_loaded_stays_listed_and_loses_nothing(host: Host, gone: str) -> None:
    script: Script = [[SET, READ], "Done."]
    async with host.runtime(script) as runtime:
        asked = await runtime.run("editor", "See to page 42.", actor=ALICE)
    left = host.tools()[:1] if gone == "a tool" else host.tools()
    agent = Agent(name="editor" if gone == "a tool" else "writer", model=ScriptedModel(script), tools=left)
    store = f"sqlite:///{host.path.parent / 'byline.db'}"
    async with AgentRuntime(store=store, agents=[agent], authority=host.people) as without:
        (run,) = await without.list_runs()
        assert pending(run) == pending(asked)
        assert run.problem is not None
        assert ("set_description" if gone == "a tool" else "editor") in run.problem
        with pytest.raises(ToolNotLoaded):
            await without.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        recovered = await without.recover()
        assert (recovered.executed, recovered.expired) == ((), ())
        assert pending(await without.execute(run.run_id)) == pending(asked)
    async with host.runtime(script) as runtime:
        run = await runtime.decide(asked.run_id, Decision.approve(digest(asked)), actor=BOB)
        assert (run.status, host.executions("set_description")) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P13")
@pytest.mark.report(26)
async def test_a_process_without_the_tool_can_deny_and_cancel(host: Host) -> None:
    script: Script = [[SET], "I see."]
    async with host.runtime(script) as runtime:
        one = await runtime.run("editor", "See to page 42.", actor=ALICE)
        other = await runtime.run("editor", "See to page 42.", actor=ALICE)
    writer = Agent(name="writer", model=ScriptedModel(script))
    store = f"sqlite:///{host.path.parent / 'byline.db'}"
    async with AgentRuntime(store=store, agents=[writer], authority=host.people) as without:
        denied = await without.decide(one.run_id, Decision.deny(digest(one), "No."), actor=BOB)
        assert denied.status is RunStatus.QUEUED
        assert denied.problem == "agent 'editor' is not loaded in this process"
        assert (await without.recover()).executed == ()
        assert (await without.get_run(one.run_id)) == denied
        cancelled = await without.cancel(other.run_id, actor=ALICE)
        assert cancelled.status is RunStatus.CANCELLED
    model = ScriptedModel(script)
    async with host.runtime(model) as runtime:
        assert (await runtime.recover()).executed == (one.run_id,)
        assert (await runtime.get_run(one.run_id)).output == "I see."
        (told,) = [said for said in model.requests[-1].messages if isinstance(said, ToolMessage)]
        assert "They say: No." in told.text
        assert host.executions() == 0


@pytest.mark.promise("P13")
@pytest.mark.report(21)
async def test_a_double_click_runs_the_tool_once(host: Host) -> None:
    """Two requests of one page, one behind the other; that two come at once is for the tests of races."""
    async with entered(host, Entry.DIRECT, [[ADD], "Done."]) as play:
        run = await play.ask()
        runtime = await play.runtime()
        decision = Decision.approve(digest(run))
        ended = await runtime.decide(run.run_id, decision, actor=BOB)
        assert ended.status is RunStatus.COMPLETED
        for _ in range(3):
            with pytest.raises(AlreadyDecided):
                await runtime.decide(run.run_id, decision, actor=BOB)
        assert (host.executions(), host.elements()) == (1, ["Open on Monday."])
        kinds = [step.kind for step in await runtime.list_steps(run.run_id)]
        assert kinds.count(StepKind.WRITE) == 1
