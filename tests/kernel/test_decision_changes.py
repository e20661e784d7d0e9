"""Changed arguments are a proposal: validated, previewed and put before the people again, under a new digest."""

import sqlite3
from contextlib import closing
from typing import Annotated

import pytest
from pydantic import BeforeValidator, Field, JsonValue

from byline import (
    AgentRuntime,
    AiActorContext,
    Decision,
    Grant,
    InvalidArguments,
    NotAllowed,
    RecordReference,
    Run,
    RunStatus,
    StaleDecision,
    StepKind,
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    WriteKind,
    tool,
)
from byline.approval.decision import Approve, Change
from byline.testing import call
from tests.host import ALICE, BOB, AgentFacts, Host
from tests.kernel.gate_entries import ADD, ALIVE, BETTER, SET, Entry, Script, change, digest, entered, pending
from tests.kernel.gate_people import CAROL


@pytest.mark.promise("P14", "P13")
@pytest.mark.report(11)
@pytest.mark.parametrize("entry", ALIVE)
async def test_a_changed_turn_is_shown_and_decided_anew(host: Host, entry: Entry) -> None:
    async with entered(host, entry, [[SET], "I see."]) as play:
        run = await play.ask()
        old = digest(run)
        changed = await play.decide(run, change(run, BETTER))

        assert host.executions() == 0
        (shown,) = pending(changed).calls
        assert shown.id == pending(run).calls[0].id
        assert shown.arguments == BETTER
        assert shown.preview == ("- ", "+ Who we really are.")
        assert (shown.proposed, shown.changed_by) == ({"page_id": 42, "description": "Who we are."}, BOB.id)
        assert pending(changed).turn.suspension == 2
        assert digest(changed) != old
        for decision in (Decision.approve(old), Decision.deny(old), change(run, BETTER)):
            with pytest.raises(StaleDecision):
                await play.decide(changed, decision)
        assert host.executions() == 0

        ended = await play.decide(changed, Decision.approve(digest(changed)))

        assert (ended.status, host.description(), host.executions()) == (RunStatus.COMPLETED, "Who we really are.", 1)
        (told,) = play.told()
        assert "A person changed the arguments of this call" in told.text
        assert "Who we really are." in told.text


@pytest.mark.promise("P14")
@pytest.mark.report(11)
async def test_a_change_can_be_changed_and_the_model_s_own_words_are_kept(host: Host) -> None:
    async with entered(host, Entry.DIRECT, [[SET], "I see."]) as play:
        run = await play.ask()
        run = await play.decide(run, change(run, BETTER), BOB)
        run = await play.decide(run, change(run, {"page_id": 41, "description": "Both of us."}), CAROL)
        (shown,) = pending(run).calls
        assert (shown.proposed, shown.changed_by) == ({"page_id": 42, "description": "Who we are."}, CAROL.id)
        run = await play.decide(run, Decision.approve(digest(run)))
        assert (host.description(41), host.description(42)) == ("Both of us.", "")


@pytest.mark.promise("P14")
@pytest.mark.report(11)
async def test_arguments_stay_sealed_until_the_run_settles_and_then_their_digests_stay(host: Host) -> None:
    async with entered(host, Entry.DIRECT, [[SET], "I see."]) as play:
        run = await play.ask()
        run = await play.decide(run, change(run, BETTER))
        run = await play.decide(run, change(run, {"page_id": 42, "description": "All of us."}))
        run = await play.decide(run, Decision.approve(digest(run)))
        suspended = await play.steps(run, StepKind.SUSPENDED)
        changes = [step.payload for step in suspended if "proposed" in step.payload]
        first, second = [{name: str(value) for name, value in payload.items()} for payload in changes]
        assert first["proposed"] == second["proposed"]
        assert len({first["proposed"], first["arguments"], second["arguments"]}) == 3
        assert (first["by"], second["by"]) == (BOB.id, BOB.id)
        assert len({str(step.payload["digest"]) for step in suspended}) == 3
        (step,) = await play.steps(run)
        assert step.call_id == suspended[-1].call_id
        await play.stack.aclose()
    with closing(sqlite3.connect(host.path.parent / "byline.db")) as database:
        dump = "\n".join(database.iterdump())
    assert str(first["proposed"]) in dump
    assert not any(words in dump for words in ("Who we are", "Who we really are", "All of us"))


# -- validated


def _title(value: object) -> object:
    return value.strip().title() if isinstance(value, str) else value


