"""One question to one model: what the adapter does once the provider's library is imported."""

from dataclasses import dataclass
from typing import Self

from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model, infer_model
from pydantic_ai.settings import ModelSettings, merge_model_settings

from byline.errors import ConfigurationError, ModelError, ModelRefused, ModelUnavailable
from byline.models.adapter.conversion import answer_of, conversation, parameters_of, stand_ins
from byline.models.adapter.failures import MAX_DETAIL, failure
from byline.models.adapter.native import read_native
from byline.models.adapter.quiet import quiet
from byline.models.messages import ModelAnswer, ModelRequest
from byline.models.transcript import storable

_DECLARE_WHAT_WAS_CALLED = frozenset({"anthropic", "bedrock"})
"""Providers that refuse a transcript with calls in it if no tool is declared."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A model that is ready to be asked, with its settings."""

    model: Model
    settings: ModelSettings

    @classmethod
    def of(cls, model: str | Model, settings: ModelSettings | None) -> Self:
        """Make a model ready. A name becomes a new one, with a client that has never seen an event loop.

        Raises:
            ImportError: the provider's library is not installed.
            ConfigurationError: the provider lacks something, a key for instance.
        """
        try:
            ready = infer_model(model)
        except UserError as error:
            raise ConfigurationError(f"model {model!r}: {error.message}") from None
        bounded: ModelSettings = {} if "max_retries" in ready.unsupported_settings else {"max_retries": 0}
        return cls(ready, merge_model_settings(bounded, settings) or {})

    async def __call__(self, request: ModelRequest) -> ModelAnswer:
        """Ask, and read the answer.

        Raises:
            ModelError: there is none.
            NativeUnreadable: an earlier answer cannot be read.
        """
        messages = conversation(request.messages)
        settings = self.settings
        if not request.tools and self.model.system in _DECLARE_WHAT_WAS_CALLED:
            called = stand_ins(request.messages)
            request = ModelRequest(request.instructions, request.messages, called)
            settings = merge_model_settings(settings, {"tool_choice": "none"} if called else None) or {}
        parameters = parameters_of(request)
        failed: ModelError
        try:
            with quiet():
                async with self.model:
                    prepared = self.model.prepare_messages(messages, parameters)
                    response = await self.model.request(prepared, settings, parameters)
            return _read(response)
        except ModelError as error:
            failed = error
        except Exception as error:  # noqa: BLE001 - whatever a library raises is classified
            failed = failure(error, self.model)
        # Out here, so that the error has no other as its context: those hold what was said.
        raise failed


def _read(response: ModelResponse) -> ModelAnswer:
    """Read an answer.

    Raises:
        ModelRefused: it is a refusal.
        ModelUnavailable: it cannot be kept whole, so it is no answer: a run would wait for ever to give it back.
        ModelError: it is not finished.
    """
    if response.finish_reason == "content_filter":
        theirs = (response.provider_details or {}).get("refusal") or response.text
        raise ModelRefused(detail=str(theirs)[:MAX_DETAIL] if theirs else None)
    if response.state == "suspended":
        raise ModelError("the provider paused in its answer, which Byline does not go on with")
    try:
        answer = storable(answer_of(response))
        if answer.calls and answer.native is not None:  # words alone end a run
            read_native(answer.native)
        return answer
    except (ModelError, ValueError) as error:
        what = type(error).__name__
    # Out here, as above. The library takes a field's value as it comes, whatever its type.
    raise ModelUnavailable(f"the provider's reply is no answer: it cannot be kept whole ({what})")
