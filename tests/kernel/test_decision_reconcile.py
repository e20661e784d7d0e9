"""A word on an uncertain write: "run it again" is a release like any other, the rest needs its own grant."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from byline import (
    AgentRuntime,
    AiActorContext,
    AlreadyDecided,
    Decision,
    Grant,
    InvalidIdentifier,
    NotAllowed,
    NotDecidable,
    ReconcileVerdict,
    Reconciliation,
    RecordReference,
    Run,
    RunFinished,
    RunStatus,
    StaleDecision,
    Tool,
    ToolContext,
    ToolEffect,
    ToolNotLoaded,
    ToolResult,
    UncertainCall,
    UnknownCall,
    UnknownRun,
    WriteKind,
    tool,
)
from byline.approval.decision import Change
from tests.host import ALICE, BOB, AgentFacts, Host
from tests.kernel.gate_entries import ADD, SET, Script, digest, pending
from tests.kernel.gate_people import Granting

ADD_ONLY: Script = ([ADD], "Done.")
PAGE = RecordReference("elements", 1)
CAROL = AiActorContext.user("9", grants=tuple(Grant))
GRANTED_ALICE = AiActorContext.user(ALICE.id, grants=tuple(Grant))


def stumbling(host: Host) -> list[Tool]:
    """The host's tools, of which the non-idempotent one fails in the middle of its first attempt."""

    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def add_element(context: ToolContext, page_id: int, text: str) -> ToolResult:
        """Add an element to a page."""
        host.count(context, "add_element")
        if context.attempt == 1:
            raise ConnectionError("the answer was lost")
        return ToolResult.text("Added.").with_write_target(PAGE, WriteKind.CREATED)

    return [*host.tools()[:2], add_element]


def uncertain(run: Run) -> UncertainCall:
    assert run.status is RunStatus.UNCERTAIN, (run.status, run.reason)
    assert run.uncertain is not None
    return run.uncertain


@asynccontextmanager
async def unknown(
    host: Host, script: Script = ADD_ONLY, *, agent: AgentFacts | None = None
) -> AsyncGenerator[tuple[AgentRuntime, Run]]:
    """A run that waits for a word on its write, released by Bob."""
    async with host.runtime(script, tools=stumbling(host), agent=agent) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert uncertain(run).fence.tool == "add_element"
        yield runtime, run


Word = Callable[[str], Reconciliation]
WORDS: dict[str, Word] = {
    "landed": lambda read: Reconciliation.landed(read, PAGE, WriteKind.CREATED),
    "run again": Reconciliation.run_again,
    "leave it": Reconciliation.leave_it,
}


async def refused(host: Host, runtime: AgentRuntime, run: Run, word: Reconciliation, actor: AiActorContext) -> str:
    executed, heard = host.executions(), host.heard()
    with pytest.raises(NotAllowed) as error:
        await runtime.reconcile(run.run_id, word, actor=actor)
    assert uncertain(await runtime.get_run(run.run_id)) == uncertain(run)
    assert (host.executions(), host.heard()) == (executed, heard)
    return str(error.value)


@pytest.mark.promise("P14")
@pytest.mark.parametrize(
    "word, needed",
    [("landed", Grant.RECONCILE), ("leave it", Grant.RECONCILE), ("run again", Grant.APPROVE)],
)  # fmt: skip
async def test_each_word_needs_its_grant(host: Host, word: str, needed: Grant) -> None:
    (other,) = set(Grant) - {needed}
    async with unknown(host) as (runtime, run):
        said = WORDS[word](uncertain(run).digest)
        for grants in (set[Grant](), {other}):
            await refused(host, runtime, run, said, AiActorContext.user("9", grants=grants))
        host.people.disabled.add("9")
        await refused(host, runtime, run, said, AiActorContext.user("9", grants={needed}))
        host.people.disabled.clear()
        run = await runtime.reconcile(run.run_id, said, actor=AiActorContext.user("9", grants={needed}))
        assert run.status is RunStatus.COMPLETED
        assert host.executions() == (2 if word == "run again" else 1)
        assert host.heard() == ([] if word == "leave it" else [("elements:1", "created")])


