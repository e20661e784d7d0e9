"""A tool that breaks its contract: the run says so, a write is never silent, and no value is printed."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from byline import (
    ConfigurationError,
    Decision,
    Reconciliation,
    RecordReference,
    RunStatus,
    StepKind,
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    UncertaintyReason,
    WriteKind,
    tool,
)
from byline.tools.result import MAX_ARTIFACT_BYTES, MAX_TEXT_BYTES
from tests.host import BOB, Host
from tests.kernel.gate_entries import ADD, READ, SET, Entry, digest, entered

PAGE = RecordReference("pages", 42)

# -- no ToolResult


NO_RESULT: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "a text": lambda: "Done.",
    "a dict": lambda: {"text": "Done."},
    "a truth": lambda: True,
    "the class": lambda: ToolResult,
    "a record": lambda: PAGE,
    "a coroutine": lambda: asyncio.sleep(0),
}


def returning(host: Host, effect: ToolEffect, name: str, made: Callable[[], object]) -> Tool:
    @tool(effect=effect, name=name)
    def returns(context: ToolContext, page_id: int, description: str = "", text: str = "") -> ToolResult:
        """Return something."""
        host.count(context, name)
        value = made()
        if asyncio.iscoroutine(value):
            value.close()
        return value  # type: ignore[return-value] # pyright: ignore[reportReturnType]

    return returns


@pytest.mark.parametrize("made", NO_RESULT)
async def test_a_read_that_returns_no_result_fails_and_the_model_goes_on(host: Host, made: str) -> None:
    tools = [returning(host, ToolEffect.READ_ONLY, "read_page", NO_RESULT[made])]
    async with entered(host, Entry.DIRECT, [[READ], "I could not."], tools=tools) as play:
        run = await play.ask()
        assert (run.status, run.output) == (RunStatus.COMPLETED, "I could not.")
        assert await play.outcomes(run) == [("read_page", "failed")]
        (told,) = play.told()
        assert told.is_error
        assert "ToolResult" in told.text
        assert host.heard() == []


@pytest.mark.promise("P10")
@pytest.mark.parametrize("entry", [Entry.DIRECT, Entry.QUEUED, Entry.RESUMED])
@pytest.mark.parametrize("made", NO_RESULT)
async def test_a_write_that_returns_no_result_is_uncertain(host: Host, entry: Entry, made: str) -> None:
    """It ran and named no record: whether it wrote, a person says."""
    tools = [returning(host, ToolEffect.NON_IDEMPOTENT_WRITE, "add_element", NO_RESULT[made])]
    async with entered(host, entry, [[ADD], "I see."], tools=tools) as play:
        run = await play.ask()
        run = await play.decide(run, Decision.approve(digest(run)))
        assert run.status is RunStatus.UNCERTAIN
        assert run.uncertain is not None
        assert run.uncertain.reason in (UncertaintyReason.RAISED, UncertaintyReason.UNNAMED)
        assert (host.executions(), host.heard()) == (1, [])
        (step,) = await play.steps(run, StepKind.UNCERTAIN)
        assert step.detail is not None
        assert "ToolResult" in step.detail
        runtime = await play.runtime()
        run = await runtime.reconcile(run.run_id, Reconciliation.leave_it(run.uncertain.digest), actor=BOB)
        if entry is Entry.QUEUED:
            run = await runtime.execute(run.run_id)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


# -- values that cannot be stored


SECRET = "s3cr3t"


class Page:
    """Something of the host's that no store can hold."""

    def __repr__(self) -> str:
        return SECRET


def _circle() -> dict[str, object]:
    circle: dict[str, object] = {}
    circle["self"] = circle
    return circle


UNSTORABLE: dict[str, tuple[object, str]] = {
    "an object": ({"page": Page()}, "artifacts.page"),
    "deep inside": ({"pages": [1, {"of": [Page()]}]}, "artifacts.pages[1].of[0]"),
    "a set": ({"ids": {SECRET}}, "artifacts.ids"),
    "bytes": ({"html": SECRET.encode()}, "artifacts.html"),
    "no number": ({"score": float("nan")}, "artifacts.score"),
    "an endless number": ({"score": float("-inf")}, "artifacts.score"),
    "a huge number": ({"id": 2**63}, "artifacts.id"),
    "a NUL": ({"html": f"{SECRET}\0"}, "artifacts.html"),
    "half a surrogate pair": ({"html": f"{SECRET}\ud800"}, "artifacts.html"),
    "a key that is a number": ({"of": {42: SECRET}}, "artifacts.of"),
    "a circle": (_circle(), "artifacts.self"),
    "a list": ([SECRET], "artifacts"),
    "nothing": (None, "artifacts"),
    "too much": ({"html": "x" * MAX_ARTIFACT_BYTES}, "artifacts"),
}


