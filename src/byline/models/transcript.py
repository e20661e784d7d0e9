"""What can be read off a transcript, and what is done to an answer before it becomes part of one."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from byline.models.messages import AssistantMessage, Message, ModelAnswer, ToolMessage, UserMessage

MAX_NAME = 128
"""Longest name of a called tool that is kept, in characters: no tool has a longer one."""


def open_calls(messages: Sequence[Message]) -> AssistantMessage | None:
    """Return the last answer if a call of it has no result yet."""
    answered: set[UUID] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.call_id)
        else:
            is_open = isinstance(message, AssistantMessage) and not answered.issuperset(message.call_ids)
            return message if is_open and isinstance(message, AssistantMessage) else None
    return None


def unanswered(messages: Sequence[Message]) -> dict[UUID, str]:
    """Return the calls of the last answer that have no result yet, with the names of their tools."""
    message = open_calls(messages)
    if message is None:
        return {}
    answered = {said.call_id for said in messages if isinstance(said, ToolMessage)}
    names = zip(message.call_ids, (call.name for call in message.answer.calls), strict=True)
    return {call_id: name for call_id, name in names if call_id not in answered}


def rounds_since_prompt(messages: Sequence[Message]) -> int:
    """How often the model has answered since the person last spoke."""
    rounds = 0
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            break
        rounds += isinstance(message, AssistantMessage)
    return rounds


def storable(answer: ModelAnswer) -> ModelAnswer:
    """Make an answer's texts valid Unicode. A lone surrogate in arguments becomes its escape, and is refused."""
    return replace(
        answer,
        text=answer.text.encode("utf-8", "replace").decode(),
        calls=tuple(
            replace(
                call,
                name=call.name.encode("utf-8", "replace").decode()[:MAX_NAME],
                arguments=call.arguments.encode("utf-8", "backslashreplace").decode(),
                provider_id=call.provider_id and call.provider_id.encode("utf-8", "replace").decode(),
            )
            for call in answer.calls
        ),
    )