@pytest.mark.promise("P14")
@pytest.mark.parametrize("stored", [True, False])
async def test_running_it_again_needs_a_second_approver_too(host: Host, stored: bool) -> None:
    facts: AgentFacts = {"second_approver": True}
    async with unknown(host, agent=facts if stored else None) as (runtime, run):
        word = Reconciliation.run_again(uncertain(run).digest)
        if stored:
            assert "second approver" in await refused(host, runtime, run, word, GRANTED_ALICE)
    async with host.runtime([[ADD], "Done."], tools=stumbling(host), agent=facts) as runtime:
        assert "second approver" in await refused(host, runtime, run, word, GRANTED_ALICE)
        run = await runtime.reconcile(run.run_id, word, actor=CAROL)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 2)


@pytest.mark.promise("P14")
async def test_under_second_approver_the_initiator_may_say_what_they_found(host: Host) -> None:
    async with unknown(host, agent={"second_approver": True}) as (runtime, run):
        word = Reconciliation.leave_it(uncertain(run).digest)
        run = await runtime.reconcile(run.run_id, word, actor=GRANTED_ALICE)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P14")
async def test_who_proposed_the_arguments_may_not_have_them_run_again(host: Host) -> None:
    async with host.runtime([[ADD], "Done."], tools=stumbling(host), agent={"second_approver": True}) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        better = Change({"page_id": 42, "text": "Open on Tuesday."})
        changed = Decision.per_call(digest(run), {pending(run).calls[0].id: better})
        run = await runtime.decide(run.run_id, changed, actor=CAROL)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        word = Reconciliation.run_again(uncertain(run).digest)
        await refused(host, runtime, run, word, CAROL)
        run = await runtime.reconcile(run.run_id, word, actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 2)


@pytest.mark.promise("P14")
async def test_the_authority_is_asked_of_what_is_run_again_with_its_arguments(host: Host) -> None:
    async with unknown(host) as (runtime, run):
        host.people.forbidden = lambda actor, call: actor.id == "9" and call.arguments["page_id"] == 42
        word = Reconciliation.run_again(uncertain(run).digest)
        await refused(host, runtime, run, word, CAROL)
        run = await runtime.reconcile(run.run_id, word, actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 2)


@pytest.mark.promise("P14")
async def test_a_service_account_has_nothing_run_again(host: Host) -> None:
    async with unknown(host) as (runtime, run):
        service = AiActorContext.service("9", grants=tuple(Grant))
        await refused(host, runtime, run, Reconciliation.run_again(uncertain(run).digest), service)


