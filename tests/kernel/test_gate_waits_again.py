"""What was approved and is no longer what would run waits again: nothing of it ran, and denials are kept."""

from collections.abc import Callable, Sequence
from typing import Annotated
from uuid import UUID

import pytest
from pydantic import BeforeValidator

from byline import (
    Decision,
    Deny,
    ModelCall,
    RecordReference,
    Run,
    RunStatus,
    StaleDecision,
    StepKind,
    Tool,
    ToolContext,
    ToolEffect,
    ToolMessage,
    ToolResult,
    WriteKind,
    tool,
)
from byline.approval.decision import Approve, Verdict
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel
from tests.host import ALICE, BOB, Host
from tests.kernel.gate_entries import ADD, READ, SET, Script, digest, pending

SHOUTED = Annotated[str, BeforeValidator(lambda text: str(text).upper())]

# Each makes the tool that is loaded by the process that executes, in the place of the approved one.
Maker = Callable[[Host], Tool]


def _set(context: ToolContext, host: Host, page_id: int, description: str) -> ToolResult:
    host.count(context, "set_description")
    with host.connect() as database:
        database.execute("update page set description = ? where id = ?", (description, page_id))
    return ToolResult.text("Set.").with_write_target(RecordReference("pages", page_id), WriteKind.UPDATED)


def reads_otherwise(host: Host) -> Tool:
    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def set_description(context: ToolContext, page_id: int, description: SHOUTED) -> ToolResult:
        """Set the description of a page, in capitals."""
        return _set(context, host, page_id, description)

    return set_description


def has_one_more(host: Host) -> Tool:
    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def set_description(context: ToolContext, page_id: int, description: str, notify: bool = True) -> ToolResult:
        """Set the description of a page, and tell its subscribers."""
        return _set(context, host, page_id, description)

    return set_description


def reads_another_type(host: Host) -> Tool:
    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def set_description(context: ToolContext, page_id: float, description: str) -> ToolResult:
        """Set the description of a page: 42 and 42.0 are equal in Python, and not as JSON."""
        return _set(context, host, int(page_id), description)

    return set_description


def is_stricter(host: Host) -> Tool:
    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def set_description(context: ToolContext, page_id: int, description: str) -> ToolResult:
        """Set the description of a page, and keep a history of it."""
        return _set(context, host, page_id, description)

    return set_description


def reads_and_asks(host: Host) -> Tool:
    @tool(effect=ToolEffect.READ_ONLY, approval=True)
    def read_page(context: ToolContext, page_id: int) -> ToolResult:
        """Read a page that not everybody may read."""
        host.count(context, "read_page")
        return ToolResult.text("Secret.")

    return read_page


def reads_and_writes(host: Host) -> Tool:
    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def read_page(context: ToolContext, page_id: int) -> ToolResult:
        """Read a page, and count the reader."""
        host.count(context, "read_page")
        return ToolResult.text("Read.").with_write_target(RecordReference("readers", 1), WriteKind.CREATED)

    return read_page


CHANGES: dict[str, Maker] = {
    "arguments read otherwise": reads_otherwise,
    "an argument more, with a default": has_one_more,
    "an argument of another type": reads_another_type,
    "a stricter effect": is_stricter,
    "a read that asks for approval now": reads_and_asks,
    "a read that writes now": reads_and_writes,
}


def loaded(host: Host, made: Tool) -> list[Tool]:
    """The host's tools with one in the place of its namesake."""
    return [made if each.spec.name == made.spec.name else each for each in host.tools()]


async def decided(host: Host, script: Script, verdict: Callable[[str], Verdict]) -> Run:
    """A run whose turn has been decided, call by call by the names of its tools, and that nobody has executed yet."""
    async with host.runtime(script, execution="queued") as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        run = await runtime.execute(run.run_id)
        waits = pending(run)
        verdicts = {waiting.id: verdict(waiting.tool) for waiting in waits.calls if waiting.needs_decision}
        run = await runtime.decide(run.run_id, Decision.per_call(waits.digest, verdicts), actor=BOB)
        assert run.status is RunStatus.QUEUED
        return run


def approved(_tool: str) -> Verdict:
    return Approve()


