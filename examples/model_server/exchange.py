"""What the protocols have in common: a transcript is read off a request, and an answer is given."""

import json
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from byline import AssistantMessage, ModelAnswer, ModelCall, ToolMessage, UserMessage
from byline.models import Message


@dataclass(slots=True)
class Transcript:
    """The messages of a request, as they are read."""

    messages: list[Message] = field(default_factory=list[Message])
    _open: list[tuple[str, UUID, str]] = field(default_factory=list[tuple[str, UUID, str]])

    def person(self, text: str) -> None:
        """Add what a person said."""
        self.messages.append(UserMessage(text))

    def model(self, text: str, calls: list[ModelCall]) -> None:
        """Add what the model said."""
        ids = [uuid4() for _ in calls]
        self._open += [(call.provider_id or "", call_id, call.name) for call, call_id in zip(calls, ids, strict=True)]
        self.messages.append(AssistantMessage(ModelAnswer(text, tuple(calls)), tuple(ids)))

    def result(self, provider_id: str, text: str, *, is_error: bool = False) -> None:
        """Add the result of the first call of this id that has none."""
        place = next(place for place, (theirs, _, _) in enumerate(self._open) if theirs == provider_id)
        _, call_id, tool = self._open.pop(place)
        self.messages.append(ToolMessage(call_id, tool, text, is_error))

    def plain_result(self, provider_id: str, text: str) -> None:
        """Add a result where the protocol has no word for a failed one: that is JSON with an `error` alone."""
        try:
            read: Any = json.loads(text)
        except ValueError:
            read = None
        if isinstance(read, dict) and "error" in read and len(read) == 1:  # pyright: ignore[reportUnknownArgumentType]
            self.result(provider_id, str(read["error"]), is_error=True)  # pyright: ignore[reportUnknownArgumentType]
        else:
            self.result(provider_id, text)

    def id_of(self, number: int) -> str:
        """The id of a call of the next answer: unique within a conversation and no further, as some providers' are."""
        return f"call_{sum(isinstance(message, AssistantMessage) for message in self.messages)}_{number}"


def text_of(content: Any) -> str:  # noqa: ANN401 - JSON
    """The text of a content that is a text or a list of blocks."""
    if isinstance(content, str):
        return content
    return "".join(block["text"] for block in content or () if "text" in block)