def with_artifacts(host: Host, effect: ToolEffect, name: str, value: object) -> Tool:
    @tool(effect=effect, name=name)
    def has(context: ToolContext, page_id: int, description: str = "", text: str = "") -> ToolResult:
        """Return artifacts."""
        host.count(context, name)
        result = ToolResult.text("Done.").with_artifacts(value)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        return result if effect is ToolEffect.READ_ONLY else result.with_write_target(PAGE, WriteKind.UPDATED)

    return has


@pytest.mark.report(25)
@pytest.mark.parametrize("effect", ToolEffect)
@pytest.mark.parametrize("unstorable", UNSTORABLE)
async def test_a_value_that_cannot_be_stored_is_found_when_the_tool_returns(
    host: Host, effect: ToolEffect, unstorable: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The path is named, the value is not printed, and the run comes to a stop that can be gone on from."""
    value, path = UNSTORABLE[unstorable]
    made = {ToolEffect.READ_ONLY: READ, ToolEffect.IDEMPOTENT_WRITE: SET, ToolEffect.NON_IDEMPOTENT_WRITE: ADD}[effect]
    tools = [with_artifacts(host, effect, made.name, value)]
    with caplog.at_level(logging.DEBUG):
        async with entered(host, Entry.DIRECT, [[made], "I see."], tools=tools) as play:
            run = await play.ask()
            if effect is ToolEffect.READ_ONLY:
                assert run.status is RunStatus.COMPLETED
                (told,) = play.told()
                said = told.text
            else:
                run = await play.decide(run, Decision.approve(digest(run)))
                assert run.status is RunStatus.UNCERTAIN
                assert host.executions() == (1 if effect is ToolEffect.NON_IDEMPOTENT_WRITE else 2)
                (step,) = await play.steps(run, StepKind.UNCERTAIN)
                said = step.detail or ""
            assert path in said
            assert SECRET not in said
            assert host.heard() == []
            assert run == await (await play.runtime()).get_run(run.run_id)
    assert SECRET not in caplog.text


TEXTS: dict[str, object] = {"nothing": None, "bytes": b"Done.", "a number": 42, "a list": ["Done."]}


@pytest.mark.report(25)
@pytest.mark.parametrize("given", TEXTS)
async def test_a_result_s_text_is_a_text(host: Host, given: str) -> None:
    @tool(effect=ToolEffect.READ_ONLY)
    def read_page(context: ToolContext, page_id: int) -> ToolResult:
        """Read a page."""
        return ToolResult.text(TEXTS[given])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

    async with entered(host, Entry.DIRECT, [[READ], "I see."], tools=[read_page]) as play:
        run = await play.ask()
        assert await play.outcomes(run) == [("read_page", "failed")]
        assert "text" in play.told()[0].text


@pytest.mark.parametrize(
    "text", ["", "a\0b", "half \ud800 of it", "x" * 10_000_000, "🕰" * 100_000], ids=lambda t: ascii(t)[:8]
)
@pytest.mark.parametrize("effect", [ToolEffect.READ_ONLY, ToolEffect.IDEMPOTENT_WRITE])
async def test_an_odd_text_is_bounded_and_the_record_survives_it(host: Host, effect: ToolEffect, text: str) -> None:
    made = READ if effect is ToolEffect.READ_ONLY else SET

    @tool(effect=effect, name=made.name)
    def says(context: ToolContext, page_id: int, description: str = "") -> ToolResult:
        """Say something."""
        result = ToolResult.text(text)
        return result if effect is ToolEffect.READ_ONLY else result.with_write_target(PAGE, WriteKind.UPDATED)

    async with entered(host, Entry.DIRECT, [[made], "I see."], tools=[says]) as play:
        run = await play.ask()
        if effect.writes:
            run = await play.decide(run, Decision.approve(digest(run)))
        assert run.status is RunStatus.COMPLETED
        (told,) = play.told()
        assert len(told.text.encode()) <= MAX_TEXT_BYTES
        assert host.heard() == ([("pages:42", "updated")] if effect.writes else [])


# -- what cannot be built


BAD_TOOLS: dict[str, object] = {
    "a function": print,
    "a name": "set_description",
    "nothing": None,
    "a class": dict,
}


@pytest.mark.parametrize("bad", BAD_TOOLS)
def test_what_is_no_tool_is_refused_at_construction(host: Host, bad: str) -> None:
    with pytest.raises(ConfigurationError):
        host.runtime(["Done."], tools=[*host.tools(), BAD_TOOLS[bad]])  # type: ignore[list-item] # pyright: ignore[reportArgumentType]


def test_two_tools_of_one_name_are_refused_at_construction(host: Host) -> None:
    with pytest.raises(ConfigurationError, match="read_page"):
        host.runtime(["Done."], tools=[*host.tools(), *host.tools()])


@pytest.mark.promise("P6")
@pytest.mark.parametrize("listener", [None, "label", 42, ["label"], object()], ids=lambda one: type(one).__name__)
def test_a_listener_that_is_no_callable_is_refused_at_construction(host: Host, listener: object) -> None:
    with pytest.raises(ConfigurationError):
        host.runtime(["Done."], listeners=[listener])  # type: ignore[list-item] # pyright: ignore[reportArgumentType]
