"""From a model's calls to a turn: validated and normalised once, before anyone is asked (P12)."""

import asyncio
import copy
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from pydantic import JsonValue

from byline.approval.rule import needs_approval
from byline.approval.turn import PendingCall, PendingTurn, RejectedCall
from byline.errors import InvalidArguments, ToolContractBroken, ToolError
from byline.hosted import goes_on, where_raised, within, words_of
from byline.models.messages import AssistantMessage, ModelCall
from byline.tools.context import ToolContext
from byline.tools.json_values import plain_json
from byline.tools.protocol import Tool
from byline.tools.schema import canonical_json
from byline.tools.toolbox import Toolbox

_log = logging.getLogger(__name__)

MAX_CALLS = 64
"""Most calls of one answer. An answer with more is refused whole: nobody can read that many before deciding."""
PREVIEW_TIMEOUT = 30.0
"""Seconds one preview may take."""


@dataclass(frozen=True, slots=True)
class PreparedCalls:
    """The calls of one answer, each either valid or rejected."""

    calls: tuple[PendingCall, ...]
    rejected: tuple[RejectedCall, ...]

    @property
    def waits(self) -> bool:
        """Whether a person must decide: then none of the turn's calls runs before (P12)."""
        return any(call.needs_decision for call in self.calls)


def prepare(message: AssistantMessage, toolbox: Toolbox, *, answered: Collection[UUID] = ()) -> PreparedCalls:
    """Judge the calls of an answer that have no result yet."""
    every = list(zip(message.call_ids, message.answer.calls, strict=True))
    if len(every) > MAX_CALLS:
        error = f"Not executed: an answer may hold {MAX_CALLS} calls, this one has {len(every)}. Make fewer at once."
        return PreparedCalls((), tuple(RejectedCall(id=i, tool=c.name, error=error, offered=True) for i, c in every))
    calls: list[PendingCall] = []
    rejected: list[RejectedCall] = []
    for call_id, call in every:
        if call_id not in answered:
            judged = _judge(call_id, call, toolbox)
            calls.append(judged) if isinstance(judged, PendingCall) else rejected.append(judged)
    return PreparedCalls(tuple(calls), tuple(rejected))


def _judge(call_id: UUID, call: ModelCall, toolbox: Toolbox) -> PendingCall | RejectedCall:
    tool = toolbox.get(call.name)
    if tool is None:
        return RejectedCall(id=call_id, tool=call.name, error="Not executed: no such tool is offered.", offered=False)
    try:
        arguments = read_arguments(tool, call.arguments)
    except InvalidArguments as error:
        return RejectedCall(id=call_id, tool=call.name, error=f"Not executed: {words_of(error)}", offered=True)
    spec = tool.spec
    return PendingCall(
        id=call_id,
        tool=spec.name,
        effect=spec.effect,
        arguments=arguments,
        needs_decision=needs_approval(spec),
        parameters=spec.parameters,
    )


def read_arguments(tool: Tool, text: str) -> dict[str, JsonValue]:
    """Have a tool read its arguments into an object of their own.

    Raises:
        InvalidArguments: it says so; or it cannot, which is its defect, and the call reaches neither gate nor tool.
    """
    try:
        read = plain_json(tool.validate(text), "arguments")
    except InvalidArguments:
        raise
    except BaseException as error:
        if goes_on(error):
            raise
        extra = {"action": "validate_failed", "tool": tool.spec.name}
        _log.error("%s could not read its arguments: %s", tool.spec.name, where_raised(error), extra=extra)
        raise InvalidArguments(f"arguments: reading them failed with {type(error).__name__}") from None
    if not isinstance(read, dict):
        raise InvalidArguments("arguments: no JSON object")
    return read


def recheck(turn: PendingTurn, toolbox: Toolbox, *, answered: Collection[UUID]) -> PreparedCalls | None:
    """Hold a stored turn against the tools as they are loaded now (P12).

    Returns:
        None if it stands. Otherwise the calls without a result, judged anew, which wait again: the stored
        arguments no longer validate to the same canonical JSON, or an effect is stricter than approved.
        A tool that is gone is no reason to ask again: its call is refused when its time comes (P15).
    """
    stands = True
    calls: list[PendingCall] = []
    rejected = [call for call in turn.rejected if call.id not in answered]
    for call in turn.calls:
        if call.id in answered:
            continue
        judged = _judge_again(call, toolbox.get(call.tool))
        stands = stands and judged is call
        calls.append(judged) if isinstance(judged, PendingCall) else rejected.append(judged)
    return None if stands else PreparedCalls(tuple(calls), tuple(rejected))


def _judge_again(call: PendingCall, tool: Tool | None) -> PendingCall | RejectedCall:
    if tool is None:
        return call
    spec = tool.spec
    try:
        arguments = read_arguments(tool, canonical_json(call.arguments))
    except InvalidArguments as error:
        return RejectedCall(id=call.id, tool=call.tool, error=f"Not executed: {words_of(error)}", offered=True)
    waits_now = needs_approval(spec) and not call.needs_decision
    same = canonical_json(arguments) == canonical_json(call.arguments)  # 1, 1.0 and True are equal in Python
    if same and not spec.effect.is_stricter_than(call.effect) and not waits_now:
        return call
    return replace(
        call,
        effect=spec.effect.stricter(call.effect),
        arguments=arguments,
        needs_decision=call.needs_decision or needs_approval(spec),
        parameters=spec.parameters,
        preview=(),
    )


async def with_previews(
    calls: Iterable[PendingCall], toolbox: Toolbox, contexts: "dict[UUID, ToolContext]"
) -> tuple[PendingCall, ...]:
    """Let the tools say what the calls that wait would do, as the run's actor; side by side, bounded in time."""
    return tuple(await asyncio.gather(*(_with_preview(call, toolbox, contexts[call.id]) for call in calls)))


async def _with_preview(call: PendingCall, toolbox: Toolbox, context: ToolContext) -> PendingCall:
    tool = toolbox.get(call.tool)
    if tool is None or not call.needs_decision:
        return call
    try:
        # A copy: what a preview changes is not what is shown, digested and executed.
        asked = tool.make_preview(context, copy.deepcopy(call.arguments))
        lines: Sequence[str] = await within(PREVIEW_TIMEOUT, asked)
        preview = tuple(map(_shown, lines))
    except ToolError as refusal:  # the tool would refuse the call: its approver reads the tool's own sentence
        preview = (words_of(refusal),)
    except BaseException as error:
        if goes_on(error):
            raise
        extra = {"action": "preview_failed", "tool": call.tool, "run_id": str(context.run)}
        _log.error("The preview of %s failed: %s", call.tool, where_raised(error), extra=extra)
        preview = (f"(no preview: {type(error).__name__})",)  # it must not hide the call from its approver
    return replace(call, preview=preview)


def _shown(line: object) -> str:
    if not isinstance(line, str):
        raise ToolContractBroken(f"a preview is made of texts, not of a {type(line).__name__}")
    return line.encode("utf-8", "replace").decode()