@pytest.mark.promise("P14")
async def test_what_is_not_loaded_cannot_be_run_again_but_can_be_left(host: Host) -> None:
    async with unknown(host) as (runtime, run):
        word = uncertain(run).digest
    async with host.runtime([[ADD], "Done."], tools=host.tools()[:2]) as runtime:
        listed = await runtime.get_run(run.run_id)
        assert listed.problem is not None
        with pytest.raises(ToolNotLoaded):
            await runtime.reconcile(run.run_id, Reconciliation.run_again(word), actor=BOB)
        assert uncertain(await runtime.get_run(run.run_id)) == uncertain(run)
        run = await runtime.reconcile(run.run_id, Reconciliation.leave_it(word), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


# -- re-gated when it runs again


@pytest.mark.promise("P15")
@pytest.mark.parametrize("gone", ["initiator", "releaser", "permission", "grant"])
async def test_what_may_not_run_any_more_is_not_run_again(host: Host, gone: str) -> None:
    """Between word and segment somebody loses a right: the word says that nothing landed, so the call ends refused."""
    async with unknown(host) as (_, run):
        pass
    host.people = people = Granting()
    async with host.runtime([[ADD], "Done."], tools=stumbling(host), execution="queued") as runtime:
        word = Reconciliation.run_again(uncertain(run).digest)
        run = await runtime.reconcile(run.run_id, word, actor=CAROL)
        assert run.status is RunStatus.QUEUED
        match gone:
            case "initiator":
                people.disabled.add(ALICE.id)
            case "releaser":
                people.disabled.add(CAROL.id)
            case "grant":
                people.granted[CAROL.id] = {Grant.RECONCILE}
            case _:
                people.forbidden = lambda actor, _: actor.id == CAROL.id
        run = await runtime.execute(run.run_id)
        assert (run.status, host.executions(), host.heard()) == (RunStatus.COMPLETED, 1, [])


# -- bound to what was read


@pytest.mark.promise("P13")
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("given", [None, "", "0" * 64, True], ids=repr)
async def test_a_word_without_the_digest_is_refused(host: Host, word: str, given: object) -> None:
    async with unknown(host) as (runtime, run):
        with pytest.raises(StaleDecision):
            await runtime.reconcile(run.run_id, WORDS[word](given), actor=BOB)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        with pytest.raises(StaleDecision):  # the turn's digest is not the call's
            await runtime.reconcile(run.run_id, WORDS[word]("x"), actor=BOB)
        assert uncertain(await runtime.get_run(run.run_id)) == uncertain(run)
        assert host.executions() == 1


@pytest.mark.promise("P13")
async def test_a_word_is_on_one_attempt(host: Host) -> None:
    """A call that became uncertain again is read again."""

    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def add_element(context: ToolContext, page_id: int, text: str) -> ToolResult:
        """Add an element to a page."""
        host.count(context, "add_element")
        raise ConnectionError("the answer was lost")

    async with host.runtime([[ADD], "Done."], tools=[add_element]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        first = uncertain(run).digest
        run = await runtime.reconcile(run.run_id, Reconciliation.run_again(first), actor=BOB)
        assert uncertain(run).digest != first
        for word in WORDS.values():
            with pytest.raises((StaleDecision, AlreadyDecided)):
                await runtime.reconcile(run.run_id, word(first), actor=BOB)
        assert host.executions() == 2
        run = await runtime.reconcile(run.run_id, Reconciliation.leave_it(uncertain(run).digest), actor=BOB)
        assert (run.status, host.executions(), host.heard()) == (RunStatus.COMPLETED, 2, [])


@pytest.mark.promise("P13")
@pytest.mark.report(20)
@pytest.mark.parametrize("word", WORDS)
async def test_a_second_word_is_told_that_there_was_a_first(host: Host, word: str) -> None:
    async with unknown(host) as (runtime, run):
        read = uncertain(run).digest
        ended = await runtime.reconcile(run.run_id, Reconciliation.leave_it(read), actor=BOB)
        assert ended.status is RunStatus.COMPLETED
        with pytest.raises((AlreadyDecided, RunFinished)):
            await runtime.reconcile(run.run_id, WORDS[word](read), actor=BOB)
        assert (host.executions(), host.heard()) == (1, [])


@pytest.mark.promise("P13")
@pytest.mark.parametrize("word", WORDS)
async def test_a_run_that_is_not_uncertain_takes_no_word(host: Host, word: str) -> None:
    async with host.runtime([[ADD], "Done."]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        with pytest.raises(NotDecidable):
            await runtime.reconcile(run.run_id, WORDS[word](digest(run)), actor=BOB)
        with pytest.raises(UnknownRun):
            await runtime.reconcile(uuid4(), WORDS[word](digest(run)), actor=BOB)
        assert pending(await runtime.get_run(run.run_id)) == pending(run)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P13")
async def test_a_denial_with_the_word_is_of_this_turn_s_calls(host: Host) -> None:
    async with unknown(host, ([ADD, SET], "Done.")) as (runtime, run):
        read = uncertain(run).digest
        with pytest.raises(UnknownCall):
            await runtime.reconcile(run.run_id, Reconciliation.leave_it(read, deny=[uuid4()]), actor=BOB)
        assert uncertain(await runtime.get_run(run.run_id)) == uncertain(run)


@pytest.mark.promise("P13")
@pytest.mark.parametrize("given", [None, True, "landed", ReconcileVerdict.LANDED], ids=repr)
async def test_what_is_no_word_is_refused(host: Host, given: object) -> None:
    async with unknown(host) as (runtime, run):
        with pytest.raises(InvalidIdentifier):
            await runtime.reconcile(run.run_id, given, actor=BOB)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        word = Reconciliation.leave_it(uncertain(run).digest)
        with pytest.raises(InvalidIdentifier):
            await runtime.reconcile(run.run_id, word, actor=None)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        assert uncertain(await runtime.get_run(run.run_id)) == uncertain(run)


@pytest.mark.promise("P13")
@pytest.mark.parametrize("verdict", ["landed", "leave", True, None], ids=repr)
def test_a_word_is_one_of_three(verdict: object) -> None:
    with pytest.raises(InvalidIdentifier):
        Reconciliation("0" * 64, verdict)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
