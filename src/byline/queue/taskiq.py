"""Wake-ups over Taskiq: its workers go on with the runs whose ids they are sent.

The broker carries an id and nothing else, and nothing rests on its delivery, delays or results: what is lost is found
by whoever looks, such as a worker's runtime with `recover=True` (P17).
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Final
from uuid import UUID

from byline.errors import ConfigurationError, RuntimeClosed
from byline.queue.consuming import EXECUTE, checked_builder, contained, run_id_of
from byline.runs.status import RunStatus
from byline.runtime.runtime import AgentRuntime

try:
    from taskiq import AsyncBroker, TaskiqEvents, TaskiqState
    from taskiq.kicker import AsyncKicker
    from taskiq_aio_pika import AioPikaBroker
except ModuleNotFoundError as error:
    raise ConfigurationError("Taskiq or taskiq-aio-pika is not installed: pip install 'byline[taskiq]'") from error

STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
"""What stops a Taskiq worker. Its own event for that comes when the tasks have ended: too late to hand runs back."""


class TaskiqWakeup:
    """Sends the ids of queued runs to the Taskiq workers that `register_tasks` has made ready.

    `AgentRuntime(store=url, execution="queued", wakeup=TaskiqWakeup(broker))`. A web process starts the broker and
    shuts it down, as for any task, on the event loop of the runtime. Where nobody has started it, as under the command
    line, it is started for what there is to send, and shut down after.

    Args:
        broker: the Taskiq broker, such as `AioPikaBroker(url)`.

    Raises:
        ConfigurationError: it is none.
    """

    def __init__(self, broker: "AsyncBroker") -> None:
        self._broker = _checked(broker)
        self._starting: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._is_ours = False  # started here, and shut down in a moment
        self._unsent: dict[object, UUID] = {}  # by who asked: a run may be due again while it is told of

    def __repr__(self) -> str:
        return f"TaskiqWakeup({type(self._broker).__name__})"

    async def wake(self, run_id: UUID, /) -> None:
        """Send the id of a run.

        Raises:
            taskiq.SendTaskError, OSError: the broker does not answer.
        """
        lock = self._lock()
        if not self._is_ours and _is_started(self._broker):
            await self._send(run_id)
            return
        asked = object()
        self._unsent[asked] = run_id
        try:
            async with lock:
                if asked in self._unsent:  # or else it was sent by whom this waited for
                    await self._start_and_send()
        finally:
            self._unsent.pop(asked, None)

    async def _start_and_send(self) -> None:
        self._is_ours = True
        try:
            await self._broker.startup()
            while self._unsent:
                asked, run_id = next(iter(self._unsent.items()))
                await self._send(run_id)
                self._unsent.pop(asked, None)
        finally:
            await self._broker.shutdown()
            self._is_ours = False

    def _lock(self) -> asyncio.Lock:
        """One for each event loop: the runtime may be opened again on another."""
        loop = asyncio.get_running_loop()
        if self._starting is None or self._starting[0] is not loop:
            self._starting, self._is_ours = (loop, asyncio.Lock()), False
        return self._starting[1]

    async def _send(self, run_id: UUID) -> None:
        sending: AsyncKicker[[str], None] = AsyncKicker(task_name=EXECUTE, broker=self._broker, labels={})
        await sending.kiq(str(run_id))


def register_tasks(broker: "AsyncBroker", build: Callable[[], AgentRuntime]) -> None:
    """Give a Taskiq broker the task `byline.execute`, for its workers.

    A message is acknowledged late, as is Taskiq's default (`--ack-type when_saved`): once its run has been executed,
    or was found to wait, to have ended, or to be executed elsewhere. Both ways are safe, since a claim in the store
    decides who executes; acknowledged early, the message of a process that dies before it has claimed its run would be
    gone, and the run would wait for the next look. What is no run id, or names an unknown run, is dropped with a line
    in the log; nothing is retried.

    A worker that is told to stop finishes the steps in flight within the runtime's grace, hands its runs back, and
    tells of them again.

    Args:
        broker: the Taskiq broker.
        build: builds the runtime. It is called in each worker process when that starts.

    Raises:
        ConfigurationError: one of these is something else.
    """
    wakeup, worker = TaskiqWakeup(broker), _Worker(checked_builder(build))

    async def execute(*message: object, **named: object) -> None:
        run_id = run_id_of(message, named)
        if run_id is not None:
            left = True
            with contained(f"Run {run_id} was not executed here", run_id):
                runtime = worker.opened()
                left = (await runtime.execute(run_id)).status is RunStatus.QUEUED
            if left and worker.stopping is not None:
                with contained(f"No wake-up for run {run_id}", run_id):
                    await wakeup.wake(run_id)

    broker.register_task(execute, EXECUTE)
    broker.add_event_handler(TaskiqEvents.WORKER_STARTUP, worker.open)
    broker.add_event_handler(TaskiqEvents.WORKER_SHUTDOWN, worker.close)


class _Worker:
    """One process of a worker: its runtime, open from the start to the first signal that stops it."""

    def __init__(self, build: Callable[[], AgentRuntime]) -> None:
        self.stopping: asyncio.Task[None] | None = None
        self._build = build
        self._runtime: AgentRuntime | None = None

    def opened(self) -> AgentRuntime:
        """The open runtime of this process.

        Raises:
            RuntimeClosed: it is none.
        """
        if self._runtime is None:
            raise RuntimeClosed
        return self._runtime

    async def open(self, _state: TaskiqState) -> None:
        """Open it, and stop at the first signal: Taskiq itself waits for the runs to end."""
        self._runtime = await self._build().__aenter__()
        loop = asyncio.get_running_loop()
        for number in STOPPING:
            handled_by = signal.getsignal(number)
            if callable(handled_by):
                signal.signal(number, self._stopped_at(loop, handled_by))

    async def close(self, _state: TaskiqState) -> None:
        """Finish the steps in flight and hand their runs back."""
        self._stop()
        if self.stopping is not None:
            await self.stopping

    def _stopped_at(
        self, loop: asyncio.AbstractEventLoop, handled_by: Callable[[int, FrameType | None], object]
    ) -> Callable[[int, FrameType | None], None]:
        process = os.getpid()

        def handle(number: int, frame: FrameType | None) -> None:
            if os.getpid() == process:  # and not in what a tool has forked
                with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                    loop.call_soon_threadsafe(self._stop)
            handled_by(number, frame)

        return handle

    def _stop(self) -> None:
        if self.stopping is None and self._runtime is not None:
            self.stopping = asyncio.create_task(self._runtime.__aexit__(None, None, None))


def _checked(broker: "AsyncBroker") -> "AsyncBroker":
    if not isinstance(broker, AsyncBroker):
        raise ConfigurationError("give Taskiq wake-ups the broker: a taskiq.AsyncBroker, such as AioPikaBroker(url)")
    return broker


def _is_started(broker: "AsyncBroker") -> bool:
    """Whether a broker is connected, or will be again by itself; a worker's always is."""
    if not isinstance(broker, AioPikaBroker) or broker.is_worker_process:
        return True
    return broker.write_conn is not None and not broker.write_conn.is_closed
