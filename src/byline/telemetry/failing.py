"""What contains the failures of telemetry."""

import logging
from types import TracebackType

from byline.hosted import where_raised

_log = logging.getLogger(__name__)


class Contained:
    """Contains what an SDK raises. All that it surrounds is synchronous: a CancelledError is the SDK's own."""

    def __init__(self) -> None:
        self._level = logging.WARNING

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> bool:
        if error is None or isinstance(error, KeyboardInterrupt):
            return False
        level, self._level = self._level, logging.DEBUG
        _log.log(level, "Telemetry failed: %s", where_raised(error), extra={"action": "telemetry_failed"})
        return True
