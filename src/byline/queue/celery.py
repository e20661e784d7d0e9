"""Wake-ups over Celery: its workers go on with the runs whose ids they are sent.

Celery carries an id and nothing else, and nothing rests on its delivery, delays or results: what is lost is found by
whoever looks, such as a worker's runtime with `recover=True` (P17).
"""

import os
import select
import threading
from collections.abc import Callable
from typing import Final
from uuid import UUID

from byline.errors import ConfigurationError, RuntimeClosed
from byline.queue.consuming import EXECUTE, checked_builder, contained, run_id_of
from byline.runs.status import RunStatus
from byline.runtime.runtime import AgentRuntime
from byline.runtime.sync import SyncRuntime

try:
    from celery import Celery, signals
    from celery.concurrency.prefork import TaskPool as Prefork
except ModuleNotFoundError as error:
    raise ConfigurationError("Celery is not installed: pip install 'byline[celery]'") from error

RETRY: Final = {"max_retries": 1, "interval_start": 0.0}
"""One more attempt at sending: the first one may find a connection that the broker has dropped since."""
AGAIN: Final = 5.0
"""Seconds before a worker's process tries again to open its runtime."""


class CeleryWakeup:
    """Sends the ids of queued runs to the Celery workers that `register_tasks` has made ready.

    `AgentRuntime(store=url, execution="queued", wakeup=CeleryWakeup(app))`. The message goes where `app` routes the
    task `byline.execute`.

    Args:
        app: the Celery application.

    Raises:
        ConfigurationError: it is none.
    """

    def __init__(self, app: "Celery") -> None:
        self._app = _checked(app)

    def __repr__(self) -> str:
        return f"CeleryWakeup({self._app.main!r})"

    def wake(self, run_id: UUID, /) -> None:
        """Send the id of a run.

        Raises:
            kombu.exceptions.OperationalError: the broker does not answer.
        """
        self._app.send_task(
            EXECUTE, args=(str(run_id),), serializer="json", ignore_result=True, retry=True, retry_policy=RETRY
        )


def register_tasks(app: "Celery", build: Callable[[], AgentRuntime]) -> None:
    """Give a Celery application the task `byline.execute`, for its workers.

    A message is acknowledged late: once its run has been executed, or was found to wait, to have ended, or to be
    executed elsewhere. Both ways are safe, since a claim in the store decides who executes; acknowledged early, the
    message of a process that dies before it has claimed its run would be gone, and the run would wait for the next
    look. The price is a message delivered once more where a run takes longer than the broker waits for the
    acknowledgement (RabbitMQ: 30 minutes): that one finds the run claimed, and is dropped. So is what is no run id, or
    names an unknown run, with a line in the log; nothing is retried.

    A worker that is told to stop (SIGTERM, or Ctrl-C once) finishes the steps in flight within the runtime's grace,
    hands its runs back, and tells of them again.

    Args:
        app: the Celery application.
        build: builds the runtime. It is called in each worker process, after the fork: in prefork's children, and
            once for a pool of threads.

    Raises:
        ConfigurationError: one of these is something else.
    """
    wakeup, worker = CeleryWakeup(app), _Worker(app, checked_builder(build))

    @app.task(
        name=EXECUTE,
        acks_late=True,
        acks_on_failure_or_timeout=True,
        reject_on_worker_lost=True,
        ignore_result=True,
        serializer="json",
    )
    def execute(*message: object, **named: object) -> None:
        run_id = run_id_of(message, named)
        if run_id is not None:
            left = True
            with contained(f"Run {run_id} was not executed here", run_id):
                runtime = worker.opened()
                left = runtime.execute(run_id).status is RunStatus.QUEUED
            if left and worker.stopping.is_set():
                with contained(f"No wake-up for run {run_id}", run_id):
                    wakeup.wake(run_id)


class _Worker:
    """One process of a worker: its runtime, open from the start until the worker is told to stop.

    The process that heads a worker tells its children, prefork's as well as its own threads, through a pipe that they
    share: something stands in it that nobody reads.
    """

    def __init__(self, app: "Celery", build: Callable[[], AgentRuntime]) -> None:
        self.stopping = threading.Event()
        self._app = app
        self._build = build
        self._opening = threading.Lock()
        self._runtime: SyncRuntime | None = None
        self._pipe: tuple[int, int] | None = None  # none where no worker of this application runs
        signals.worker_init.connect(self._prepare, weak=False)
        signals.worker_process_init.connect(self._begin, weak=False)
        signals.worker_ready.connect(self._begin_unless_prefork, weak=False)
        signals.worker_shutting_down.connect(self._tell, weak=False)
        signals.worker_process_shutdown.connect(self.close, weak=False)
        signals.worker_shutdown.connect(self.close, weak=False)

    def opened(self) -> SyncRuntime:
        """The open runtime of this process.

        Raises:
            RuntimeClosed: the worker stops.
        """
        with self._opening:
            if self.stopping.is_set():
                raise RuntimeClosed
            if self._runtime is None:
                self._runtime = self._build().sync.__enter__()
                threading.Thread(target=self._close_when_told, name="byline-stop", daemon=True).start()
            return self._runtime

    def close(self, **_: object) -> None:
        """Finish the steps in flight and hand their runs back."""
        self.stopping.set()
        with self._opening:
            runtime, self._runtime = self._runtime, None
            if runtime is not None:
                runtime.__exit__(None, None, None)

    def _prepare(self, sender: object, **_: object) -> None:
        if getattr(sender, "app", None) is self._app:
            self._pipe = os.pipe()

    def _begin(self, **_: object) -> None:
        if self._pipe is not None:  # on a thread, since Celery kills a child that is not ready in four seconds
            threading.Thread(target=self._open, name="byline-open", daemon=True).start()

    def _begin_unless_prefork(self, sender: object, **_: object) -> None:
        if not isinstance(getattr(sender, "pool", None), Prefork):
            self._begin()

    def _open(self) -> None:
        opened = False
        while not (opened or self.stopping.is_set()):
            with contained("This worker process could not open its runtime; trying again"):
                self.opened()
                opened = True
            if not opened:
                self.stopping.wait(AGAIN)

    def _tell(self, **_: object) -> None:
        if self._pipe is not None:
            os.write(self._pipe[1], b".")

    def _close_when_told(self) -> None:
        if self._pipe is not None:
            told = select.poll()
            told.register(self._pipe[0], select.POLLIN)
            told.poll()
            self.close()


def _checked(app: "Celery") -> "Celery":
    if not isinstance(app, Celery):
        raise ConfigurationError("give Celery wake-ups the application: a celery.Celery")
    return app
