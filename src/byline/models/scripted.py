"""A model that says what it was told to say: for tests, demos and documentation."""

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from pydantic import JsonValue

from byline.errors import ModelError
from byline.models.messages import AssistantMessage, ModelAnswer, ModelCall, ModelRequest

Reply: TypeAlias = str | Sequence[ModelCall] | ModelAnswer
Turn: TypeAlias = Reply | BaseException | Callable[[ModelRequest], "Reply | Awaitable[Reply]"]


def call(name: str, /, **arguments: JsonValue) -> ModelCall:
    """Write one tool call of a scripted turn."""
    return ModelCall(name, json.dumps(arguments))


class ScriptedModel:
    """Plays its turns in order: a list of calls, a closing text, an exception to raise, or a function of the request.

    Which turn comes next is read off the transcript (how often the assistant has spoken since the
    run's prompt), so a fresh process with the same script goes on where the last one stopped.

    Raises:
        ModelError: there is no further turn.
    """

    def __init__(self, turns: Sequence[Turn], *, earlier_answers: int = 0) -> None:
        self._turns = tuple(turns)
        self._earlier_answers = earlier_answers
        self.requests: list[ModelRequest] = []

    async def answer(self, request: ModelRequest, /) -> ModelAnswer:
        """Play the next turn."""
        self.requests.append(request)
        spoken = sum(isinstance(message, AssistantMessage) for message in request.messages) - self._earlier_answers
        if spoken >= len(self._turns):
            raise ModelError(f"the script has {len(self._turns)} turns, and the model was asked for one more")
        turn = self._turns[spoken]
        if isinstance(turn, BaseException):
            raise turn
        if callable(turn):
            made = turn(request)
            turn = await made if inspect.isawaitable(made) else made
        if isinstance(turn, ModelAnswer):
            return turn
        return ModelAnswer(text=turn) if isinstance(turn, str) else ModelAnswer(calls=tuple(turn))
