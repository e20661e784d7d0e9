"""What a transcript, a write's name or a person's word is made of: all that is taken can be stored and read back."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import cast
from uuid import UUID, uuid4

import pytest
from pydantic import JsonValue

from byline import (
    AssistantMessage,
    Decision,
    InvalidArguments,
    InvalidIdentifier,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    NativePart,
    RunStatus,
    StepKind,
    StoreError,
    TerminationReason,
    Tool,
    ToolContext,
    ToolContractBroken,
    ToolEffect,
    ToolError,
    ToolMessage,
    ToolResult,
    UncertaintyReason,
    Usage,
    UserMessage,
    tool,
)
from byline.models.messages import dump_message, load_message
from byline.store.sealing import KeyRing, Sealer
from byline.store.sql import SqlStore
from byline.testing import ScriptedModel, call
from byline.tools.result import MAX_TEXT_BYTES
from tests.host import ALICE, BOB, Host
from tests.kernel.gate_entries import ADD, ALIVE, READ, SET, Entry, digest, entered

SECRET = "the password is swordfish"
HALF = "half \ud800 of it"


class Mute(ToolError):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError(SECRET)


class MuteArguments(InvalidArguments):
    """The same, of arguments."""

    def __str__(self) -> str:
        raise RuntimeError(SECRET)


# -- what a tool says


def raising(effect: ToolEffect, name: str, error: Exception) -> Tool:
    @tool(effect=effect, name=name)
    def raises(context: ToolContext, page_id: int, description: str = "") -> ToolResult:
        """Refuse."""
        raise error

    return raises


SAID: dict[str, Exception] = {
    "half a pair": ToolError(HALF),
    "five megabytes": ToolError("é" * 2_500_000),
    "nothing, and raises": Mute(),
}


@pytest.mark.parametrize("entry", ALIVE)
@pytest.mark.parametrize("error", SAID)
@pytest.mark.parametrize("one", [READ, SET], ids=["a read", "a write"])
async def test_whatever_a_tool_error_says_the_model_reads_it_bounded(
    host: Host, entry: Entry, error: str, one: ModelCall
) -> None:
    tools = [
        raising(ToolEffect.READ_ONLY, "read_page", SAID[error]),
        raising(ToolEffect.IDEMPOTENT_WRITE, "set_description", SAID[error]),
    ]
    async with entered(host, entry, [[one], "I could not."], tools=tools) as play:
        run = await play.ask()
        if one is SET:
            run = await play.decide(run, Decision.approve(digest(run)))
        assert (run.status, run.output) == (RunStatus.COMPLETED, "I could not.")
        (told,) = play.told()
        assert told.is_error
        assert 0 < len(told.text.encode()) <= MAX_TEXT_BYTES
        assert SECRET not in told.text
        assert [outcome for _, outcome in await play.outcomes(run)] == ["failed"]


async def test_a_broken_contract_may_be_told_at_any_length(host: Host) -> None:
    """Its words go into a step; they are bounded there, and half a pair keeps no run from becoming uncertain."""
    broken = ToolContractBroken("x" * 5_000_000 + HALF)
    async with host.runtime(
        [[SET], "Done."], tools=[raising(ToolEffect.NON_IDEMPOTENT_WRITE, "set_description", broken)]
    ) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, run.reason) == (RunStatus.UNCERTAIN, UncertaintyReason.RAISED)
        (step,) = [step for step in await runtime.list_steps(run.run_id) if step.kind is StepKind.UNCERTAIN]
        assert step.detail is not None
        assert len(step.detail.encode()) <= MAX_TEXT_BYTES


@dataclass(frozen=True, slots=True)
class Wrapping:
    """A tool of another maker, which takes its own view of arguments."""

    tool: Tool
    error: BaseException

    @property
    def spec(self) -> object:
        return self.tool.spec

    def __getattr__(self, name: str) -> object:
        return getattr(self.tool, name)

    def validate(self, arguments: str) -> dict[str, JsonValue]:
        if "refuse me" in arguments:
            raise self.error
        return self.tool.validate(arguments)


@pytest.mark.parametrize("entry", [Entry.DIRECT, Entry.RESUMED])
@pytest.mark.parametrize("said", [MuteArguments(), InvalidArguments(HALF), InvalidArguments("x" * 5_000_000)])
async def test_whatever_a_refusal_of_arguments_says_the_turn_waits_and_is_read_back(
    host: Host, entry: Entry, said: Exception
) -> None:
    tools = [cast("Tool", cast("object", Wrapping(each, said))) for each in host.tools()]
    refused = call("set_description", page_id=42, description="refuse me")
    async with entered(host, entry, [[refused, ADD], "Done."], tools=tools) as play:
        run = await play.ask()
        run = await play.decide(run, Decision.approve(digest(run)))
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)
        assert all(len(told.text.encode()) <= MAX_TEXT_BYTES for told in play.told())


# -- what a model answers


def nested(depth: int) -> JsonValue:
    value: JsonValue = SECRET
    for _ in range(depth):
        value = [value]
    return value


def native(value: object, version: object = "1") -> ModelAnswer:
    return ModelAnswer("Done.", native=NativePart("a", cast("str", version), cast("JsonValue", value)))


UNSTORABLE: dict[str, ModelAnswer] = {
    "a version that is a number": native({}, 1),
    "a native part nested too deep": native(nested(250)),
    "a tuple": native({SECRET: (1, 2)}),
    "a key that is a number": native({1: SECRET}),
    "a key that is a truth": native({True: SECRET}),
    "a key with half a pair": native({HALF: SECRET}),
    "a number of thousands of digits": native([10**5_000]),
    "bytes": native(SECRET.encode()),
    "a usage of thousands of digits": ModelAnswer("Done.", usage=Usage(10**5_000, 0)),
    "a usage below nought": ModelAnswer("Done.", usage=Usage(0, -1)),
    "a usage of 64 bits": ModelAnswer("Done.", usage=Usage(2**63, 0)),
    "a truth for a usage": ModelAnswer("Done.", usage=Usage(True, 0)),
}


@pytest.mark.parametrize("bad", UNSTORABLE)
async def test_an_answer_that_could_not_be_read_back_is_refused(host: Host, bad: str) -> None:
    async with host.runtime([[READ], UNSTORABLE[bad]]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        assert (run.status, run.reason) == (RunStatus.DEAD_LETTER, TerminationReason.NOT_RETRYABLE)
        failed = (await runtime.list_steps(run.run_id))[-2]
        assert failed.detail is not None
        assert SECRET not in failed.detail
        assert "swordfish" not in failed.detail
    async with host.runtime([[READ], "Done."]) as runtime:
        assert (await runtime.retry(run.run_id)).status is RunStatus.COMPLETED


@pytest.mark.parametrize("entry", ALIVE)
async def test_a_native_part_is_replayed_equal(host: Host, entry: Entry) -> None:
    value: JsonValue = {"a\0b": [2**70, -0.0, 5e-324, 0.1 + 0.2, True, None, ""], "deep": nested(100)}
    answer = ModelAnswer(calls=(SET,), native=NativePart("a", "1", value), usage=Usage(2**63 - 1, 0))
    model = ScriptedModel([answer, "Done."])
    async with host.runtime(model, execution="queued" if entry is Entry.QUEUED else "inline") as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        run = await runtime.execute(run.run_id)
        if entry is not Entry.RESUMED:
            await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
            run = await runtime.execute(run.run_id)
    if entry is Entry.RESUMED:
        async with host.runtime(model) as runtime:
            run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
    assert run.status is RunStatus.COMPLETED
    said = model.requests[-1].messages[1]
    assert isinstance(said, AssistantMessage)
    assert said.answer == answer
    assert said.answer.native is not None
    assert repr(said.answer.native.value) == repr(value)


class Own(ModelAnswer):
    """An adapter's own kind of answer."""


