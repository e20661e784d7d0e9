"""A decision binds to what was read: without its digest it is refused, nothing runs, and another can still be given."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import cast
from uuid import UUID, uuid4

import pytest

from byline import (
    AgentRuntime,
    AlreadyDecided,
    BylineError,
    Decision,
    Deny,
    InvalidIdentifier,
    NotDecidable,
    PendingTurn,
    Run,
    RunFinished,
    RunStatus,
    StaleDecision,
    ToolEffect,
    UnknownCall,
    UnknownRun,
)
from byline.approval.decision import Approve, Verdict
from byline.testing import call
from tests.host import ALICE, BOB, Host
from tests.kernel.gate_entries import ADD, READ, SET, Entry, digest, entered, pending

# -- what the digest is made of


@pytest.mark.promise("P13")
async def test_the_digest_is_of_format_run_suspension_agent_and_calls(host: Host) -> None:
    async with host.runtime([[READ, SET, ADD], "Done."]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
    arguments = [
        {"page_id": 42},
        {"page_id": 42, "description": "Who we are."},
        {"page_id": 42, "text": "Open on Monday."},
    ]
    names = ["read_page", "set_description", "add_element"]
    effects = ["read_only", "idempotent_write", "non_idempotent_write"]
    bound = {
        "format": 1,
        "run": str(run.run_id),
        "suspension": 1,
        "agent": "editor",
        "calls": [
            {"id": str(waiting.id), "tool": name, "effect": effect, "arguments": fit}
            for waiting, name, effect, fit in zip(pending(run).calls, names, effects, arguments, strict=True)
        ],
    }
    text = json.dumps(bound, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert digest(run) == hashlib.sha256(text.encode()).hexdigest()


def _first(turn: PendingTurn, **changes: object) -> PendingTurn:
    first = replace(turn.calls[0], **changes)  # type: ignore[arg-type]
    return replace(turn, calls=(first, *turn.calls[1:]))


PARTS: dict[str, Callable[[PendingTurn], PendingTurn]] = {
    "the run": lambda turn: replace(turn, run_id=uuid4()),
    "the suspension": lambda turn: replace(turn, suspension=turn.suspension + 1),
    "the agent": lambda turn: replace(turn, agent="editors"),
    "a call's id": lambda turn: _first(turn, id=uuid4()),
    "a tool": lambda turn: _first(turn, tool="add_element"),
    "an effect": lambda turn: _first(turn, effect=ToolEffect.NON_IDEMPOTENT_WRITE),
    "an argument's value": lambda turn: _first(turn, arguments={"page_id": 43, "description": "Who we are."}),
    "an argument's type": lambda turn: _first(turn, arguments={"page_id": 42.0, "description": "Who we are."}),
    "an argument's name": lambda turn: _first(turn, arguments={"page": 42, "description": "Who we are."}),
    "one call less": lambda turn: replace(turn, calls=turn.calls[:1]),
    "the order of calls": lambda turn: replace(turn, calls=turn.calls[::-1]),
}


@pytest.mark.promise("P13")
@pytest.mark.parametrize("part", PARTS)
async def test_whatever_of_it_differs_the_digest_differs(host: Host, part: str) -> None:
    async with host.runtime([[SET, ADD], "Done."]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
    turn = pending(run).turn
    assert turn.digest == digest(run)
    assert PARTS[part](turn).digest != turn.digest


@pytest.mark.promise("P13")
async def test_equal_calls_of_two_runs_have_two_digests(host: Host) -> None:
    async with host.runtime([[SET], "Done."]) as runtime:
        one = await runtime.run("editor", "See to page 42.", actor=ALICE)
        other = await runtime.run("editor", "See to page 42.", actor=ALICE)
        assert digest(one) != digest(other)
        with pytest.raises(StaleDecision):
            await runtime.decide(other.run_id, Decision.approve(digest(one)), actor=BOB)
        assert host.executions() == 0


@pytest.mark.promise("P13")
async def test_the_same_call_in_the_next_turn_has_another_digest(host: Host) -> None:
    async with host.runtime([[SET], [SET], "Done."]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        first = digest(run)
        run = await runtime.decide(run.run_id, Decision.approve(first), actor=BOB)
        assert host.executions() == 1
        with pytest.raises(StaleDecision):
            await runtime.decide(run.run_id, Decision.approve(first), actor=BOB)
        assert (host.executions(), digest(run) != first) == (1, True)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 2)


# -- what is no decision on what waits


NO_DIGEST: dict[str, Callable[[str], object]] = {
    "none": lambda _: None,
    "an empty one": lambda _: "",
    "another one": lambda _: "0" * 64,
    "an abridged one": lambda read: read[:12],
    "one in capitals": str.upper,
    "one with a space": lambda read: f"{read} ",
    "bytes": str.encode,
    "a flag": lambda _: True,
    "a text of ten megabytes": lambda _: "0" * 10_000_000,
    "half a surrogate pair": lambda _: "\ud800",
}


@pytest.mark.promise("P13")
@pytest.mark.report(5)
@pytest.mark.report(7)
@pytest.mark.parametrize("entry", [Entry.DIRECT, Entry.RESUMED])
@pytest.mark.parametrize("given", NO_DIGEST)
async def test_without_the_digest_a_decision_is_refused(host: Host, entry: Entry, given: str) -> None:
    async with entered(host, entry, [[SET], "Done."]) as play:
        run = await play.ask()
        wrong = NO_DIGEST[given](digest(run))
        with pytest.raises(StaleDecision):
            await play.decide(run, Decision.approve(wrong))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        await still_waits(host, await play.runtime(), run)
        run = await play.decide(run, Decision.approve(digest(run)))
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


async def still_waits(host: Host, runtime: AgentRuntime, before: Run) -> None:
    """Nothing was executed, nothing decided, and what waits is what waited."""
    after = await runtime.get_run(before.run_id)
    assert pending(after).turn == pending(before).turn
    assert pending(after).decided == {}
    assert (host.executions(), host.heard()) == (0, [])


NO_DECISION: dict[str, Callable[[str], object]] = {
    "an approval in words": lambda read: {"digest": read, "for_all": "approve"},
    "a truth": lambda read: {"digest": read, "for_all": True},
    "an approval's class": lambda read: {"digest": read, "for_all": Approve},
    "a change for all": lambda read: {"digest": read, "for_all": {"arguments": {}}},
    "verdicts in words": lambda read: {"digest": read, "verdicts": {uuid4(): "approve"}},
    "verdicts that are truths": lambda read: {"digest": read, "verdicts": {uuid4(): True}},
    "a misspelt verdict": lambda read: {"digest": read, "verdicts": {uuid4(): "aprove"}},
    "verdicts without calls": lambda read: {"digest": read, "verdicts": [Approve()]},
    "no verdicts": lambda read: {"digest": read, "verdicts": None},
    "a verdict on a name": lambda read: {"digest": read, "verdicts": {"set_description": Approve()}},
    "a verdict on a number": lambda read: {"digest": read, "verdicts": {0: Approve()}},
    "a verdict for all and one for some": lambda read: {
        "digest": read, "for_all": Approve(), "verdicts": {uuid4(): Deny()},
    },
}  # fmt: skip


@pytest.mark.promise("P13")
@pytest.mark.report(2)
@pytest.mark.parametrize("given", NO_DECISION)
def test_what_is_no_verdict_makes_no_decision(given: str) -> None:
    parts = cast("dict[str, object]", NO_DECISION[given]("0" * 64))
    with pytest.raises(InvalidIdentifier):
        Decision(**parts)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


@pytest.mark.promise("P13")
@pytest.mark.report(5)
@pytest.mark.parametrize("given", [None, True, "approve", {}, Approve(), uuid4()], ids=lambda one: type(one).__name__)
async def test_what_is_no_decision_is_refused(host: Host, given: object) -> None:
    async with host.runtime([[SET], "Done."]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        with pytest.raises(InvalidIdentifier):
            await runtime.decide(run.run_id, given, actor=BOB)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        await still_waits(host, runtime, run)


@pytest.mark.promise("P13")
@pytest.mark.report(5)
@pytest.mark.parametrize("entry", [Entry.DIRECT, Entry.QUEUED, Entry.RESUMED])
async def test_an_empty_decision_keeps_the_run_waiting(host: Host, entry: Entry) -> None:
    async with entered(host, entry, [[SET, ADD], "Done."]) as play:
        run = await play.ask()
        for empty in (Decision(digest(run)), Decision.per_call(digest(run), {})):
            decided = await play.decide(run, empty)
            assert decided.status is RunStatus.AWAITING_APPROVAL
            await still_waits(host, await play.runtime(), run)
        run = await play.decide(run, Decision.approve(digest(run)))
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 2)


@pytest.mark.promise("P13")
@pytest.mark.report(6)
@pytest.mark.report(20)
@pytest.mark.parametrize("entry", [Entry.DIRECT, Entry.RESUMED])
@pytest.mark.parametrize("verdict", [Approve(), Deny("No.")], ids=["approve", "deny"])
async def test_a_verdict_on_an_unknown_call_refuses_the_whole_decision(
    host: Host, entry: Entry, verdict: Verdict
) -> None:
    async with entered(host, entry, [[SET, READ], "Done."]) as play:
        run = await play.ask()
        to_set, to_read = pending(run).calls
        for unknown in (uuid4(), UUID(int=0), run.run_id, to_read.id):  # what needs no decision gets none
            for verdicts in ({unknown: verdict}, {to_set.id: Approve(), unknown: verdict}):
                with pytest.raises(UnknownCall):
                    await play.decide(run, Decision.per_call(digest(run), verdicts))
                await still_waits(host, await play.runtime(), run)
        run = await play.decide(run, Decision.approve(digest(run)))
        assert (run.status, host.executions("set_description")) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P13")
@pytest.mark.report(6)
async def test_a_decision_carries_no_call_and_no_arguments_to_run(host: Host) -> None:
    """What can be said of a call is yes, no, or other arguments, which are put before the people again."""
    assert {field.name for field in Decision.__dataclass_fields__.values()} == {"digest", "verdicts", "for_all"}
    assert set(Approve.__dataclass_fields__) == set()
    assert set(Deny.__dataclass_fields__) == {"reason"}
    async with host.runtime([[SET], "Done."]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        shown = pending(run).calls[0]
        shown.arguments["description"] = "What the client would rather have."
        await runtime.decide(run.run_id, Decision.approve(digest(await runtime.get_run(run.run_id))), actor=BOB)
        assert host.description() == "Who we are."


# -- what has been decided, or has ended


def verdict_on(run: Run, verdict: Verdict) -> Decision:
    waits = pending(run)
    return Decision.per_call(waits.digest, dict.fromkeys(waits.turn.waiting, verdict))


@pytest.mark.promise("P13")
@pytest.mark.report(20)
@pytest.mark.parametrize("ended", ["completed", "cancelled", "failed"])
@pytest.mark.parametrize("entry", [Entry.DIRECT, Entry.RESUMED])
async def test_a_finished_run_cannot_be_decided(host: Host, entry: Entry, ended: str) -> None:
    ttl = 0.001 if ended == "failed" else None
    async with entered(host, entry, [[SET], "Done."], agent={"approval_ttl": ttl}) as play:
        waited = await play.ask()
        runtime = await play.runtime()
        match ended:
            case "failed":
                while not (await runtime.recover()).expired:
                    continue
            case "cancelled":
                await runtime.cancel(waited.run_id, actor=ALICE)
            case _:
                await play.decide(waited, Decision.deny(digest(waited)))
        executed = host.executions()
        for late in (Decision.approve(digest(waited)), Decision.deny(digest(waited)), verdict_on(waited, Approve())):
            with pytest.raises(RunFinished):
                await play.decide(waited, late)
        run = await (await play.runtime()).get_run(waited.run_id)
        assert run.status == ended
        assert host.executions() == executed == 0


@pytest.mark.promise("P13")
@pytest.mark.report(20)
@pytest.mark.report(21)
@pytest.mark.parametrize("verdict", [Approve(), Deny()], ids=["approve", "deny"])
async def test_who_decides_second_is_told_so(host: Host, verdict: Verdict) -> None:
    """A double click, before the run is executed and after it has ended: once."""
    async with entered(host, Entry.QUEUED, [[SET], "Done."]) as play:
        run = await play.ask()
        runtime = await play.runtime()
        first, second = verdict_on(run, verdict), verdict_on(run, Approve())
        await runtime.decide(run.run_id, first, actor=BOB)
        for late in (first, second, Decision.approve(digest(run)), Decision.deny(digest(run))):
            with pytest.raises(AlreadyDecided):
                await runtime.decide(run.run_id, late, actor=BOB)
        assert host.executions() == 0
        ended = await runtime.execute(run.run_id)
        assert (ended.status, host.executions()) == (RunStatus.COMPLETED, int(verdict == Approve()))
        with pytest.raises(NotDecidable):
            await runtime.decide(run.run_id, second, actor=BOB)
        assert host.executions() == int(verdict == Approve())


@pytest.mark.promise("P13")
async def test_a_run_that_never_waited_cannot_be_decided(host: Host) -> None:
    async with host.runtime([[READ], "Done."], execution="queued") as runtime:
        run = await runtime.enqueue("editor", "Read page 42.", actor=ALICE)
        with pytest.raises(NotDecidable):
            await runtime.decide(run.run_id, Decision.approve("0" * 64), actor=BOB)
        assert (await runtime.execute(run.run_id)).status is RunStatus.COMPLETED


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    "run_id", ["", "x", "0" * 31, "\ud800", "x" * 10_000_000, b"0" * 16, None, 7, True], ids=lambda i: ascii(i)[:12]
)
async def test_a_malformed_run_id_is_refused(host: Host, run_id: object) -> None:
    async with host.runtime([[SET], "Done."]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        with pytest.raises(InvalidIdentifier) as refused:
            await runtime.decide(run_id, Decision.approve(digest(run)), actor=BOB)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        assert len(str(refused.value)) < 200
        await still_waits(host, runtime, run)


@pytest.mark.promise("P13")
async def test_an_unknown_run_is_refused(host: Host) -> None:
    async with host.runtime([[SET], "Done."]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        with pytest.raises(UnknownRun) as refused:
            await runtime.decide(uuid4(), Decision.approve(digest(run)), actor=BOB)
        assert isinstance(refused.value, BylineError)
        await still_waits(host, runtime, run)


@pytest.mark.promise("P13")
async def test_a_call_of_another_run_cannot_be_decided_here(host: Host) -> None:
    async with host.runtime([[call("set_description", page_id=41, description="Write to us.")], "Done."]) as runtime:
        here = await runtime.run("editor", "See to page 41.", actor=ALICE)
        there = await runtime.run("editor", "See to page 41.", actor=ALICE)
        elsewhere = Decision.per_call(digest(here), {pending(there).calls[0].id: Approve()})
        with pytest.raises(UnknownCall):
            await runtime.decide(here.run_id, elsewhere, actor=BOB)
        assert host.executions() == 0
