"""Why a provider did not answer, as one of Byline's kinds of `ModelError`."""

import json
import logging
import re
import traceback
from collections.abc import Iterator
from typing import Final

import httpx2
from pydantic import ValidationError
from pydantic_ai.exceptions import (
    ContentFilterError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelServerError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
)
from pydantic_ai.models import Model

from byline.errors import (
    ContextTooLong,
    ModelAccessDenied,
    ModelError,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
    ModelUnreachable,
)
from byline.hosted import where_raised, words_of

_log = logging.getLogger(__name__)

_KINDS: Final[tuple[tuple[tuple[type[Exception], ...], type[ModelError]], ...]] = (
    ((ModelRateLimitError,), ModelRateLimited),
    ((ModelAuthenticationError, ModelQuotaExceededError), ModelAccessDenied),
    ((ModelContextWindowExceededError,), ContextTooLong),
    ((ModelUnavailableError, ModelServerError), ModelUnavailable),
    ((ModelConnectionError, ModelRequestTimeout), ModelUnreachable),
    ((ContentFilterError,), ModelRefused),
    ((UnexpectedModelBehavior,), ModelUnavailable),
)
_STATUSES: Final[dict[int, type[ModelError]]] = {
    408: ModelUnreachable,
    409: ModelUnavailable,
    413: ContextTooLong,
    425: ModelUnavailable,
}
"""What HTTP says and Pydantic AI does not classify."""
_NO_JSON = (json.JSONDecodeError, UnicodeDecodeError, ValidationError)
_TRANSPORT = (httpx2.TransportError, OSError)

_CODE: Final = re.compile(r"(?=.{1,48}$)([A-Za-z]+(_[A-Za-z]+)*|[0-9]+)")
"""What may be told of a provider's error code: a word of its vocabulary. A longer or freer text may be content."""
_KEY_HEADERS: Final = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
MAX_DETAIL = 2_000
"""Most of a provider's own words that is kept, in characters."""


def failure(error: Exception, model: Model) -> ModelError:
    """Classify what a model's library raised.

    Returns:
        An error that says its kind, the HTTP status and the provider's code. The provider's words are its `detail`,
        without the key; they are left out where the key is not known here, or access was denied: then they tend to be
        about the key.
    """
    if isinstance(error, FallbackExceptionGroup):
        causes = [failure(cause, model) for cause in error.exceptions if isinstance(cause, Exception)]
        return next((cause for cause in causes if cause.retryable), causes[-1])
    kind = _kind(error)
    retry_after = error.retry_after if isinstance(error, ModelAPIError) else None
    secrets = sorted({*_keys_of(model), *_keys_sent(error)}, key=len, reverse=True)
    said = "; ".join(filter(None, (_summary(kind), *(_without(secrets, fact) for fact in _facts(error)))))
    told = secrets and kind is not ModelAccessDenied
    detail = _without(secrets, words_of(error))[:MAX_DETAIL] if told else None
    return kind(said, retry_after=retry_after, detail=detail)


def _kind(error: Exception) -> type[ModelError]:
    for theirs, ours in _KINDS:
        if isinstance(error, theirs):
            return ours
    if isinstance(error, ModelHTTPError):
        return _STATUSES.get(error.status_code, ModelError)
    for cause in _chain(error):
        if isinstance(cause, _NO_JSON) or _raised_by_the_decoder(cause):
            return ModelUnavailable
        if isinstance(cause, _TRANSPORT):
            return ModelUnreachable
    if type(error) is ModelAPIError:  # unclassified, and no status: what came was no answer
        return ModelUnavailable
    if not isinstance(error, ModelAPIError):
        where = where_raised(error)
        _log.error("A model's library failed: %s", where, extra={"action": "model_library_failed"})
    return ModelError


def _raised_by_the_decoder(error: BaseException) -> bool:
    """Whether JSON was nested too deep to read, or holds a number too long: no `JSONDecodeError` says so."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].f_code.co_filename == json.decoder.__file__


def _summary(kind: type[ModelError]) -> str:
    return str(kind()).rstrip(".")


def _facts(error: Exception) -> Iterator[str]:
    """What may be told openly: nothing that a person or a provider wrote freely."""
    if isinstance(error, ModelHTTPError):
        yield f"HTTP {error.status_code}"
    if isinstance(error, ModelAPIError):
        # Handed on as they came: another server that speaks the protocol may send numbers, or anything.
        codes: tuple[object, ...] = (error.provider_error_type, error.provider_error_code)
        for code in dict.fromkeys(str(code) for code in codes if isinstance(code, str | int)):
            if _CODE.fullmatch(code):
                yield code
    else:
        yield type(error).__name__


def _keys_of(model: Model) -> Iterator[str]:
    """The keys that the model's client holds, where it says so."""
    client: object = getattr(model.provider, "client", None)
    for name in ("api_key", "auth_token"):
        value: object = getattr(client, name, None)
        if isinstance(value, str) and value:
            yield value


def _keys_sent(error: Exception) -> Iterator[str]:
    """The keys that the failed request carried."""
    for cause in _chain(error):
        for carrier in (cause, getattr(cause, "response", None)):
            headers = getattr(_request(carrier), "headers", None)
            for name in _KEY_HEADERS:
                value = headers.get(name) if isinstance(headers, httpx2.Headers) else None
                if value:
                    yield value
                    yield value.rpartition(" ")[2]


def _request(carrier: object) -> object:
    try:
        return getattr(carrier, "request", None)
    except RuntimeError:  # HTTPX: "The .request property has not been set."
        return None


def _without(secrets: list[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