@pytest.mark.promise("P12", "P14")
@pytest.mark.parametrize("change", CHANGES)
async def test_a_turn_that_is_not_what_was_approved_waits_again(host: Host, change: str) -> None:
    script: Script = [[ADD, READ, SET], "Done."]
    run = await decided(host, script, approved)
    made = CHANGES[change](host)
    async with host.runtime(script, tools=loaded(host, made)) as runtime:
        run = await runtime.execute(run.run_id)

        waits = pending(run)
        assert (host.executions(), host.heard()) == (0, [])
        assert [waiting.tool for waiting in waits.calls] == ["add_element", "read_page", "set_description"]
        assert (waits.decided, waits.undecided) == ({}, waits.turn.waiting)
        (changed,) = [waiting for waiting in waits.calls if waiting.tool == made.spec.name]
        assert changed.needs_decision
        assert changed.effect is made.spec.effect
        assert changed.parameters == made.spec.parameters

        run = await runtime.decide(run.run_id, Decision.approve(waits.digest), actor=BOB)

        assert run.status is RunStatus.COMPLETED
        assert [host.executions(name) for name in ("add_element", "read_page", "set_description")] == [1, 1, 1]


@pytest.mark.promise("P12", "P13")
async def test_the_decision_on_what_it_was_says_nothing_of_what_it_is(host: Host) -> None:
    script: Script = [[SET], "Done."]
    async with host.runtime(script, execution="queued") as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        run = await runtime.execute(run.run_id)
        old = Decision.approve(digest(run))
        await runtime.decide(run.run_id, old, actor=BOB)
    async with host.runtime(script, tools=loaded(host, reads_otherwise(host))) as runtime:
        run = await runtime.execute(run.run_id)
        assert pending(run).calls[0].arguments == {"page_id": 42, "description": "WHO WE ARE."}
        with pytest.raises(StaleDecision):
            await runtime.decide(run.run_id, old, actor=BOB)
        assert host.executions() == 0
        await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (host.executions(), host.description()) == (1, "WHO WE ARE.")


@pytest.mark.promise("P12")
@pytest.mark.parametrize(
    "change", ["arguments read otherwise", "a stricter effect", "a read that asks for approval now"]
)
async def test_a_denial_is_kept_and_not_asked_again(host: Host, change: str) -> None:
    script: Script = [[ADD, READ, SET], "Done."]
    run = await decided(host, script, lambda name: Deny("Not this one.") if name == "add_element" else Approve())
    model = ScriptedModel(script)
    async with host.runtime(model, tools=loaded(host, CHANGES[change](host))) as runtime:
        run = await runtime.execute(run.run_id)

        waits = pending(run)
        assert [waiting.tool for waiting in waits.calls] == ["read_page", "set_description"]
        assert (host.executions(), host.heard()) == (0, [])

        run = await runtime.decide(run.run_id, Decision.approve(waits.digest), actor=BOB)

        assert run.status is RunStatus.COMPLETED
        assert (host.executions("add_element"), host.executions("set_description")) == (0, 1)
        answered = [said for said in model.requests[-1].messages if isinstance(said, ToolMessage)]
        assert len({said.call_id for said in answered}) == len(answered) == 3
        (refused,) = [said for said in answered if said.tool == "add_element"]
        assert "Not this one." in refused.text


@pytest.mark.promise("P12")
async def test_arguments_that_do_not_fit_any_more_are_refused_without_asking(host: Host) -> None:
    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def set_description(context: ToolContext, page_id: int, text: str) -> ToolResult:
        """Set the description of a page: the argument has another name now."""
        return _set(context, host, page_id, text)

    script: Script = [[SET], "I could not."]
    run = await decided(host, script, approved)
    model = ScriptedModel(script)
    async with host.runtime(model, tools=loaded(host, set_description)) as runtime:
        run = await runtime.execute(run.run_id)
        assert (run.status, run.output, host.executions()) == (RunStatus.COMPLETED, "I could not.", 0)
        (told,) = [said for said in model.requests[-1].messages if isinstance(said, ToolMessage)]
        assert told.is_error
        (step,) = [step for step in await runtime.list_steps(run.run_id) if step.kind is StepKind.TOOL]
        assert step.payload["outcome"] == "invalid"