async def test_an_adapters_own_kind_of_answer_is_kept_as_a_plain_one(host: Host) -> None:
    model = ScriptedModel([Own("I look.", calls=(READ,)), "Done."])
    async with host.runtime(model) as runtime:
        assert (await runtime.run("editor", "See to page 42.", actor=ALICE)).status is RunStatus.COMPLETED
    said = model.requests[-1].messages[1]
    assert isinstance(said, AssistantMessage)
    assert type(said.answer) is ModelAnswer


class MuteModel:
    """A model whose error cannot say what it is."""

    async def answer(self, request: ModelRequest, /) -> ModelAnswer:
        raise Mute


async def test_a_model_whose_error_says_nothing_ends_in_dead_letter(host: Host) -> None:
    async with host.runtime(MuteModel()) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        assert (run.status, run.reason) == (RunStatus.DEAD_LETTER, TerminationReason.NOT_RETRYABLE)


# -- what was said before


def odd(message: object, **parts: object) -> object:
    for name, value in parts.items():
        object.__setattr__(message, name, value)
    return message


HISTORIES: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "a number": lambda: 42,
    "an error flag in words": lambda: [odd(ToolMessage(uuid4(), "w", "x"), is_error=SECRET)],
    "a call that is a text": lambda: [odd(ToolMessage(uuid4(), "w", "x"), call_id=SECRET)],
    "another's role": lambda: [odd(AssistantMessage(ModelAnswer("x")), role="user")],
    "a person with a tool's role": lambda: [odd(UserMessage("x"), role=SECRET)],
    "calls by text": lambda: [odd(AssistantMessage(ModelAnswer(calls=(READ,)), (uuid4(),)), call_ids=(SECRET,))],
    "a native tuple": lambda: [AssistantMessage(native({"a": (SECRET,)}))],
    "no answer": lambda: [odd(AssistantMessage(ModelAnswer("x")), answer=SECRET)],
}


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("how", ["run", "enqueue"])
async def test_a_history_that_could_not_be_read_back_is_refused(host: Host, history: str, how: str) -> None:
    async with host.runtime(["Done."]) as runtime:
        start = runtime.run if how == "run" else runtime.enqueue
        with pytest.raises(InvalidIdentifier) as refused:
            await start("editor", "Go on.", actor=ALICE, history=HISTORIES[history]())  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        assert "history" in str(refused.value)
        assert "swordfish" not in str(refused.value)
        assert await runtime.list_runs() == []


