"""Arguments are read once, before anyone is asked: what is shown, digested and executed is that one object."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import pytest
from pydantic import BaseModel, BeforeValidator, JsonValue

from byline import (
    AiActorContext,
    Decision,
    ModelCall,
    ProposedCall,
    RecordReference,
    RunStatus,
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    UnknownCall,
    WriteKind,
    tool,
)
from byline.approval.decision import Approve
from byline.testing import call
from tests.host import BOB, Host
from tests.kernel.gate_entries import ALIVE, SET, Entry, Script, canonical, digest, entered, pending, questions_asked


class Period(BaseModel):
    """When a page is shown."""

    first: str
    last: str | None = None


READINGS: list[str] = []
"""What `Words` was given to read."""


def _words(value: object) -> object:
    READINGS.append(repr(value))
    return " ".join(value.split()) if isinstance(value, str) else value


Words = Annotated[str, BeforeValidator(_words)]


@dataclass(slots=True)
class Witness:
    """Everybody who is shown the arguments of a call."""

    host: Host
    previewed: list[Mapping[str, object]] = field(default_factory=list)
    judged: list[Mapping[str, JsonValue]] = field(default_factory=list)
    executed: list[Mapping[str, object]] = field(default_factory=list)

    def tool(self) -> Tool:
        witness = self

        @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
        def plan(context: ToolContext, page_id: int, words: Words, period: Period, weight: float = 1.0) -> ToolResult:
            """Plan when a page is shown."""
            witness.host.count(context, "plan")
            shown = {"page_id": page_id, "words": words, "period": period.model_dump(), "weight": weight}
            witness.executed.append(shown)
            return ToolResult.text("Planned.").with_write_target(RecordReference("pages", page_id), WriteKind.UPDATED)

        @plan.preview
        def _(context: ToolContext, page_id: int, words: Words, period: Period, weight: float = 1.0) -> list[str]:
            shown = {"page_id": page_id, "words": words, "period": period.model_dump(), "weight": weight}
            witness.previewed.append(shown)
            return [words]

        return plan

    def judge(self, _actor: AiActorContext, proposed: ProposedCall) -> bool:
        """Forbid nothing, and keep what was asked."""
        self.judged.append(proposed.arguments)
        return False


RAW = '{ "weight": 2, "words": "  Früh   übt\\u0020sich ", "period": {"first": "2027-01-01"}, "page_id": "42" }'
NORMAL: dict[str, JsonValue] = {
    "page_id": 42,
    "words": "Früh übt sich",
    "period": {"first": "2027-01-01", "last": None},
    "weight": 2.0,
}


@pytest.mark.promise("P12", "P13")
@pytest.mark.report(8)
@pytest.mark.report(9)
@pytest.mark.parametrize("entry", ALIVE)
async def test_shown_digested_and_executed_are_one_normalised_object(host: Host, entry: Entry) -> None:
    witness = Witness(host)
    host.people.forbidden = witness.judge
    async with entered(host, entry, [[ModelCall("plan", RAW)], "Done."], tools=[witness.tool()]) as play:
        run = await play.ask()
        (shown,) = pending(run).calls
        assert canonical(shown.arguments) == canonical(NORMAL)
        assert shown.preview == ("Früh übt sich",)
        bound = {
            "format": 1,
            "run": str(run.run_id),
            "suspension": 1,
            "agent": "editor",
            "calls": [{"id": str(shown.id), "tool": "plan", "effect": "idempotent_write", "arguments": NORMAL}],
        }
        assert digest(run) == hashlib.sha256(canonical(bound).encode()).hexdigest()

        run = await play.decide(run, Decision.approve(digest(run)))

        assert run.status is RunStatus.COMPLETED
        assert witness.previewed == witness.executed == [NORMAL]
        assert witness.judged
        assert {canonical(dict(judged)) for judged in witness.judged} == {canonical(NORMAL)}


@pytest.mark.promise("P12")
@pytest.mark.report(9)
async def test_nobody_is_shown_what_was_not_read_before(host: Host) -> None:
    """Whoever looks at the arguments after the model's own text was read, looks at what was made of it."""
    witness = Witness(host)
    READINGS.clear()
    async with entered(host, Entry.DIRECT, [[ModelCall("plan", RAW)], "Done."], tools=[witness.tool()]) as play:
        run = await play.ask()
        await play.decide(run, Decision.approve(digest(run)))
    raw = repr("  Früh   übt sich ")
    assert READINGS[0] == raw
    assert raw not in READINGS[1:]


# -- what cannot be read reaches neither gate nor tool


UNREADABLE = {
    "nothing": "",
    "a bracket": "{",
    "two objects": '{"page_id": 42, "description": "x"} {}',
    "null": "null",
    "a list": '[{"page_id": 42, "description": "x"}]',
    "a text": '"page_id"',
    "a truth": "true",
    "Python": "{'page_id': 42, 'description': 'x'}",
    "one argument too few": '{"page_id": 42}',
    "one too many": '{"page_id": 42, "description": "x", "title": "y"}',
    "an argument twice": '{"page_id": 41, "page_id": 42, "description": "x"}',
    "a wrong type": '{"page_id": "forty-two", "description": "x"}',
    "a fraction": '{"page_id": 42.5, "description": "x"}',
    "no number": '{"page_id": NaN, "description": "x"}',
    "an endless number": '{"page_id": 1e999, "description": "x"}',
    "a huge number": '{"page_id": ' + "9" * 5_000 + ', "description": "x"}',
    "a NUL": '{"page_id": 42, "description": "x\\u0000"}',
    "half a surrogate pair": '{"page_id": 42, "description": "\\ud83d"}',
    "half a surrogate pair, unescaped": '{"page_id": 42, "description": "\ud83d"}',
    "endless nesting": '{"page_id": ' + "[" * 100_000,
    "ten megabytes": '{"page_id": 42, "description": "' + "x" * 10_000_000 + '"}',
    "ten megabytes of nothing": " " * 10_000_000,
}


