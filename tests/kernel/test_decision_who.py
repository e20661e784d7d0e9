"""Who may decide: the host says so, per call and with its arguments; the default is no."""

from uuid import UUID

import pytest

from byline import (
    AiActorContext,
    Decision,
    Deny,
    Grant,
    InvalidIdentifier,
    ModelCall,
    RecordReference,
    RunStatus,
    Scope,
    ToolContext,
    ToolEffect,
    ToolResult,
    WriteKind,
    tool,
)
from byline.approval.decision import Approve, Verdict
from byline.testing import call
from tests.host import ALICE, BOB, AgentFacts, Host
from tests.kernel.gate_entries import ADD, READ, SET, Entry, Script, digest, entered, pending
from tests.kernel.gate_people import directory, refused

ADMIN = AiActorContext.user("1", grants=tuple(Grant))


# -- who they are, is the host's word


@pytest.mark.promise("P14")
@pytest.mark.report(12)
@pytest.mark.parametrize(
    "known, comes_as",
    [
        (None, BOB),
        (AiActorContext.user("8"), BOB),
        (AiActorContext.user("8", grants={Grant.RECONCILE}), BOB),
        (BOB, AiActorContext.user("8")),
        (BOB, AiActorContext.user("8", grants={Grant.RECONCILE})),
        (AiActorContext.user("9", grants=tuple(Grant)), BOB),
        (AiActorContext.service("8", grants=tuple(Grant)), BOB),
        (BOB, AiActorContext.service("8", grants=tuple(Grant))),
    ],
    ids=[
        "unknown to the host", "granted nothing", "granted another", "in a session without the grant",
        "in a session with another grant", "loaded as somebody else", "a service account", "with a service's token",
    ],
)  # fmt: skip
async def test_who_decides_is_who_the_host_says_and_may_what_host_and_session_grant(
    host: Host, known: AiActorContext | None, comes_as: AiActorContext
) -> None:
    """A caller that names an approver with every grant gets no more than the host gives them."""
    people = directory(ALICE)
    if known is not None:
        people.known["8"] = known
    async with host.runtime([[SET], "Done."], authority=people) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        await refused(host, runtime, run, Decision.approve(digest(run)), comes_as)
        people.known["8"] = BOB
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P14")
@pytest.mark.report(12)
@pytest.mark.parametrize("actor", [None, "8", 8, {"id": "8"}, BOB.id.encode()], ids=repr)
async def test_an_actor_is_no_name_from_a_request(host: Host, actor: object) -> None:
    async with host.runtime([[SET], "Done."]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        with pytest.raises(InvalidIdentifier):
            await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=actor)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidIdentifier):
            await runtime.cancel(run.run_id, actor=actor)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidIdentifier):
            await runtime.run("editor", "See to page 42.", actor=actor)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        assert pending(await runtime.get_run(run.run_id)) == pending(run)
        assert len(await runtime.list_runs()) == 1


# -- per call, with its arguments


@pytest.mark.promise("P14")
@pytest.mark.parametrize("entry", [Entry.DIRECT, Entry.QUEUED, Entry.RESUMED])
async def test_the_authority_is_asked_of_each_write_with_its_arguments(host: Host, entry: Entry) -> None:
    people = directory(ALICE, BOB)
    async with entered(host, entry, [[SET, READ, ADD], "Done."], authority=people) as play:
        run = await play.ask()
        assert people.asked == []
        to_set, _, to_add = pending(run).calls
        runtime = await play.runtime()
        await runtime.decide(
            run.run_id, Decision.per_call(digest(run), {to_set.id: Approve(), to_add.id: Deny()}), actor=BOB
        )
        actor, proposed = people.asked[0]
        assert actor == BOB
        assert (proposed.run_id, proposed.call_id, proposed.agent) == (run.run_id, to_set.id, "editor")
        assert (proposed.tool, proposed.writes) == ("set_description", True)
        assert proposed.arguments == to_set.arguments == {"page_id": 42, "description": "Who we are."}
        assert {asked.call_id for _, asked in people.asked} == {to_set.id}