@pytest.mark.promise("P14")
@pytest.mark.report(9)
async def test_changed_arguments_are_normalised_like_the_model_s(host: Host) -> None:
    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def rename(
        context: ToolContext, page_id: int, title: Annotated[str, BeforeValidator(_title)], keep: bool = True
    ) -> ToolResult:
        """Rename a page."""
        host.count(context, f"{page_id}:{title}:{keep}")
        return ToolResult.text("Renamed.").with_write_target(RecordReference("pages", page_id), WriteKind.UPDATED)

    async with entered(host, Entry.DIRECT, [[call("rename", page_id=42, title="x")], "Done."], tools=[rename]) as play:
        run = await play.ask()
        run = await play.decide(run, change(run, {"title": "  about us ", "page_id": "42"}))
        assert pending(run).calls[0].arguments == {"page_id": 42, "title": "About Us", "keep": True}
        await play.decide(run, Decision.approve(digest(run)))
        assert host.executions("42:About Us:True") == host.executions() == 1


UNFIT: dict[str, dict[str, JsonValue]] = {
    "nothing": {},
    "one too few": {"page_id": 42},
    "one too many": {"page_id": 42, "description": "x", "title": "y"},
    "a wrong type": {"page_id": "forty-two", "description": "x"},
    "ten megabytes": {"page_id": 42, "description": "x" * 10_000_000},
}


@pytest.mark.promise("P14")
@pytest.mark.report(9)
@pytest.mark.parametrize("unfit", UNFIT)
@pytest.mark.parametrize("entry", [Entry.DIRECT, Entry.RESUMED])
async def test_changed_arguments_that_do_not_fit_change_nothing(host: Host, entry: Entry, unfit: str) -> None:
    async with entered(host, entry, [[SET, ADD], "Done."]) as play:
        run = await play.ask()
        with pytest.raises(InvalidArguments) as refused:
            await play.decide(run, change(run, UNFIT[unfit]))
        assert len(str(refused.value)) < 2_000
        assert pending(await (await play.runtime()).get_run(run.run_id)) == pending(run)
        run = await play.decide(run, Decision.approve(digest(run)))
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 2)


NO_JSON: dict[str, object] = {
    "no mapping": [1],
    "nothing": None,
    "a text": '{"page_id": 42}',
    "an object": {"page_id": object()},
    "a set": {"page_id": {42}},
    "a tuple": {"page_id": (42,)},
    "bytes": {"description": b"x"},
    "no number": {"page_id": float("nan")},
    "an endless number": {"page_id": float("inf")},
    "a huge number": {"page_id": 10**400},
    "a NUL": {"description": "a\0b"},
    "half a surrogate pair": {"description": "\ud800"},
    "a key that is a number": {42: "x"},
    "a key that is half a surrogate pair": {"\ud800": "x"},
}


