"""A model by its name, or a Pydantic AI model, as a ChatModel."""

import logging
import threading
from typing import TYPE_CHECKING, Final

from byline.errors import ConfigurationError
from byline.models.messages import ModelAnswer, ModelRequest
from byline.models.protocol import ChatModel
from byline.threads import DaemonThreads

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

    from byline.models.adapter.asking import Asking

_log = logging.getLogger(__name__)

EXTRAS: Final = {
    "anthropic": "anthropic",
    "bedrock": "bedrock",
    "google": "google",
    "google-cloud": "google",
    "mistral": "mistral",
    "ollama": "ollama",
    "openai": "openai",
    "openai-chat": "openai",
    "openai-responses": "openai",
}
"""The providers that a name may begin with, and the extra of Byline that each needs."""

PROVIDER_NAMES: Final = {
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "google-cloud": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "openai-chat": "openai",
    "openai-responses": "openai",
}
"""What OpenTelemetry's conventions call those that they call otherwise."""

MAX_MODEL_NAME: Final = 256
"""Longest name of a model, in characters."""

_threads = DaemonThreads("byline-model")
_importing = threading.Lock()  # two threads in one circle of imports would see half of it


class PydanticAiModel:
    """Any model that Pydantic AI speaks to, as a `ChatModel`.

    A provider's library is imported at the first answer, on a thread, and so is a missing extra or key found then.
    A model by name gets a connection of its own for each answer: it may be used by several runtimes, threads and event
    loops. A Pydantic AI model that you hand in is entered and left around each answer, on one event loop at a time.
    One answer is one request: what the libraries would repeat by themselves is switched off where they let us.

    Args:
        model: `provider:name`, such as `anthropic:claude-sonnet-4-5`, or a Pydantic AI model.
        settings: Pydantic AI's model settings, such as `{"temperature": 0.2, "max_tokens": 2_000, "thinking": "low"}`,
            or a provider's own kind of them. `max_retries` is 0 unless it is said here.

    Raises:
        ConfigurationError: the name has no such form, or names a provider that Byline has no extra for.
    """

    def __init__(self, model: "str | Model", *, settings: "ModelSettings | None" = None) -> None:
        if isinstance(model, str):
            _check_name(model)
        elif not callable(getattr(model, "request", None)):
            raise ConfigurationError(f"a model is a name or a Pydantic AI model, not a {type(model).__name__}")
        self._model = model
        self._settings = settings

    def __repr__(self) -> str:
        # Settings may hold headers, and those a key.
        shown = repr(self._model) if isinstance(self._model, str) else f"<{type(self._model).__name__}>"
        return f"{type(self).__name__}({shown})"

    @property
    def provider_name(self) -> str:
        """Who answers, as OpenTelemetry's conventions name it: `anthropic`, `openai`, `aws.bedrock`."""
        provider = self._model.partition(":")[0] if isinstance(self._model, str) else self._model.system
        return PROVIDER_NAMES.get(provider, provider)

    @property
    def model_name(self) -> str:
        """The model's name at its provider."""
        return self._model.partition(":")[2] if isinstance(self._model, str) else self._model.model_name

    async def answer(self, request: ModelRequest, /) -> ModelAnswer:
        """Ask once.

        Raises:
            ModelError: one of its kinds says why there is no answer.
            NativeUnreadable: an earlier answer of this adapter is stored in a form that it cannot read.
            ConfigurationError: the extra is not installed, or the provider finds no key. It says which.
        """
        asking = await _threads.submit(
            self._open
        )  # importing a provider takes seconds, and a client reads certificates
        return await asking(request)

    def _open(self) -> "Asking":
        """Import what this model needs, and make it ready to ask."""
        with _importing:
            try:
                from byline.models.adapter.asking import Asking

                return Asking.of(self._model, self._settings)
            except ImportError as error:
                problem = ConfigurationError(f"model {self._model!r} needs the extra byline[{self._extra()}]")
                problem.__cause__ = error
            except ConfigurationError as error:
                problem = error
        _log.error("A model cannot be used: %s", problem, extra={"action": "model_unusable"})
        raise problem

    def _extra(self) -> str:
        return EXTRAS[self._model.partition(":")[0]] if isinstance(self._model, str) else "models"


def chat_model(model: str | ChatModel) -> ChatModel:
    """Take a model as an agent is given it: by its name, or as an object.

    Raises:
        ConfigurationError: it is neither.
    """
    if isinstance(model, str):
        return PydanticAiModel(model)
    if not callable(getattr(model, "answer", None)):
        raise ConfigurationError(
            "a model is a name such as 'openai:gpt-5', or a ChatModel, an object with an async answer(); "
            "a Pydantic AI model becomes one with PydanticAiModel(model)"
        )
    return model


def _check_name(name: str) -> None:
    provider, colon, rest = name.partition(":")
    if not colon or not provider or not rest.strip() or not name.isprintable() or len(name) > MAX_MODEL_NAME:
        raise ConfigurationError(f"a model is named provider:model, as in 'openai:gpt-5', not {name!r:.80}")
    if provider not in EXTRAS:
        raise ConfigurationError(
            f"no provider {provider!r:.80}: there are {', '.join(EXTRAS)}. "
            "For another, hand in its Pydantic AI model: PydanticAiModel(model)"
        )