@pytest.mark.promise("P14")
async def test_permissions_are_per_record_and_the_whole_decision_is_refused(host: Host) -> None:
    """Bob may write page 42, and not page 41."""
    people = directory(ALICE, BOB, ADMIN)
    people.may = lambda actor, proposed: actor.id != BOB.id or proposed.arguments["page_id"] == 42
    contact = call("set_description", page_id=41, description="Write to us.")
    async with host.runtime([[SET, contact], "Done."], authority=people) as runtime:
        run = await runtime.run("editor", "See to the pages.", actor=ALICE)
        about, other = pending(run).calls
        both: dict[str, Decision] = {
            "all": Decision.approve(digest(run)),
            "each": Decision.per_call(digest(run), {about.id: Approve(), other.id: Approve()}),
            "the other": Decision.per_call(digest(run), {other.id: Approve()}),
            "one of each": Decision.per_call(digest(run), {about.id: Deny(), other.id: Approve()}),
        }
        for decision in both.values():
            await refused(host, runtime, run, decision, BOB)
        partly = await runtime.decide(run.run_id, Decision.per_call(digest(run), {about.id: Approve()}), actor=BOB)
        assert pending(partly).undecided == {other.id}
        ended = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=ADMIN)
        assert (ended.status, host.description(41), host.description(42)) == (
            RunStatus.COMPLETED,
            "Write to us.",
            "Who we are.",
        )


@pytest.mark.promise("P14")
async def test_who_may_not_release_may_deny(host: Host) -> None:
    people = directory(ALICE, BOB)
    people.may = lambda actor, _: actor.id != BOB.id
    async with host.runtime([[SET], "I see."], authority=people) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        await refused(host, runtime, run, Decision.approve(digest(run)), BOB)
        run = await runtime.decide(run.run_id, Decision.deny(digest(run)), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 0)


@pytest.mark.promise("P14")
@pytest.mark.parametrize(
    "actor, known, may",
    [
        (ALICE, ALICE, True),
        (AiActorContext.user("7"), AiActorContext.user("7"), True),
        (AiActorContext.user("9"), AiActorContext.user("9"), False),
        (BOB, None, False),
        (ALICE, None, False),
        (
            AiActorContext.service("5", grants={Grant.APPROVE}),
            AiActorContext.service("5", grants={Grant.APPROVE}),
            True,
        ),
    ],
    ids=["the initiator", "the initiator without grants", "a passer-by", "unknown", "disabled initiator", "a service"],
)
async def test_who_may_deny(host: Host, actor: AiActorContext, known: AiActorContext | None, may: bool) -> None:
    people = directory(BOB)
    if known is not None:
        people.known[actor.id] = known
    elif actor.id == BOB.id:
        people.known.clear()
    async with host.runtime([[SET], "I see."], authority=people) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        if may:
            run = await runtime.decide(run.run_id, Decision.deny(digest(run)), actor=actor)
            assert (run.status, host.executions()) == (RunStatus.COMPLETED, 0)
        else:
            await refused(host, runtime, run, Decision.deny(digest(run)), actor)


@pytest.mark.promise("P14")
@pytest.mark.parametrize("entry", Entry)
async def test_the_run_executes_as_its_initiator_whoever_approves(host: Host, entry: Entry) -> None:
    seen: list[tuple[str, AiActorContext]] = []

    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def set_description(context: ToolContext, page_id: int, description: str) -> ToolResult:
        """Set the description of a page."""
        seen.append(("execute", context.actor))
        return ToolResult.text("Set.").with_write_target(RecordReference("pages", page_id), WriteKind.UPDATED)

    @set_description.preview
    def _(context: ToolContext, page_id: int, description: str) -> list[str]:
        seen.append(("preview", context.actor))
        return []

    async with entered(host, entry, [[SET], "Done."], tools=[set_description]) as play:
        run = await play.ask()
        run = await play.decide(run, Decision.approve(digest(run)))
        assert run.status is RunStatus.COMPLETED
        assert seen == [("preview", ALICE), ("execute", ALICE)]
        assert run.actor == ALICE