@pytest.mark.promise("P14")
@pytest.mark.parametrize("given", NO_JSON)
def test_what_no_json_holds_is_no_change(given: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        Change(NO_JSON[given])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert len(str(refused.value)) < 300


@pytest.mark.promise("P14")
def test_a_change_in_a_circle_is_refused() -> None:
    circle: dict[str, JsonValue] = {}
    circle["again"] = circle
    with pytest.raises(InvalidArguments):
        Change(circle)


@pytest.mark.promise("P14")
async def test_a_change_is_what_it_was_when_it_was_made(host: Host) -> None:
    async with entered(host, Entry.DIRECT, [[SET], "Done."]) as play:
        run = await play.ask()
        arguments: dict[str, JsonValue] = dict(BETTER)
        decision = change(run, arguments)
        arguments["page_id"] = 41
        run = await play.decide(run, decision)
        assert pending(run).calls[0].arguments == BETTER


def described(host: Host, *, at_most: int) -> list[Tool]:
    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def set_description(
        context: ToolContext, page_id: int, description: Annotated[str, Field(max_length=at_most)]
    ) -> ToolResult:
        """Set the description of a page."""
        host.count(context, "set_description")
        return ToolResult.text("Set.").with_write_target(RecordReference("pages", page_id), WriteKind.UPDATED)

    return [set_description]


@pytest.mark.promise("P14")
@pytest.mark.parametrize("stored, loaded", [(20, 300), (300, 20)], ids=["stored", "loaded"])
async def test_the_stricter_of_the_stored_and_the_loaded_schema_holds(host: Host, stored: int, loaded: int) -> None:
    script: Script = [[SET], "Done."]
    async with host.runtime(script, tools=described(host, at_most=stored)) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
    async with host.runtime(script, tools=described(host, at_most=loaded)) as runtime:
        with pytest.raises(InvalidArguments):
            await runtime.decide(run.run_id, change(run, {"page_id": 42, "description": "x" * 21}), actor=BOB)
        assert pending(await runtime.get_run(run.run_id)) == pending(run)
        run = await runtime.decide(run.run_id, change(run, {"page_id": 42, "description": "x" * 20}), actor=BOB)
        assert pending(run).calls[0].arguments["description"] == "x" * 20


# -- who


async def cannot(runtime: AgentRuntime, run: Run, decision: Decision, actor: AiActorContext) -> None:
    with pytest.raises(NotAllowed):
        await runtime.decide(run.run_id, decision, actor=actor)
    assert pending(await runtime.get_run(run.run_id)) == pending(run)


@pytest.mark.promise("P14")
async def test_who_changes_arguments_must_be_let_do_what_they_propose(host: Host) -> None:
    """Bob may write page 42 only: he cannot turn a call to another page, nor can somebody without the grant."""
    host.people.forbidden = lambda actor, proposed: actor.id == BOB.id and proposed.arguments.get("page_id") != 42
    async with entered(host, Entry.DIRECT, [[SET], "Done."]) as play:
        run = await play.ask()
        runtime = await play.runtime()
        await cannot(runtime, run, change(run, {"page_id": 41, "description": "Mine."}), BOB)
        await cannot(runtime, run, change(run, BETTER), AiActorContext.user("9"))
        run = await play.decide(run, change(run, BETTER), BOB)
        assert pending(run).calls[0].changed_by == BOB.id
        assert host.executions() == 0


@pytest.mark.promise("P14")
@pytest.mark.report(11)
@pytest.mark.parametrize("entry", ALIVE)
async def test_under_second_approver_who_changed_it_may_not_release_it(host: Host, entry: Entry) -> None:
    async with entered(host, entry, [[SET, ADD], "Done."], agent={"second_approver": True}) as play:
        run = await play.ask()
        run = await play.decide(run, change(run, BETTER), BOB)
        runtime = await play.runtime()
        to_set, to_add = pending(run).calls
        granted_alice = AiActorContext.user(ALICE.id, grants=tuple(Grant))
        for actor in (BOB, granted_alice):  # the proposer, and the initiator
            await cannot(runtime, run, Decision.approve(digest(run)), actor)
            await cannot(runtime, run, Decision.per_call(digest(run), {to_set.id: Approve()}), actor)
        run = await runtime.decide(run.run_id, Decision.per_call(digest(run), {to_add.id: Approve()}), actor=BOB)
        run = await play.decide(run, Decision.per_call(digest(run), {to_set.id: Approve()}), CAROL)
        assert (run.status, host.description(), host.executions()) == (RunStatus.COMPLETED, "Who we really are.", 2)


@pytest.mark.promise("P14")
async def test_under_second_approver_the_initiator_may_propose_and_another_releases(host: Host) -> None:
    granted_alice = AiActorContext.user(ALICE.id, grants=tuple(Grant))
    async with entered(host, Entry.DIRECT, [[SET], "Done."], agent={"second_approver": True}) as play:
        run = await play.ask()
        run = await play.decide(run, change(run, BETTER), granted_alice)
        await cannot(await play.runtime(), run, Decision.approve(digest(run)), granted_alice)
        run = await play.decide(run, Decision.approve(digest(run)), BOB)
        assert (run.status, host.description()) == (RunStatus.COMPLETED, "Who we really are.")


@pytest.mark.promise("P14")
async def test_without_second_approver_who_changed_it_may_release_it(host: Host) -> None:
    async with entered(host, Entry.DIRECT, [[SET], "Done."]) as play:
        run = await play.ask()
        run = await play.decide(run, change(run, BETTER), BOB)
        run = await play.decide(run, Decision.approve(digest(run)), BOB)
        assert (run.status, host.description()) == (RunStatus.COMPLETED, "Who we really are.")


@pytest.mark.promise("P14")
async def test_a_proposer_is_remembered_when_the_turn_waits_again(host: Host) -> None:
    """Re-suspended by a worker whose tool is stricter, what Bob proposed is still not Bob's to release."""
    script: Script = [[SET], "Done."]
    facts: AgentFacts = {"second_approver": True}
    async with host.runtime(script, agent=facts, execution="queued") as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        run = await runtime.execute(run.run_id)
        run = await runtime.decide(run.run_id, change(run, BETTER), actor=BOB)
        await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=CAROL)

    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def set_description(context: ToolContext, page_id: int, description: str) -> ToolResult:
        """Set the description of a page, and keep its history."""
        host.count(context, "set_description")
        return ToolResult.text("Set.").with_write_target(RecordReference("pages", page_id), WriteKind.UPDATED)

    async with host.runtime(script, agent=facts, tools=[set_description]) as runtime:
        run = await runtime.execute(run.run_id)
        assert pending(run).calls[0].changed_by == BOB.id
        await cannot(runtime, run, Decision.approve(digest(run)), BOB)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=CAROL)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)
