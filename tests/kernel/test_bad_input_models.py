"""A model that answers badly: the run says so, nothing runs that should not, and nothing is lost."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, cast

import pytest
from pydantic import JsonValue

from byline import (
    Decision,
    ModelAnswer,
    ModelCall,
    ModelError,
    ModelRequest,
    NativePart,
    RunStatus,
    StepKind,
    TerminationReason,
    ToolMessage,
    Usage,
)
from byline.approval.decision import Approve
from byline.models.scripted import Turn
from byline.testing import ScriptedModel, call
from tests.host import ALICE, BOB, Host
from tests.kernel.gate_entries import ADD, READ, SET, Entry, digest, entered, pending

# -- no answer


class Answers:
    """A model that answers with whatever it was given, typed or not."""

    def __init__(self, answer: object) -> None:
        self.answer_with = answer

    async def answer(self, request: ModelRequest, /) -> ModelAnswer:
        return self.answer_with  # type: ignore[return-value] # pyright: ignore[reportReturnType]


def _nested(depth: int) -> JsonValue:
    value: JsonValue = []
    for _ in range(depth):
        value = [value]
    return value


UNPLAIN = cast("JsonValue", {"x": {1}})

BAD_ANSWERS: dict[str, object] = {
    "nothing": None,
    "an empty answer": ModelAnswer(),
    "a blank answer": ModelAnswer(text=" \n\t"),
    "a text": "Done.",
    "a dict": {"text": "Done."},
    "a text that is none": ModelAnswer(text=42),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "a text that is nothing": ModelAnswer(text=None),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "a call that is none": ModelAnswer(calls=("set_description",)),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "calls that are none": ModelAnswer(calls=42),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "a call without a name": ModelAnswer(calls=(ModelCall(None),)),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "a call with arguments that were read": ModelAnswer(calls=(ModelCall("set_description", {"page_id": 42}),)),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "a call without arguments": ModelAnswer(calls=(ModelCall("set_description", None),)),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "a provider's id that is a number": ModelAnswer(calls=(ModelCall("read_page", "{}", 7),)),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "a usage in words": ModelAnswer("Done.", usage=Usage("many", 1)),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "no usage": ModelAnswer("Done.", usage=None),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "a native part that is none": ModelAnswer("Done.", native={"id": 1}),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "a native part that JSON cannot hold": ModelAnswer("Done.", native=NativePart("a", "1", UNPLAIN)),
    "a native part with no number": ModelAnswer("Done.", native=NativePart("a", "1", float("nan"))),
    "a native part with half a pair": ModelAnswer("Done.", native=NativePart("a", "1", "\ud800")),
    "a native part that is too deep": ModelAnswer("Done.", native=NativePart("a", "1", _nested(100_000))),
}


@pytest.mark.parametrize("entry", [Entry.DIRECT, Entry.QUEUED])
@pytest.mark.parametrize("bad", BAD_ANSWERS)
async def test_a_bad_answer_ends_in_dead_letter_and_can_be_retried(host: Host, entry: Entry, bad: str) -> None:
    model = Answers(BAD_ANSWERS[bad])
    execution: Literal["inline", "queued"] = "queued" if entry is Entry.QUEUED else "inline"
    async with host.runtime(model, execution=execution) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        if entry is Entry.QUEUED:
            run = await runtime.execute(run.run_id)
        assert (run.status, run.reason) == (RunStatus.DEAD_LETTER, TerminationReason.NOT_RETRYABLE)
        assert host.executions() == 0
        failed, settled = (await runtime.list_steps(run.run_id))[-2:]
        assert (failed.kind, settled.kind) == (StepKind.MODEL, StepKind.SETTLED)
        assert failed.detail
        assert len(failed.detail) <= 2_000

        model.answer_with = ModelAnswer("Done.")
        run = await runtime.retry(run.run_id)
        if entry is Entry.QUEUED:
            run = await runtime.execute(run.run_id)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")


@pytest.mark.parametrize(
    "error",
    [
        ModelError("busy"),
        ValueError("x" * 10_000),
        RuntimeError("half \ud800"),
        KeyError("choices"),
        FileNotFoundError(2, "no such file", "prompts.txt"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("after", [[], [[READ]]], ids=["at once", "after a read"])
async def test_a_model_that_raises(host: Host, error: Exception, after: Sequence[Turn]) -> None:
    async with host.runtime([*after, error]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        assert (run.status, run.reason) == (RunStatus.DEAD_LETTER, TerminationReason.NOT_RETRYABLE)
        assert host.executions() == len(after)
    async with host.runtime([*after, "Done."]) as runtime:
        run = await runtime.retry(run.run_id)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
        assert host.executions() == len(after)  # what was finished did not run again


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError()], ids=lambda error: type(error).__name__)
async def test_a_model_that_would_end_the_process_ends_its_run_only(host: Host, error: BaseException) -> None:
    async with host.runtime([[READ], error]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        assert (run.status, run.reason) == (RunStatus.DEAD_LETTER, TerminationReason.NOT_RETRYABLE)
    async with host.runtime([[READ], "Done."]) as runtime:
        run = await runtime.retry(run.run_id)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


async def test_a_closing_answer_without_words_closes_all_the_same(host: Host) -> None:
    async with host.runtime([[READ], ModelAnswer()], agent={"max_rounds": 1}) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "")


# -- calls and their ids


IDS: dict[str, Callable[[int], str | None]] = {
    "no ids": lambda _: None,
    "empty ids": lambda _: "",
    "one id for all": lambda _: "call_0",
    "ids from nought": lambda number: f"call_{number}",
    "an id of ten megabytes": lambda _: "x" * 10_000_000,
    "an id with a NUL": lambda _: "call\0",
    "an id with half a pair": lambda _: "call\ud800",
}


@pytest.mark.report(24)
@pytest.mark.parametrize("entry", [Entry.DIRECT, Entry.RESUMED])
@pytest.mark.parametrize("ids", IDS)
async def test_a_provider_s_ids_mean_nothing_here(host: Host, entry: Entry, ids: str) -> None:
    """They lack, repeat within a turn, or are the same in every turn: each call is still one of its own."""

    def turn() -> list[ModelCall]:
        return [ModelCall(one.name, one.arguments, IDS[ids](number)) for number, one in enumerate([SET, ADD, ADD])]

    async with entered(host, entry, [turn(), turn(), "Done."]) as play:
        run = await play.ask()
        first = [waiting.id for waiting in pending(run).calls]
        verdicts = dict.fromkeys(first, Approve())
        run = await play.decide(run, Decision.per_call(digest(run), dict(verdicts)))
        second = [waiting.id for waiting in pending(run).calls]
        assert len({*first, *second}) == 6
        run = await play.decide(run, Decision.approve(digest(run)))
        assert run.status is RunStatus.COMPLETED
        assert (host.executions("set_description"), host.executions("add_element")) == (2, 4)
        assert len(host.ask("select distinct call_id from executed")) == 6
        assert [said.call_id for said in play.told()] == [*first, *second]


@pytest.mark.parametrize("one", [SET, READ], ids=["writes", "reads"])
async def test_two_hundred_calls_at_once_are_refused_whole(host: Host, one: ModelCall) -> None:
    """Nobody can read that many before deciding: nobody is asked, and the model may ask for fewer."""
    async with entered(host, Entry.DIRECT, [[one] * 200, [SET], "Done."]) as play:
        run = await play.ask()
        assert [waiting.tool for waiting in pending(run).calls] == ["set_description"]
        assert host.executions() == 0
        run = await play.decide(run, Decision.approve(digest(run)))
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)
        refused = play.told()[:200]
        assert len({said.call_id for said in refused}) == 200
        assert all(said.is_error and said.text.startswith("Not executed: ") for said in refused)


async def test_as_many_calls_as_are_allowed_wait_and_run(host: Host) -> None:
    turn = [call("add_element", page_id=42, text=f"Number {number}.") for number in range(64)]
    async with entered(host, Entry.DIRECT, [turn, "Done."]) as play:
        run = await play.ask()
        assert len(pending(run).calls) == 64
        run = await play.decide(run, Decision.approve(digest(run)))
        assert host.elements() == [f"Number {number}." for number in range(64)]


async def test_words_beside_calls_are_kept_for_the_model(host: Host) -> None:
    answer = ModelAnswer(text="I shall. \ud800", calls=(SET,), native=NativePart("a", "1", {"signature": "é=="}))
    model = ScriptedModel([answer, "Done."])
    async with host.runtime(model) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
    async with host.runtime(model) as runtime:
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert run.status is RunStatus.COMPLETED
    said = model.requests[-1].messages[1]
    assert not isinstance(said, ToolMessage)
    assert said.role == "assistant"
    assert said.answer.text == "I shall. ?"
    assert said.answer.native == answer.native


@pytest.mark.parametrize(
    "text", ["a\0b", "half \ud800 of it", "x" * 10_000_000, "🕰" * 100], ids=lambda text: ascii(text)[:8]
)
async def test_odd_closing_words_are_an_output(host: Host, text: str) -> None:
    async with host.runtime([text]) as runtime:
        run = await runtime.run("editor", "Say something.", actor=ALICE)
        assert run.status is RunStatus.COMPLETED
        assert (await runtime.get_run(run.run_id)).output == text.encode("utf-8", "replace").decode()
