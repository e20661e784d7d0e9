"""What a person changes or says, and what a write names: refused if it is none, and taken as what it is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast
from uuid import uuid4

import pytest

from byline import (
    Decision,
    InvalidArguments,
    InvalidIdentifier,
    Reconciliation,
    RecordReference,
    RunStatus,
    StaleDecision,
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    UnknownCall,
    WriteKind,
    tool,
)
from byline.approval.decision import ReconcileVerdict
from byline.testing import call
from byline.tools.schema import MAX_ARGUMENT_BYTES
from tests.host import ALICE, BOB, Host
from tests.kernel.gate_entries import ALIVE, SET, Entry, change, digest, entered
from tests.kernel.test_decision_reconcile import uncertain, unknown
from tests.kernel.test_mended_messages import HALF, SECRET, Wrapping

# -- what a person changes


@pytest.mark.promise("P14")
@pytest.mark.parametrize(
    "error", [KeyError(SECRET), RuntimeError(HALF), SystemExit(1)], ids=["a key", "half a pair", "an exit"]
)
async def test_a_change_that_its_tool_cannot_read_is_refused(host: Host, error: BaseException) -> None:
    tools = [cast("Tool", cast("object", Wrapping(each, error))) for each in host.tools()]
    async with host.runtime([[SET], "Done."], tools=tools) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        with pytest.raises(InvalidArguments) as refused:
            await runtime.decide(run.run_id, change(run, {"page_id": 42, "description": "refuse me"}), actor=BOB)
        assert SECRET not in str(refused.value)
        assert digest(await runtime.get_run(run.run_id)) == digest(run)


@pytest.mark.promise("P12")
async def test_arguments_that_grow_too_long_are_refused_before_anyone_is_asked(host: Host) -> None:
    """With its defaults filled in, a text can be longer than the model's was: then nobody is asked for nothing."""

    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def set_description(context: ToolContext, page_id: int, description: str, note: str = "n" * 1_000) -> ToolResult:
        """Set the description of a page."""
        host.count(context, "set_description")
        return ToolResult.text("Set.").with_write_target(RecordReference("pages", page_id), WriteKind.UPDATED)

    room = MAX_ARGUMENT_BYTES - len('{"page_id": 42, "description": ""}')
    fits = room - 1_000 - len(',"note":""') - 10
    turns = [[call("set_description", page_id=42, description="x" * length)] for length in (room, fits)]
    async with entered(host, Entry.DIRECT, [*turns, "Done."], tools=[set_description]) as play:
        run = await play.ask()
        (refused,) = play.told()
        assert refused.text.startswith("Not executed: arguments: more than")
        run = await play.decide(run, Decision.approve(digest(run)))
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)
        assert await play.outcomes(run) == [("set_description", "invalid"), ("set_description", "succeeded")]


# -- what a write names, and what a person says of it


@dataclass(frozen=True)
class Page(RecordReference):
    """A host's own kind of reference."""

    title: str = "About us"

    def __str__(self) -> str:
        return self.title


@pytest.mark.promise("P5", "P10")
@pytest.mark.parametrize("entry", ALIVE)
@pytest.mark.parametrize("effect", [ToolEffect.IDEMPOTENT_WRITE, ToolEffect.NON_IDEMPOTENT_WRITE])
async def test_a_hosts_own_reference_is_announced_as_the_record(host: Host, entry: Entry, effect: ToolEffect) -> None:
    @tool(effect=effect)
    def set_description(context: ToolContext, page_id: int, description: str) -> ToolResult:
        """Set the description of a page."""
        host.count(context, "set_description")
        return ToolResult.text("Set.").with_write_target(Page("pages", page_id), WriteKind.UPDATED)

    async with entered(host, entry, [[SET], "Done."], tools=[set_description]) as play:
        run = await play.ask()
        run = await play.decide(run, Decision.approve(digest(run)))
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)
        assert host.heard() == [("pages:42", "updated")]


WRONG: dict[str, Callable[[str], object]] = {
    "nothing to deny": lambda read: Reconciliation.leave_it(read, deny=None),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "a call to deny": lambda read: Reconciliation.run_again(read, deny=uuid4()),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "mixed calls": lambda read: Reconciliation.leave_it(read, deny=[uuid4(), "x"]),  # type: ignore[list-item] # pyright: ignore[reportArgumentType]
    "calls that cannot be told apart": lambda read: Reconciliation.leave_it(read, deny=[[uuid4()]]),  # type: ignore[list-item] # pyright: ignore[reportArgumentType]
    "calls by text": lambda read: Reconciliation(read, ReconcileVerdict.LEAVE_IT, deny=frozenset(("x",))),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "a target in words": lambda read: Reconciliation(read, ReconcileVerdict.LANDED, target="pages:1"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "a record in words": lambda read: Reconciliation.landed(read, "pages:1", WriteKind.CREATED),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "a kind in words": lambda read: Reconciliation.landed(read, Page("pages", 1), "created"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_word_that_is_none_is_refused_when_it_is_made(wrong: str) -> None:
    with pytest.raises(InvalidIdentifier):
        WRONG[wrong]("0" * 64)


@pytest.mark.promise("P13")
@pytest.mark.parametrize("read", [[], {}, 42, None], ids=repr)
async def test_a_word_with_no_digest_at_all_is_refused(host: Host, read: object) -> None:
    async with unknown(host) as (runtime, run):
        word = Reconciliation.leave_it(cast("str", read))
        with pytest.raises(StaleDecision):
            await runtime.reconcile(run.run_id, word, actor=BOB)
        run = await runtime.reconcile(run.run_id, Reconciliation.leave_it(uncertain(run).digest), actor=BOB)
        assert run.status is RunStatus.COMPLETED
        with pytest.raises(StaleDecision):
            await runtime.reconcile(run.run_id, word, actor=BOB)


@pytest.mark.promise("P13")
@pytest.mark.parametrize("word", [Reconciliation.run_again, Reconciliation.leave_it])
async def test_the_uncertain_call_itself_cannot_be_denied_beside_its_verdict(
    host: Host, word: Callable[..., Reconciliation]
) -> None:
    async with unknown(host) as (runtime, run):
        fenced = uncertain(run)
        with pytest.raises(UnknownCall, match="settled by the verdict"):
            await runtime.reconcile(run.run_id, word(fenced.digest, deny={fenced.call_id}), actor=BOB)
        assert uncertain(await runtime.get_run(run.run_id)) == fenced
        assert host.executions() == 1
