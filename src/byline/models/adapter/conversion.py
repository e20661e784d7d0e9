"""From Byline's transcript to Pydantic AI's messages, and from its response to Byline's answer."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from uuid import UUID

from pydantic_ai.messages import (
    INVALID_JSON_KEY,
    InstructionPart,
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as SaidToModel
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from byline.models.adapter.native import native_part, read_native
from byline.models.messages import (
    AssistantMessage,
    Message,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    OfferedTool,
    ToolMessage,
    Usage,
    UserMessage,
)

MAX_TOKENS = 2**63 - 1
"""Most tokens that a usage can count."""


@dataclass(repr=False)
class VerbatimCall(ToolCallPart):
    """A call whose arguments go back as the model wrote them: Pydantic AI itself would write them anew, compactly."""

    def args_as_json_str(self) -> str:
        """Return the arguments as they came."""
        return self.args if isinstance(self.args, str) else super().args_as_json_str()

    def args_as_dict(self, *, raise_if_invalid: bool = False) -> dict[str, Any]:
        """Return the arguments as an object; those with a number that JSON does not know as Pydantic AI does bad JSON.

        A model that wrote `NaN` would else make each later request one that cannot be written.
        """
        read = super().args_as_dict(raise_if_invalid=raise_if_invalid)
        try:
            json.dumps(read, allow_nan=False)
        except ValueError:
            if raise_if_invalid:
                raise
            return {INVALID_JSON_KEY: self.args_as_json_str()}
        return read


def parameters_of(request: ModelRequest) -> ModelRequestParameters:
    """Say what a model is offered: its tools, with their schemas as they are, and its instructions."""
    return ModelRequestParameters(
        function_tools=[_definition(tool) for tool in request.tools],
        instruction_parts=[InstructionPart(content=request.instructions)] if request.instructions else None,
    )


def stand_ins(messages: Iterable[Message]) -> tuple[OfferedTool, ...]:
    """Name the tools that a transcript calls, without what they take.

    Some providers refuse a transcript with calls if no tool is declared, and a closing question offers none.
    """
    called = (
        call.name for message in messages if isinstance(message, AssistantMessage) for call in message.answer.calls
    )
    return tuple(OfferedTool(name, "", {"type": "object", "properties": {}}) for name in dict.fromkeys(called))


def conversation(messages: Sequence[Message]) -> list[ModelMessage]:
    """Write a transcript as Pydantic AI's messages: this adapter's own answers as they came, others anew.

    A result is matched to its call by the id that the provider itself gave in that answer. Results stand in the order
    of their calls, in which also those of a repeated id can be told apart.

    Raises:
        NativeUnreadable: an answer of this adapter cannot be read.
    """
    written: list[ModelMessage] = []
    results: dict[UUID, ToolReturnPart] = {}
    prompts: list[ModelRequestPart] = []
    ids: dict[UUID, str] = {}
    for message in messages:
        match message:
            case UserMessage():
                prompts.append(UserPromptPart(message.text))
            case ToolMessage():
                results[message.call_id] = ToolReturnPart(
                    message.tool,
                    message.text,
                    tool_call_id=ids.get(message.call_id, message.call_id.hex),
                    outcome="failed" if message.is_error else "success",
                )
            case AssistantMessage():
                written += _said(ids, results, prompts)
                response = _response(message)
                theirs = (call.tool_call_id for call in response.tool_calls)
                ids = dict(zip(message.call_ids, theirs, strict=True))
                results, prompts = {}, []
                written.append(response)
    return [*written, *_said(ids, results, prompts)]


def _said(
    calls: Iterable[UUID], results: dict[UUID, ToolReturnPart], prompts: Sequence[ModelRequestPart]
) -> list[ModelMessage]:
    """What was said to the model between two of its answers."""
    in_order = [results.pop(call_id) for call_id in calls if call_id in results]
    parts = [*in_order, *results.values(), *prompts]
    return [SaidToModel(parts=parts)] if parts else []


def answer_of(response: ModelResponse) -> ModelAnswer:
    """Read a response. The arguments of a call are the model's own text, where the provider gives it as text.

    Raises:
        ValueError: it holds a number that JSON does not know. It could not be given back.
    """
    return ModelAnswer(
        text=response.text or "",
        calls=tuple(
            ModelCall(call.tool_name, _arguments(call.args), call.tool_call_id or None) for call in response.tool_calls
        ),
        usage=Usage(_count(response.usage.input_tokens), _count(response.usage.output_tokens)),
        native=native_part(response),
    )


def _definition(tool: OfferedTool) -> ToolDefinition:
    # Not strict: that would change the schema that the call is validated against.
    return ToolDefinition(
        name=tool.name,
        parameters_json_schema=dict(tool.parameters),
        description=tool.description or None,
        strict=False,
    )


def _response(message: AssistantMessage) -> ModelResponse:
    answer = message.answer
    native = None if answer.native is None else read_native(answer.native)
    # A closing answer is kept without the calls it made all the same, and so it is said again.
    if native is not None and len(native.tool_calls) == len(answer.calls):
        ids = iter(message.call_ids)
        verbatim = [_verbatim(part, next(ids)) if isinstance(part, ToolCallPart) else part for part in native.parts]
        return replace(native, parts=verbatim)
    parts: list[ModelResponsePart] = [TextPart(answer.text)] if answer.text else []
    parts += [
        ToolCallPart(call.name, call.arguments, call_id.hex)
        for call, call_id in zip(answer.calls, message.call_ids, strict=True)
    ]
    return ModelResponse(parts)


def _verbatim(call: ToolCallPart, call_id: UUID) -> VerbatimCall:
    kept: dict[str, Any] = {field.name: getattr(call, field.name) for field in fields(call) if field.init}
    kept["tool_call_id"] = call.tool_call_id or call_id.hex
    return VerbatimCall(**kept)


def _arguments(arguments: "str | dict[str, object] | None") -> str:
    if arguments is None or arguments == "":
        return "{}"
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, allow_nan=False)


def _count(tokens: int) -> int:
    return min(max(tokens, 0), MAX_TOKENS)