# -- service accounts


@pytest.mark.promise("P14")
@pytest.mark.parametrize("second_approver", [False, True])
async def test_a_service_account_starts_runs_and_releases_nothing(host: Host, second_approver: bool) -> None:
    nightly = AiActorContext.service("nightly", grants=tuple(Grant))
    other = AiActorContext.service("other", grants=tuple(Grant))
    people = directory(nightly, other, BOB)
    facts: AgentFacts = {"second_approver": second_approver}
    async with host.runtime([[SET], "Done."], authority=people, agent=facts) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=nightly)
        assert run.actor.scope is Scope.SERVICE
        for account in (nightly, other):
            assert "service account" in await refused(host, runtime, run, Decision.approve(digest(run)), account)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


# -- a second approver


GRANTED_ALICE = AiActorContext.user("7", grants=tuple(Grant))


@pytest.mark.promise("P14")
@pytest.mark.parametrize("entry", [Entry.DIRECT, Entry.QUEUED, Entry.RESUMED])
@pytest.mark.parametrize("admin", [False, True])
async def test_under_second_approver_the_initiator_releases_nothing(host: Host, entry: Entry, admin: bool) -> None:
    """Admins too: neither a grant nor the authority's yes makes two people of one."""
    initiator = ADMIN if admin else GRANTED_ALICE
    people = directory(initiator, BOB)
    async with entered(host, entry, [[SET, ADD], "Done."], agent={"second_approver": True}, authority=people) as play:
        run = await play.ask(initiator)
        runtime = await play.runtime()
        to_set, to_add = pending(run).calls
        some: dict[UUID, Verdict] = {to_set.id: Approve()}
        for verdicts in (some, {**some, to_add.id: Deny()}):
            partial = Decision.per_call(digest(run), verdicts)
            assert "second approver" in await refused(host, runtime, run, partial, initiator)
        assert "second approver" in await refused(host, runtime, run, Decision.approve(digest(run)), initiator)
        run = await play.decide(run, Decision.approve(digest(run)), BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 2)


@pytest.mark.promise("P14")
@pytest.mark.parametrize("entry", Entry)
async def test_a_second_approver_is_not_needed_to_deny(host: Host, entry: Entry) -> None:
    async with entered(host, entry, [[SET], "I see."], agent={"second_approver": True}) as play:
        run = await play.ask()
        run = await play.decide(run, Decision.deny(digest(run), "On second thoughts."), ALICE)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 0)


@pytest.mark.promise("P14")
async def test_without_second_approver_an_initiator_with_the_grant_may_release(host: Host) -> None:
    async with host.runtime([[SET], "Done."]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=GRANTED_ALICE)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P14")
@pytest.mark.parametrize(
    "stored, loaded", [(True, False), (False, True), (True, True)], ids=["stored", "loaded", "both"]
)
async def test_the_stricter_of_stored_and_loaded_asks_for_a_second_approver(
    host: Host, stored: bool, loaded: bool
) -> None:
    script: Script = [[SET], "Done."]
    async with host.runtime(script, agent={"second_approver": stored}) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
    async with host.runtime(script, agent={"second_approver": loaded}) as runtime:
        await refused(host, runtime, run, Decision.approve(digest(run)), GRANTED_ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P14")
@pytest.mark.parametrize("turn", [[SET], [ADD, READ]], ids=["write", "write-read"])
async def test_a_worker_that_asks_for_a_second_approver_does_not_run_what_the_first_released(
    host: Host, turn: list[ModelCall]
) -> None:
    """The agent is stricter where it is executed than where it was decided: the turn waits again."""
    script: Script = [turn, "Done."]
    async with host.runtime(script, execution="queued") as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        run = await runtime.execute(run.run_id)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=GRANTED_ALICE)
        assert run.status is RunStatus.QUEUED
    async with host.runtime(script, agent={"second_approver": True}) as runtime:
        run = await runtime.execute(run.run_id)
        assert pending(run).decided == {}
        await refused(host, runtime, run, Decision.approve(digest(run)), GRANTED_ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, len(turn))