@pytest.mark.promise("P12")
async def test_the_rest_of_the_turn_waits_with_what_does_not_fit_any_more(host: Host) -> None:
    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def add_element(context: ToolContext, page_id: int, html: str) -> ToolResult:
        """Add an element: the argument has another name now."""
        raise AssertionError("never called")

    script: Script = [[SET, ADD, READ], "Done."]
    run = await decided(host, script, approved)
    async with host.runtime(script, tools=loaded(host, add_element)) as runtime:
        run = await runtime.execute(run.run_id)
        waits = pending(run)
        assert ([each.tool for each in waits.calls], [each.tool for each in waits.rejected]) == (
            ["set_description", "read_page"],
            ["add_element"],
        )
        assert host.executions() == 0
        run = await runtime.decide(run.run_id, Decision.approve(waits.digest), actor=BOB)
        assert (run.status, host.executions("set_description")) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P12")
async def test_a_milder_effect_asks_nobody_again(host: Host) -> None:
    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def add_element(context: ToolContext, page_id: int, text: str) -> ToolResult:
        """Add an element, unless it is there already."""
        host.count(context, "add_element")
        return ToolResult.text("Added.").with_write_target(RecordReference("elements", 1), WriteKind.CREATED)

    script: Script = [[ADD], "Done."]
    run = await decided(host, script, approved)
    async with host.runtime(script, tools=loaded(host, add_element)) as runtime:
        run = await runtime.execute(run.run_id)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


# -- a release that has grown old


class Clock:
    """The database's clock, moved by the test."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def store_of(host: Host, clock: Clock) -> SqlStore:
    return SqlStore(f"sqlite:///{host.path.parent / 'byline.db'}", clock=clock)


DAY = 86_400.0


@pytest.mark.promise("P13")
@pytest.mark.parametrize("age, runs", [(DAY - 1, True), (DAY + 1, False)])
@pytest.mark.parametrize("turn", [[SET], [READ, ADD]], ids=["write", "read-write"])
async def test_a_release_older_than_a_day_waits_again(
    host: Host, age: float, runs: bool, turn: Sequence[ModelCall]
) -> None:
    clock = Clock()
    script: Script = [turn, "Done."]
    async with host.runtime(script, store=store_of(host, clock), execution="queued") as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        run = await runtime.execute(run.run_id)
        old = digest(run)
        await runtime.decide(run.run_id, Decision.approve(old), actor=BOB)
    clock.now += age
    async with host.runtime(script, store=store_of(host, clock)) as runtime:
        run = await runtime.execute(run.run_id)
        if not runs:
            assert (host.executions(), host.heard()) == (0, [])
            assert digest(run) != old
            with pytest.raises(StaleDecision):
                await runtime.decide(run.run_id, Decision.approve(old), actor=BOB)
            run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert run.status is RunStatus.COMPLETED
        assert (host.executions(), len(host.heard())) == (len(turn), 1)


@pytest.mark.promise("P13")
async def test_release_ttl_is_a_setting_and_a_denial_does_not_grow_old(host: Host) -> None:
    clock = Clock()
    script: Script = [[SET, ADD], "Done."]
    async with host.runtime(script, store=store_of(host, clock), execution="queued") as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        run = await runtime.execute(run.run_id)
        to_set, to_add = pending(run).calls
        verdicts: dict[UUID, Verdict] = {to_set.id: Approve(), to_add.id: Deny("No.")}
        await runtime.decide(run.run_id, Decision.per_call(digest(run), verdicts), actor=BOB)
    clock.now += 61
    async with host.runtime(script, store=store_of(host, clock), release_ttl=60) as runtime:
        run = await runtime.execute(run.run_id)
        assert [waiting.tool for waiting in pending(run).calls] == ["set_description"]
        assert host.executions() == 0
        outcomes = [s.payload["outcome"] for s in await runtime.list_steps(run.run_id) if s.kind is StepKind.TOOL]
        assert outcomes == ["denied"]
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, host.executions("set_description")) == (RunStatus.COMPLETED, 1)
        assert host.executions("add_element") == 0