def test_a_fault_of_a_stored_message_does_not_show_it() -> None:
    with pytest.raises(ValueError, match="call_id") as unread:
        load_message(f'{{"role": "tool", "call_id": "{SECRET}", "tool": 1, "text": "x"}}'.encode())
    assert SECRET not in str(unread.value)
    with pytest.raises(Exception, match="ToolMessage") as unwritten:
        dump_message(ToolMessage(uuid4(), "w", cast("str", cast("object", SECRET.encode()))))
    assert (unwritten.value.__context__, unwritten.value.__cause__) == (None, None)


# -- what opens with its key, and is nothing


def put(host: Host, ring: KeyRing, run_id: UUID, *, turn: bool) -> None:
    """Seal something else in the place of a run's turn or prompt."""
    odd_one = b'{"role": "user", "txt": "' + SECRET.encode() + b'"}'
    table, column, owner = ("run", "turn", "") if turn else ("message", "body", "0")
    sealed = Sealer(ring).seal(odd_one, table, column, run_id, owner)
    with closing(sqlite3.connect(host.path.parent / "byline.db")) as database, database:
        if turn:
            changed = database.execute("update byline_run set turn = ?", (sealed,))
        else:
            changed = database.execute("update byline_message set body = ? where seq = 0", (sealed,))
        assert changed.rowcount == 1


def kept(host: Host, ring: KeyRing) -> SqlStore:
    return SqlStore(f"sqlite:///{host.path.parent / 'byline.db'}", keys=ring)


@pytest.mark.promise("P21", "P23")
async def test_a_message_that_is_none_keeps_its_run_and_is_named(host: Host) -> None:
    ring = KeyRing.generate()
    async with host.runtime(["Done."], store=kept(host, ring), execution="queued") as runtime:
        run = await runtime.enqueue("editor", "See to page 42.", actor=ALICE)
        put(host, ring, run.run_id, turn=False)
        with pytest.raises(StoreError) as refused:
            await runtime.execute(run.run_id)
        assert str(run.run_id) in str(refused.value)
        assert "message 0" in str(refused.value)
        assert SECRET not in str(refused.value)
        assert refused.value.__context__ is None
        assert (await runtime.recover()).skipped == {}  # it is left alone for a while
        run = await runtime.get_run(run.run_id)
        assert run.status is RunStatus.QUEUED
        assert run.problem is not None
        assert "message 0" in run.problem
        assert (await runtime.cancel(run.run_id, actor=ALICE)).status is RunStatus.CANCELLED


@pytest.mark.promise("P21", "P23")
async def test_a_turn_that_is_none_is_a_problem_of_its_run(host: Host) -> None:
    ring = KeyRing.generate()
    async with host.runtime([[SET], "Done."], store=kept(host, ring)) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        put(host, ring, run.run_id, turn=True)
        for shown in (await runtime.get_run(run.run_id), *await runtime.list_runs()):
            assert (shown.status, shown.pending) == (RunStatus.AWAITING_APPROVAL, None)
            assert shown.problem is not None
            assert "the turn of run" in shown.problem
            assert SECRET not in shown.problem
        with pytest.raises(StoreError):
            await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (await runtime.cancel(run.run_id, actor=ALICE)).status is RunStatus.CANCELLED
        assert host.executions() == 0
