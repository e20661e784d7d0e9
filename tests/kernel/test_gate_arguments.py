"""Arguments are read once, before anyone is asked: what is shown, digested and executed is that one object."""

import hashlib
import json
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
    ToolSpec,
    UnknownCall,
    WriteKind,
    tool,
)
from byline.approval.decision import Approve
from byline.testing import call
from byline.tools.protocol import Verification
from tests.host import ALICE, BOB, Host
from tests.kernel.gate_entries import ALIVE, SET, Entry, digest, entered, pending


def canonical(value: object) -> str:
    """Written anew, so that the package's own function is held against it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


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
    previewed: list[dict[str, object]] = field(default_factory=list)
    judged: list[Mapping[str, JsonValue]] = field(default_factory=list)
    executed: list[dict[str, object]] = field(default_factory=list)

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


def forbid_asking(host: Host) -> list[ProposedCall]:
    asked: list[ProposedCall] = []

    def ask(_actor: AiActorContext, proposed: ProposedCall) -> bool:
        asked.append(proposed)
        return False

    host.people.forbidden = ask
    return asked


@pytest.mark.promise("P12")
@pytest.mark.report(3)
@pytest.mark.parametrize("unreadable", UNREADABLE)
async def test_unreadable_arguments_reach_neither_gate_nor_tool(host: Host, unreadable: str) -> None:
    asked = forbid_asking(host)
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
    script = [[ModelCall("set_description", '{"page_id": 42')], [SET], "Done."]
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
    asked = forbid_asking(host)
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


# -- a host's own code cannot change what runs


@dataclass(slots=True)
class Careless:
    """A hand-made tool that changes the arguments it is handed, wherever it is handed them."""

    host: Host
    executed: list[str] = field(default_factory=list)
    spec: ToolSpec = field(
        default_factory=lambda: ToolSpec(
            "touch", "Touch pages.", {"type": "object"}, ToolEffect.IDEMPOTENT_WRITE, timeout=5
        )
    )
    verifies: bool = False

    def validate(self, arguments: str) -> dict[str, JsonValue]:
        read: dict[str, JsonValue] = json.loads(arguments)
        return read

    async def execute(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> ToolResult:
        self.host.count(context, "touch")
        self.executed.append(canonical(arguments))
        spoil(arguments)
        if context.attempt == 1:
            raise ConnectionError("the answer was lost")  # so that there is a second attempt, in place
        return ToolResult.text("Touched.").with_write_target(RecordReference("pages", 42), WriteKind.UPDATED)

    async def make_preview(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> list[str]:
        spoil(arguments)
        return ["Touch."]

    async def check_landed(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> Verification:
        return None


def spoil(arguments: Mapping[str, JsonValue]) -> None:
    assert isinstance(arguments, dict)
    pages = arguments["pages"]
    assert isinstance(pages, list)
    pages.append(1)
    arguments["all"] = True


@pytest.mark.promise("P12")
@pytest.mark.report(8)
@pytest.mark.parametrize("entry", ALIVE)
async def test_what_a_preview_an_authority_or_a_tool_changes_is_not_what_runs(host: Host, entry: Entry) -> None:
    careless = Careless(host)

    def judge(_actor: AiActorContext, proposed: ProposedCall) -> bool:
        spoil(proposed.arguments)
        return False

    host.people.forbidden = judge
    async with entered(host, entry, [[call("touch", pages=[42])], "Done."], tools=[careless]) as play:
        run = await play.ask()
        assert pending(run).calls[0].arguments == {"pages": [42]}
        run = await play.decide(run, Decision.approve(digest(run)))
        assert run.status is RunStatus.COMPLETED
        assert careless.executed == ['{"pages":[42]}', '{"pages":[42]}']


@dataclass(slots=True)
class CannotRead(Careless):
    """A hand-made tool whose reading of arguments is broken."""

    reading: object = None

    def validate(self, arguments: str) -> dict[str, JsonValue]:
        if isinstance(self.reading, BaseException):
            raise self.reading
        return self.reading  # type: ignore[return-value] # pyright: ignore[reportReturnType]


BROKEN_READINGS = {
    "raises what it should not": KeyError("pages"),
    "ends the process": SystemExit(1),
    "returns nothing": None,
    "returns a list": [1],
    "returns what no JSON holds": {"pages": {42}},
    "returns no number": {"pages": float("nan")},
    "returns half a surrogate pair": {"pages": "\ud800"},
}


@pytest.mark.promise("P12")
@pytest.mark.parametrize("broken", BROKEN_READINGS)
async def test_a_tool_that_cannot_read_its_arguments_is_not_run(host: Host, broken: str) -> None:
    asked = forbid_asking(host)
    broken_tool = CannotRead(host, reading=BROKEN_READINGS[broken])
    async with entered(host, Entry.DIRECT, [[call("touch", pages=[42])], "I could not."], tools=[broken_tool]) as play:
        run = await play.ask()
        assert (run.status, run.output) == (RunStatus.COMPLETED, "I could not.")
        assert (host.executions(), asked) == (0, [])
        assert await play.outcomes(run) == [("touch", "invalid")]


PREVIEWS: dict[str, object] = {
    "raises": ValueError("42"),
    "ends the process": SystemExit(1),
    "is no text": [42],
    "is nothing": None,
    "is half a surrogate pair": ["\ud800"],
}


@dataclass(slots=True)
class CannotPreview(Careless):
    """A hand-made tool whose preview is broken."""

    shown: object = None

    async def make_preview(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> list[str]:
        if isinstance(self.shown, BaseException):
            raise self.shown
        return self.shown  # type: ignore[return-value] # pyright: ignore[reportReturnType]


@pytest.mark.promise("P12")
@pytest.mark.parametrize("broken", PREVIEWS)
async def test_a_broken_preview_hides_no_call(host: Host, broken: str) -> None:
    broken_tool = CannotPreview(host, shown=PREVIEWS[broken])
    async with entered(host, Entry.DIRECT, [[call("touch", pages=[42])], "Done."], tools=[broken_tool]) as play:
        run = await play.ask()
        (waiting,) = pending(run).calls
        assert waiting.arguments == {"pages": [42]}
        assert len(waiting.preview) == 1
        run = await play.decide(run, Decision.approve(digest(run)), actor=BOB)
        assert run.status is RunStatus.COMPLETED
        assert run.actor.id == ALICE.id
