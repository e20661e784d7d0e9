"""A stored answer that cannot be read is not guessed at: the run waits, and says why."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import JsonValue

from byline import (
    AssistantMessage,
    Decision,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    NativePart,
    NativeUnreadable,
    PydanticAiModel,
    RunStatus,
    ToolMessage,
    UserMessage,
)
from examples.model_server.server import ModelServer
from tests.providers.stage import ALICE, BOB, Turn, assistant_messages, playing, runtime

MODEL = "anthropic:local"
CALL = ("call_0", "describe_page", '{"page_id": 42, "description": "marker-Wq3"}')
ID = UUID(int=7)


class Marked(PydanticAiModel):
    """Stores its native parts as another version of the adapter would."""

    version = "0"

    async def answer(self, request: ModelRequest, /) -> ModelAnswer:
        answer = await super().answer(request)
        assert answer.native is not None
        return replace(answer, native=replace(answer.native, version=self.version))


async def an_answer(server: ModelServer) -> ModelAnswer:
    server.respond = playing([Turn("I describe it.", [CALL], thinking="Hm."), Turn("Done.")])
    return await PydanticAiModel(MODEL).answer(ModelRequest("", (UserMessage("Go."),), ()))


def going_on(answer: ModelAnswer) -> ModelRequest:
    said = AssistantMessage(answer, (ID,) * len(answer.calls))
    results = tuple(ToolMessage(ID, call.name, "Done.") for call in answer.calls)
    return ModelRequest("", (UserMessage("Go."), said, *results), ())


@pytest.mark.promise("P19")
async def test_a_run_with_an_unreadable_answer_waits(server: ModelServer, tmp_path: Path) -> None:
    server.respond = playing([Turn("I describe it.", [CALL], thinking="Hm."), Turn("Done.")])
    async with runtime(tmp_path / "runs.db", Marked(MODEL)) as opened:
        run = await opened.run("editor", "Describe page 42.", actor=ALICE)
        assert run.pending is not None
        run = await opened.decide(run.run_id, Decision.approve(run.pending.digest), actor=BOB)
        assert run.status is RunStatus.QUEUED  # what was approved has run; the model is not asked
        assert len(server.requests) == 1
        assert "format '0'" in repr(run)


CHANGES: dict[str, Callable[[NativePart], NativePart]] = {
    "version": lambda native: replace(native, version="2"),
    "nothing": lambda native: replace(native, value=None),
    "no list": lambda native: with_response(native, parts="marker-Wq3"),
    "unknown part": lambda native: with_response(native, parts=[{"part_kind": "hologram", "content": "marker-Wq3"}]),
    "unknown field": lambda native: with_response(native, a_field_of_tomorrow={"of": "marker-Wq3"}),
    "unknown field of a part": lambda native: with_part(native, a_field_of_tomorrow="marker-Wq3"),
}


@pytest.mark.promise("P19")
@pytest.mark.parametrize("change", CHANGES)
async def test_what_cannot_be_read_whole_is_not_read(server: ModelServer, change: str) -> None:
    answer = await an_answer(server)
    assert answer.native is not None
    with pytest.raises(NativeUnreadable) as caught:
        await PydanticAiModel(MODEL).answer(going_on(replace(answer, native=CHANGES[change](answer.native))))
    assert "marker" not in str(caught.value)
    assert len(server.requests) == 1


def with_response(native: NativePart, **fields: JsonValue) -> NativePart:
    value: Any = native.value
    return replace(native, value={**value, "response": {**value["response"], **fields}})


def with_part(native: NativePart, **fields: JsonValue) -> NativePart:
    value: Any = native.value
    first, *others = value["response"]["parts"]
    return with_response(native, parts=[{**first, **fields}, *others])


async def test_a_field_that_was_not_there_yet_does_no_harm(server: ModelServer) -> None:
    answer = await an_answer(server)
    value: Any = answer.native.value if answer.native else None
    older = {key: kept for key, kept in value["response"].items() if key not in ("canonical_system", "workspace_ref")}
    native = NativePart("pydantic-ai", "1", {**value, "response": older})
    await PydanticAiModel(MODEL).answer(going_on(replace(answer, native=native)))
    (said,) = assistant_messages(server.requests[-1])
    assert [block["type"] for block in said["content"]] == ["thinking", "redacted_thinking", "text", "tool_use"]


async def test_another_adapters_part_is_left_alone(server: ModelServer) -> None:
    answer = await an_answer(server)
    native = NativePart("someone-else", "9", {"anything": ["at", "all"]})
    await PydanticAiModel(MODEL).answer(going_on(replace(answer, native=native)))
    (said,) = assistant_messages(server.requests[-1])
    assert [block["type"] for block in said["content"]] == ["text", "tool_use"]


async def test_a_closing_answers_calls_are_not_said_again(server: ModelServer) -> None:
    """Byline keeps such an answer without them: they have no result."""
    answer = replace(await an_answer(server), calls=())
    await PydanticAiModel(MODEL).answer(going_on(answer))
    (said,) = assistant_messages(server.requests[-1])
    assert [block["type"] for block in said["content"]] == ["text"]


async def test_a_call_that_byline_made_up_has_byline_s_id(server: ModelServer) -> None:
    answer = ModelAnswer("", (ModelCall("describe_page", "{}"),))
    server.respond = playing([Turn("Done.")])
    await PydanticAiModel(MODEL).answer(going_on(answer))
    (said,) = assistant_messages(server.requests[-1])
    assert [block["id"] for block in said["content"]] == [ID.hex]
