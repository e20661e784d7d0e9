"""A change of one call's arguments, and what becomes of the verdicts on the rest of the turn."""

from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest

from byline import (
    AlreadyDecided,
    Decision,
    Deny,
    RunStatus,
    ToolContext,
    ToolEffect,
    ToolNotLoaded,
    ToolResult,
    UnknownCall,
    tool,
)
from byline.approval.decision import Approve, Change, Verdict
from tests.host import ALICE, BOB, Host
from tests.kernel.gate_entries import ADD, ALIVE, BETTER, READ, SET, Entry, Script, change, digest, entered, pending
from tests.kernel.gate_people import CAROL


@pytest.mark.promise("P13", "P14")
@pytest.mark.parametrize("entry", ALIVE)
async def test_denials_are_kept_and_releases_are_asked_again(host: Host, entry: Entry) -> None:
    async with entered(host, entry, [[SET, READ, ADD], "Done."]) as play:
        run = await play.ask()
        to_set, _, to_add = pending(run).calls
        runtime = await play.runtime()
        run = await runtime.decide(run.run_id, Decision.per_call(digest(run), {to_add.id: Deny("No.")}), actor=CAROL)
        run = await play.decide(run, change(run, BETTER))
        (kept,) = pending(run).decided.values()
        assert (kept.call_id, kept.verdict, kept.actor_id) == (to_add.id, Deny("No."), CAROL.id)
        assert pending(run).undecided == {to_set.id}
        with pytest.raises(AlreadyDecided):
            await play.decide(run, Decision.per_call(digest(run), {to_add.id: Approve()}))
        run = await play.decide(run, Decision.approve(digest(run)))
        assert (run.status, host.executions("set_description"), host.executions("add_element")) == (
            RunStatus.COMPLETED,
            1,
            0,
        )
        assert [step.payload["by"] for step in await play.steps(run) if step.payload["outcome"] == "denied"] == ["9"]


@pytest.mark.promise("P13", "P14")
async def test_a_release_given_before_a_change_releases_nothing_after_it(host: Host) -> None:
    async with entered(host, Entry.DIRECT, [[SET, ADD], "Done."]) as play:
        run = await play.ask()
        to_set, to_add = pending(run).calls
        run = await play.decide(run, Decision.per_call(digest(run), {to_add.id: Approve()}))
        run = await play.decide(run, change(run, BETTER))
        assert pending(run).undecided == {to_set.id, to_add.id}
        mixed = Decision.per_call(digest(run), {to_set.id: Change(BETTER), to_add.id: Approve()})
        run = await play.decide(run, mixed)  # a change and a release in one breath: the change comes first
        assert pending(run).undecided == {to_set.id, to_add.id}
        assert host.executions() == 0


@pytest.mark.promise("P13", "P14")
async def test_a_change_and_a_denial_in_one_decision(host: Host) -> None:
    async with entered(host, Entry.DIRECT, [[SET, ADD], "Done."]) as play:
        run = await play.ask()
        to_set, to_add = pending(run).calls
        verdicts: dict[UUID, Verdict] = {to_set.id: Change(BETTER), to_add.id: Deny("No.")}
        run = await play.decide(run, Decision.per_call(digest(run), verdicts))
        assert pending(run).undecided == {to_set.id}
        run = await play.decide(run, Decision.approve(digest(run)))
        assert (run.status, host.description(), host.executions("add_element")) == (
            RunStatus.COMPLETED,
            "Who we really are.",
            0,
        )


@pytest.mark.promise("P13")
@pytest.mark.report(6)
async def test_what_does_not_wait_for_a_decision_cannot_be_changed(host: Host) -> None:
    async with entered(host, Entry.DIRECT, [[SET, READ], "Done."]) as play:
        run = await play.ask()
        runtime = await play.runtime()
        for call_id in (pending(run).calls[1].id, uuid4()):
            with pytest.raises(UnknownCall):
                await runtime.decide(run.run_id, Decision.change(digest(run), call_id, {"page_id": 41}), actor=BOB)
        assert pending(await runtime.get_run(run.run_id)) == pending(run)


@pytest.mark.promise("P14")
async def test_a_denied_call_cannot_be_changed(host: Host) -> None:
    async with entered(host, Entry.DIRECT, [[SET, ADD], "Done."]) as play:
        run = await play.ask()
        to_set, _ = pending(run).calls
        run = await play.decide(run, Decision.per_call(digest(run), {to_set.id: Deny("No.")}))
        with pytest.raises(AlreadyDecided):
            await play.decide(run, change(run, BETTER))
        assert host.executions() == 0


@pytest.mark.promise("P14")
@pytest.mark.parametrize("left", [[], [0]], ids=["no tool", "another tool"])
async def test_a_process_without_the_tool_cannot_change_its_arguments(host: Host, left: Sequence[int]) -> None:
    script: Script = [[SET], "Done."]
    async with host.runtime(script) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
    async with host.runtime(script, tools=[host.tools()[index] for index in left]) as runtime:
        with pytest.raises(ToolNotLoaded):
            await runtime.decide(run.run_id, change(run, BETTER), actor=BOB)
        assert pending(await runtime.get_run(run.run_id)) == pending(run)


@pytest.mark.promise("P14")
async def test_a_read_that_asks_can_be_changed_and_says_so(host: Host) -> None:
    @tool(effect=ToolEffect.READ_ONLY, approval=True)
    def read_page(context: ToolContext, page_id: int) -> ToolResult:
        """Read a page that not everybody may read."""
        return ToolResult.text(f"Page {page_id}.")

    async with entered(host, Entry.DIRECT, [[READ], "Done."], tools=[read_page]) as play:
        run = await play.ask()
        run = await play.decide(run, change(run, {"page_id": 41}))
        run = await play.decide(run, Decision.approve(digest(run)))
        (told,) = play.told()
        assert told.text.endswith("Page 41.")
