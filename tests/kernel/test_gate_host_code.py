"""A host's own code cannot change what runs, and what it does badly hides no call and runs none."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from pydantic import JsonValue

from byline import (
    AiActorContext,
    Decision,
    ProposedCall,
    RecordReference,
    RunStatus,
    ToolContext,
    ToolEffect,
    ToolResult,
    ToolSpec,
    WriteKind,
)
from byline.testing import call
from byline.tools.protocol import Verification
from tests.host import ALICE, BOB, Host
from tests.kernel.gate_entries import ALIVE, Entry, canonical, digest, entered, pending, questions_asked


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
    asked = questions_asked(host)
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