@pytest.mark.promise("P12")
@pytest.mark.report(3)
@pytest.mark.parametrize("unreadable", UNREADABLE)
async def test_unreadable_arguments_reach_neither_gate_nor_tool(host: Host, unreadable: str) -> None:
    asked = questions_asked(host)
    broken = ModelCall("set_description", UNREADABLE[unreadable])
    async with entered(host, Entry.DIRECT, [[broken], "I could not."]) as play:
        run = await play.ask()

        assert (run.status, run.output) == (RunStatus.COMPLETED, "I could not.")
        assert (host.executions(), host.heard(), asked) == (0, [], [])
        (told,) = play.told()
        assert told.is_error
        assert told.text.startswith("Not executed: ")
        assert len(told.text) < 2_000
        assert await play.outcomes(run) == [("set_description", "invalid")]


@pytest.mark.promise("P12")
@pytest.mark.report(3)
@pytest.mark.parametrize("entry", Entry)
async def test_the_model_can_mend_what_was_unreadable(host: Host, entry: Entry) -> None:
    script: Script = [[ModelCall("set_description", '{"page_id": 42')], [SET], "Done."]
    async with entered(host, entry, script) as play:
        run = await play.ask()
        (waiting,) = pending(run).calls
        assert waiting.arguments == {"page_id": 42, "description": "Who we are."}
        run = await play.decide(run, Decision.approve(digest(run)))
        assert await play.outcomes(run) == [("set_description", "invalid"), ("set_description", "succeeded")]
        assert (host.executions(), host.description()) == (1, "Who we are.")


@pytest.mark.promise("P12")
@pytest.mark.report(3)
@pytest.mark.parametrize("entry", Entry)
async def test_an_unreadable_call_beside_a_good_one_is_shown_as_such_and_never_runs(host: Host, entry: Entry) -> None:
    turn = [ModelCall("add_element", '{"page_id": 42}'), SET]
    async with entered(host, entry, [turn, "Done."]) as play:
        run = await play.ask()
        waits = pending(run)
        assert [waiting.tool for waiting in waits.calls] == ["set_description"]
        assert [(rejected.tool, rejected.offered) for rejected in waits.rejected] == [("add_element", True)]
        with pytest.raises(UnknownCall):
            await (await play.runtime()).decide(
                run.run_id, Decision.per_call(digest(run), {waits.rejected[0].id: Approve()}), actor=BOB
            )
        run = await play.decide(run, Decision.approve(digest(run)))
        assert run.status is RunStatus.COMPLETED
        assert await play.outcomes(run) == [("add_element", "invalid"), ("set_description", "succeeded")]
        assert (host.executions("add_element"), host.executions("set_description")) == (0, 1)


# -- what was not offered


NOT_OFFERED = ["delete_page", "Set_description", "set_description ", "", "execute", "x" * 10_000, "\ud800", "a\0b"]


@pytest.mark.promise("P12")
@pytest.mark.parametrize("name", NOT_OFFERED, ids=lambda name: ascii(str(name)[:20]))
async def test_a_tool_that_was_not_offered_is_refused_and_never_asks(host: Host, name: str) -> None:
    asked = questions_asked(host)
    async with entered(host, Entry.DIRECT, [[ModelCall(name, SET.arguments)], "I could not."]) as play:
        run = await play.ask()
        assert (run.status, run.output) == (RunStatus.COMPLETED, "I could not.")
        assert (host.executions(), asked) == (0, [])
        (told,) = play.told()
        assert (told.is_error, told.text) == (True, "Not executed: no such tool is offered.")
        (step,) = await play.steps(run)
        assert step.payload["outcome"] == "not_offered"


@pytest.mark.promise("P12")
@pytest.mark.parametrize("entry", Entry)
async def test_a_tool_that_was_not_offered_cannot_be_approved(host: Host, entry: Entry) -> None:
    async with entered(host, entry, [[call("delete_page", page_id=42), SET], "Done."]) as play:
        run = await play.ask()
        (rejected,) = pending(run).rejected
        assert (rejected.tool, rejected.offered) == ("delete_page", False)
        with pytest.raises(UnknownCall):
            await (await play.runtime()).decide(
                run.run_id, Decision.per_call(digest(run), {rejected.id: Approve()}), actor=BOB
            )
        run = await play.decide(run, Decision.approve(digest(run)))
        assert [outcome for _, outcome in await play.outcomes(run)] == ["not_offered", "succeeded"]
        assert host.executions() == 1


@pytest.mark.promise("P12")
async def test_the_closing_answer_calls_nothing(host: Host) -> None:
    read = call("read_page", page_id=42)
    async with entered(host, Entry.DIRECT, [[read], [SET]], agent={"max_rounds": 1}) as play:
        run = await play.ask()
        assert (run.status, host.executions("set_description")) == (RunStatus.COMPLETED, 0)
        assert play.model.requests[-1].tools == ()
