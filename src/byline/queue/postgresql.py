"""Wake-ups over PostgreSQL's NOTIFY: for a store that is in PostgreSQL, nothing else is needed."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from byline.errors import ConfigurationError
from byline.hosted import where_raised

try:
    import psycopg
except ImportError:  # in a store's words
    raise ConfigurationError("the driver of postgresql is not installed: pip install 'byline[postgresql]'") from None

CHANNEL: Final = "byline_run"
"""The channel on which the ids of queued runs are sent; channels are a database's own."""
CONNECT_TIMEOUT = 10
"""Seconds to wait for a connection."""
LOOK = 1.0
"""Seconds after which who listens looks whether it is to end."""
PAUSE = 1.0
"""Seconds before a lost connection is made again."""

_log = logging.getLogger(__name__)


class PostgresqlWakeup:
    """Tells the workers of one PostgreSQL database of queued runs, and listens for them.

    Give the same to the runtime that queues and to that of the workers: `AgentRuntime(store=url, execution="queued",
    wakeup=PostgresqlWakeup(url))`. `runtime.work()` and `byline worker` listen by themselves.

    Args:
        url: the store's URL, such as `postgresql://byline@localhost/byline`.

    Raises:
        ConfigurationError: it is no PostgreSQL URL. The message does not show it: it may hold a password.
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
        except ArgumentError:
            parsed = None
        if parsed is None or parsed.get_backend_name() != "postgresql":
            raise ConfigurationError("a PostgresqlWakeup takes the URL of a store in PostgreSQL")
        self._url = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
        self._shown = parsed.render_as_string(hide_password=True)
        self._sending = threading.Lock()
        self._unsent: deque[UUID] = deque()

    def __repr__(self) -> str:
        return f"PostgresqlWakeup({self._shown!r})"

    def wake(self, run_id: UUID, /) -> None:
        """Send the id of a run.

        Raises:
            psycopg.Error: the server does not answer.
        """
        self._unsent.append(run_id)
        with self._sending:  # whoever waited here finds that all of them went over one connection
            unsent = [self._unsent.popleft() for _ in range(len(self._unsent))]
            if unsent:
                with self._connect() as connection:
                    sent = [(CHANNEL, str(each)) for each in unsent]
                    connection.cursor().executemany("SELECT pg_notify(%s, %s)", sent)

    @contextmanager
    def listen(self, woken: Callable[[], None], /) -> Generator[None]:
        """Call `woken`, on a thread, whenever some run was queued, and whenever one may have been missed."""
        ended = threading.Event()
        listening = threading.Thread(target=self._listen, args=(woken, ended), name="byline-listen", daemon=True)
        listening.start()
        try:
            yield
        finally:
            ended.set()

    def _listen(self, woken: Callable[[], None], ended: threading.Event) -> None:
        while not ended.is_set():
            try:
                with self._connect() as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    woken()  # what was queued before somebody listened
                    while not ended.is_set():
                        for _ in connection.notifies(timeout=LOOK, stop_after=1):
                            woken()
            except psycopg.Error as error:
                extra = {"action": "listening_failed"}
                _log.warning("Nobody listens for queued runs; trying again: %s", where_raised(error), extra=extra)
                ended.wait(PAUSE)

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(self._url, autocommit=True, connect_timeout=CONNECT_TIMEOUT)
