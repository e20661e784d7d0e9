"""No word of a conversation in the logs of a provider's library.

At DEBUG, several of them log whole requests. While Byline asks, those records are dropped; what the host itself does
with the same library is logged as ever, and so are all records from INFO on, which hold addresses and statuses only.
"""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_LIBRARIES: Final = frozenset(
    (
        *("anthropic", "openai", "google", "google_genai", "mistralai", "pydantic_ai", "groq", "cohere"),
        *("boto3", "botocore", "urllib3", "s3transfer", "websockets"),
        *("httpx", "httpx2", "httpcore", "httpcore2", "hpack", "h2", "h11"),
    )
)

_asking: ContextVar[bool] = ContextVar("byline_asking", default=False)


class _NothingOfConversations(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.INFO or not _asking.get()


_filter = _NothingOfConversations()


@contextmanager
def quiet() -> Generator[None, None, None]:
    """Drop what the libraries log below INFO within this context, and in threads that they start from it."""
    # Each time: a library makes loggers as it imports its modules. Adding a filter twice adds it once.
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in _LIBRARIES:
            logging.getLogger(name).addFilter(_filter)
    token = _asking.set(True)
    try:
        yield
    finally:
        _asking.reset(token)
