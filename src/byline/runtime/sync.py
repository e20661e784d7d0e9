"""The runtime for synchronous code: threads, Django views, Celery tasks, sync listeners."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, wait
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar
from uuid import UUID

from byline.actors import AiActorContext
from byline.approval.decision import Decision, Reconciliation
from byline.errors import RuntimeClosed
from byline.models.messages import Message
from byline.records import RecordReference
from byline.runs.run import Run
from byline.runs.status import RunStatus
from byline.runs.steps import Step, WriteFact
from byline.runtime.executor import Recovery
from byline.store.protocol import LateReport, Purged

if TYPE_CHECKING:
    from byline.runtime.runtime import AgentRuntime

T = TypeVar("T")

LOOK = 1.0
"""Seconds between two looks whether the event loop is still there that was asked."""


class SyncRuntime:
    """Mirrors `AgentRuntime`, method by method: same arguments, same results, same errors.

    Where the runtime is open on an event loop, calls from other threads run there. Otherwise `with
    runtime.sync:` opens it on an event loop of its own, on a thread that holds up no exit. It may be
    entered more than once, also from several threads: the last one to leave closes it.
    """

    def __init__(self, runtime: "AgentRuntime") -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._entered = 0
        self._own: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Open the runtime on an event loop of its own.

        Raises:
            RuntimeClosed: the caller is on an event loop, which this would block; or it was opened before a fork.
            StoreError, SchemaMismatch, KeyMissing: as `AgentRuntime` when it opens.
        """
        if _running_loop() is not None:
            raise RuntimeClosed("runtime.sync would block this event loop: open it with `async with runtime:`")
        self._runtime.check_process()
        with self._lock:
            if self._entered == 0:
                started = threading.Event()
                own = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(own, started), name="byline-sync", daemon=True)
                self._thread.start()
                started.wait()
                try:
                    asyncio.run_coroutine_threadsafe(self._runtime.__aenter__(), own).result()
                except BaseException:
                    self._end(own)
                    raise
                self._own = own
            self._entered += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the runtime, as `AgentRuntime.__aexit__` does."""
        with self._lock:
            self._entered -= 1
            if self._entered == 0 and self._own is not None:
                own, self._own = self._own, None
                try:
                    asyncio.run_coroutine_threadsafe(self._runtime.__aexit__(kind, error, trace), own).result()
                finally:
                    self._end(own)

    def _end(self, own: asyncio.AbstractEventLoop) -> None:
        own.call_soon_threadsafe(own.stop)
        if self._thread is not None:
            self._thread.join()

    def _call(self, ask: Callable[[], Coroutine[object, object, T]]) -> T:
        self._runtime.check_process()
        there = self._own or self._runtime.event_loop
        if there is None:
            raise RuntimeClosed
        if _running_loop() is there:
            raise RuntimeClosed("runtime.sync would block the event loop it runs on: await the runtime's own methods")
        asking = ask()
        try:
            asked = asyncio.run_coroutine_threadsafe(asking, there)
        except RuntimeError:  # the event loop was closed meanwhile
            asking.close()
            raise RuntimeClosed from None
        try:
            while not wait((asked,), timeout=LOOK).done:
                if not there.is_running() and asked.cancel():
                    if there.is_closed():
                        asking.close()
                    break
            return asked.result()
        except CancelledError:  # the runtime's end, not this caller's
            raise RuntimeClosed from None
        except BaseException:
            asked.cancel()  # an interrupted caller is a cancelled one: a write in flight ends well
            raise

    def run(
        self,
        agent: str,
        prompt: str,
        *,
        actor: AiActorContext,
        dedupe_key: str | None = None,
        history: Sequence[Message] = (),
    ) -> Run:
        """Mirror `AgentRuntime.run`."""
        return self._call(lambda: self._runtime.run(agent, prompt, actor=actor, dedupe_key=dedupe_key, history=history))

    def enqueue(
        self,
        agent: str,
        prompt: str,
        *,
        actor: AiActorContext,
        dedupe_key: str | None = None,
        history: Sequence[Message] = (),
    ) -> Run:
        """Mirror `AgentRuntime.enqueue`."""
        return self._call(
            lambda: self._runtime.enqueue(agent, prompt, actor=actor, dedupe_key=dedupe_key, history=history)
        )

    def execute(self, run_id: UUID | str) -> Run:
        """Mirror `AgentRuntime.execute`."""
        return self._call(lambda: self._runtime.execute(run_id))

    def decide(self, run_id: UUID | str, decision: Decision, *, actor: AiActorContext) -> Run:
        """Mirror `AgentRuntime.decide`."""
        return self._call(lambda: self._runtime.decide(run_id, decision, actor=actor))

    def reconcile(self, run_id: UUID | str, verdict: Reconciliation, *, actor: AiActorContext) -> Run:
        """Mirror `AgentRuntime.reconcile`."""
        return self._call(lambda: self._runtime.reconcile(run_id, verdict, actor=actor))

    def cancel(self, run_id: UUID | str, *, actor: AiActorContext) -> Run:
        """Mirror `AgentRuntime.cancel`."""
        return self._call(lambda: self._runtime.cancel(run_id, actor=actor))

    def verify(self, run_id: UUID | str) -> Run:
        """Mirror `AgentRuntime.verify`."""
        return self._call(lambda: self._runtime.verify(run_id))

    def retry(self, run_id: UUID | str) -> Run:
        """Mirror `AgentRuntime.retry`."""
        return self._call(lambda: self._runtime.retry(run_id))

    def get_run(self, run_id: UUID | str) -> Run:
        """Mirror `AgentRuntime.get_run`."""
        return self._call(lambda: self._runtime.get_run(run_id))

    def list_runs(
        self,
        *,
        status: RunStatus | None = None,
        agent: str | None = None,
        after: UUID | str | None = None,
        limit: int = 100,
    ) -> Sequence[Run]:
        """Mirror `AgentRuntime.list_runs`."""
        return self._call(lambda: self._runtime.list_runs(status=status, agent=agent, after=after, limit=limit))

    def list_steps(self, run_id: UUID | str, *, after: int = 0, limit: int = 1_000) -> Sequence[Step]:
        """Mirror `AgentRuntime.list_steps`."""
        return self._call(lambda: self._runtime.list_steps(run_id, after=after, limit=limit))

    def watch(self, run_id: UUID | str, *, after: int = 0, poll: float = 1.0) -> Iterator[Step]:
        """Mirror `AgentRuntime.watch`: this thread waits for each step. Who breaks off leaves nothing behind."""

        async def begin() -> AsyncIterator[Step]:
            return self._runtime.watch(run_id, after=after, poll=poll)

        return self._watch(self._call(begin))

    def _watch(self, watched: AsyncIterator[Step]) -> Iterator[Step]:
        async def step() -> Step | None:
            return await anext(watched, None)

        while (stored := self._call(step)) is not None:
            yield stored

    def writes(
        self,
        *,
        after: str | None = None,
        table: str | None = None,
        since: datetime | None = None,
        limit: int = 1_000,
    ) -> Sequence[WriteFact]:
        """Mirror `AgentRuntime.writes`."""
        return self._call(lambda: self._runtime.writes(after=after, table=table, since=since, limit=limit))

    def writes_of(self, record: RecordReference, *, limit: int = 1_000) -> Sequence[WriteFact]:
        """Mirror `AgentRuntime.writes_of`."""
        return self._call(lambda: self._runtime.writes_of(record, limit=limit))

    def late_reports(self, *, conflicts_only: bool = False, limit: int = 100) -> Sequence[LateReport]:
        """Mirror `AgentRuntime.late_reports`."""
        return self._call(lambda: self._runtime.late_reports(conflicts_only=conflicts_only, limit=limit))

    def recover(self) -> Recovery:
        """Mirror `AgentRuntime.recover`."""
        return self._call(lambda: self._runtime.recover())

    def purge(
        self,
        *,
        older_than: timedelta,
        provenance_older_than: timedelta | None = None,
        progress: Callable[[Purged], None] | None = None,
    ) -> Purged:
        """Mirror `AgentRuntime.purge`; `progress` is called on the event loop's thread."""
        return self._call(
            lambda: self._runtime.purge(
                older_than=older_than, provenance_older_than=provenance_older_than, progress=progress
            )
        )

    def work(self, *, concurrency: int = 50, poll: float = 1.0) -> None:
        """Mirror `AgentRuntime.work`: this thread waits until the runtime is closed, or is interrupted."""
        return self._call(lambda: self._runtime.work(concurrency=concurrency, poll=poll))


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _serve(own: asyncio.AbstractEventLoop, started: threading.Event) -> None:
    asyncio.set_event_loop(own)
    own.call_soon(started.set)
    try:
        own.run_forever()
        own.run_until_complete(asyncio.sleep(0))  # what was asked at the last moment is told that it was too late
        left = asyncio.all_tasks(own)
        for task in left:  # calls that were given up; the second time ends those that wait for a thread
            task.cancel()
            task.cancel()
        if left:
            own.run_until_complete(asyncio.wait(left, timeout=1.0))
    finally:
        own.close()
