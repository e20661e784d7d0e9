"""The one fact that Byline states of a write that landed, and how it is told without hurting the run."""

import asyncio
import functools
import inspect
import logging
import math
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Protocol, TypeAlias, final
from uuid import UUID

from byline.errors import ConfigurationError, InvalidIdentifier
from byline.records import RecordReference, WriteKind
from byline.telemetry import count_listener_failure
from byline.threads import DaemonThreads

LISTENER_TIMEOUT: Final = 5.0
"""Seconds that one dispatch may take, over all its listeners together."""

_MARGIN: Final = 0.5
"""Seconds that a host's dispatcher is given on top, so that a budget of its own runs out first."""

_logger = logging.getLogger(__name__)
_threads = DaemonThreads("byline-listener")


@final
@dataclass(frozen=True, slots=True)
class AfterAiRecordWrittenEvent:
    """An AI wrote this record. It says so, and nothing of what anyone should do about it (DESIGN, P2).

    It is told after the write landed, at least once: again with an equal event when an idempotent write
    ran again (P8). A listener that must act once per record keys on `(correlation_id, record)`. It means
    success; a call that failed or wrote nothing is not told. There is no copy of the record's content in
    it: read the record, under your own permissions, when you need it.

    Attributes:
        correlation_id: the uuid of the run that wrote; who the run acted for stands on the run.
        record: the record that was written.
        kind: whether it was created or updated.

    Raises:
        InvalidIdentifier: the correlation id is no `uuid.UUID` or is the nil one, the record is no
            `RecordReference`, or the kind is no `WriteKind`. Nothing is converted, a string neither.
        TypeError: the class is subclassed.
    """

    correlation_id: UUID
    record: RecordReference
    kind: WriteKind

    def __post_init__(self) -> None:
        if not isinstance(self.correlation_id, UUID):
            raise InvalidIdentifier(f"a correlation id is a uuid.UUID, not {_type_name(self.correlation_id)}")
        if not self.correlation_id.int:
            raise InvalidIdentifier("a correlation id names a run: the nil UUID names none")
        if type(self.record) is not RecordReference:  # a subclass could carry more than the reference
            raise InvalidIdentifier(f"a written record is a RecordReference, not {_type_name(self.record)}")
        if not isinstance(self.kind, WriteKind):
            raise InvalidIdentifier(f"a kind is WriteKind.CREATED or WriteKind.UPDATED, not {_type_name(self.kind)}")

    def __init_subclass__(cls) -> None:
        raise TypeError("AfterAiRecordWrittenEvent is final: it has no room for a fourth fact")


class EventDispatcher(Protocol):
    """Extension point: a host that has an event bus of its own hands events to it here."""

    async def dispatch(self, event: AfterAiRecordWrittenEvent, /) -> None:
        """Tell whoever is to be told. Whatever it raises is logged and goes no further (see `contained`)."""
        ...


Listener: TypeAlias = Callable[[AfterAiRecordWrittenEvent], Awaitable[None] | None]
"""A sync or async function, or a callable object. What it returns is awaited if it can be, and ignored."""


@final
class ListenerDispatcher:
    """Tells each event to listeners, none of which can hurt the run or another listener (DESIGN, P6).

    Listeners are started in the order they are given in, and run at the same time: an async one in a task of
    its own on the dispatching loop (which it must not block), a sync one on a daemon thread; an awaitable
    that a sync one returns is awaited on the loop. Each sees the dispatcher's context variables.

    - One that raises is logged at ERROR, with traceback. That includes its own `CancelledError` and
      `SystemExit`; only `KeyboardInterrupt` goes on to the caller.
    - One that is not done when the budget of the dispatch is used up is given up: logged, an async one
      cancelled, a sync one left to its thread. As long as that call still runs the listener is skipped, which
      is logged and takes no time. After that it is told again.
    - When the dispatching task is cancelled, `dispatch` raises `CancelledError` at once. The listeners that
      it started go on for what is left of the budget: the write they are told of has landed.

    Every log record names the listener, never its repr, and carries `action` (`listener_failed`,
    `listener_late`, `listener_skipped`), `listener`, `correlation_id` and `record` as extra fields. One
    dispatcher may serve event loops in several threads.

    Args:
        listeners: whom to tell.
        timeout: seconds that one dispatch may take, over all listeners together.

    Raises:
        ConfigurationError: a listener is not callable, is a generator function (calling it would do
            nothing), or is given twice; or the timeout is no positive, finite number.
    """

    def __init__(self, listeners: Iterable[Listener], *, timeout: float = LISTENER_TIMEOUT) -> None:
        if not isinstance(listeners, Iterable):
            raise ConfigurationError(f"listeners are an iterable of callables, not {_type_name(listeners)}")
        self._timeout = _checked(timeout)
        self._listeners: list[_Hearer] = []
        known: list[Listener] = []
        for listener in listeners:
            _check_listener(listener)
            if listener in known:
                raise ConfigurationError(f"the listener {_name(listener)} is given twice")
            known.append(listener)
            is_async = _is(listener, inspect.iscoroutinefunction)
            self._listeners.append(_Hearer("listener", listener, on_loop=is_async))

    async def dispatch(self, event: AfterAiRecordWrittenEvent, /) -> None:
        """Tell every listener.

        Raises:
            CancelledError: the task that dispatches was cancelled.
            KeyboardInterrupt: a listener was interrupted.
        """
        await _tell(self._listeners, event, self._timeout)


def contained(dispatcher: EventDispatcher, *, timeout: float = LISTENER_TIMEOUT) -> EventDispatcher:
    """Return a dispatcher that does what this one does, and cannot hurt the run (DESIGN, P6).

    What holds for a listener holds for a host's dispatcher: what it raises, when called or when awaited, is
    logged (`dispatcher_failed`); what takes longer than the timeout and half a second is cancelled, given up
    and logged (`dispatcher_late`), and skipped while it still runs (`dispatcher_skipped`). It is called on
    the event loop, which it must not block. A `ListenerDispatcher` contains itself and is returned as it is.

    Args:
        dispatcher: the dispatcher to contain.
        timeout: seconds that one dispatch may take.

    Raises:
        ConfigurationError: the dispatcher has no `dispatch` to call, or the timeout is no positive, finite
            number.
    """
    _checked(timeout)
    if isinstance(dispatcher, ListenerDispatcher | _Contained):
        return dispatcher
    if not callable(getattr(dispatcher, "dispatch", None)):
        raise ConfigurationError(f"{_type_name(dispatcher)} is no event dispatcher: it has no dispatch()")
    return _Contained(dispatcher, timeout + _MARGIN)


@final
class _Contained:
    def __init__(self, dispatcher: EventDispatcher, timeout: float) -> None:
        self._hearers = [_Hearer("dispatcher", dispatcher.dispatch, on_loop=True)]
        self._timeout = timeout

    async def dispatch(self, event: AfterAiRecordWrittenEvent, /) -> None:
        await _tell(self._hearers, event, self._timeout)


async def _tell(hearers: Sequence["_Hearer"], event: AfterAiRecordWrittenEvent, timeout: float) -> None:  # noqa: ASYNC109 - see below
    """Tell all, and wait until all are done or the budget is used up.

    Not by `asyncio.timeout`: that cancels the task it is used in, which is the run's own.
    """
    calls = [_Call(hearer, event) for hearer in hearers if not hearer.is_skipped(event)]
    if not calls:
        return
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    try:
        await asyncio.wait([call.task for call in calls], timeout=timeout)
    except asyncio.CancelledError:
        loop.call_at(deadline, _give_up_late, calls)
        raise
    if _give_up_late(calls):
        await asyncio.sleep(0)  # one that obeys its cancellation has ended now, and is not skipped next time
    for call in calls:
        if call.task.done() and not call.task.cancelled():
            call.task.result()  # None, or the KeyboardInterrupt that is all a call lets out


def _give_up_late(calls: Iterable["_Call"]) -> bool:
    late = [call for call in calls if not call.task.done()]
    for call in late:
        call.give_up()
    return bool(late)


class _Hearer:
    """Somebody who is told: a listener, or a host's whole dispatcher. Shared by loops in several threads."""

    def __init__(self, role: Literal["listener", "dispatcher"], call: Listener, *, on_loop: bool) -> None:
        self.role = role
        self.call = call
        self.on_loop = on_loop
        self.name = _name(call)
        self._abandoned: list[_Call] = []
        self._lock = threading.Lock()

    def abandon(self, call: "_Call") -> None:
        with self._lock:
            self._abandoned.append(call)

    def is_skipped(self, event: AfterAiRecordWrittenEvent) -> bool:
        """Whether a call that was given up still runs; if so, say in the log that this event passes by."""
        with self._lock:
            self._abandoned = [call for call in self._abandoned if call.still_runs()]
            skipped = bool(self._abandoned)
        if skipped:
            self.log("skipped", "was not told, since a call that was given up still runs", event)
        return skipped

    def log(
        self, outcome: str, clause: str, event: AfterAiRecordWrittenEvent, error: BaseException | None = None
    ) -> None:
        count_listener_failure(self.name, outcome)
        extra = {
            "action": f"{self.role}_{outcome}",
            "listener": self.name,
            "run_id": str(event.correlation_id),
            "correlation_id": str(event.correlation_id),
            "record": str(event.record),
        }
        with suppress(Exception):  # a log handler that raises is no reason to fail a run
            _logger.error(
                "%s %s %s: run %s wrote %s (%s)",
                self.role.capitalize(), self.name, clause, event.correlation_id, event.record, event.kind,
                exc_info=error, extra=extra,
            )  # fmt: skip


class _Call:
    """One event on its way to one hearer, from its construction on.

    As a context manager it contains what the hearer raises, where it is raised: on the loop or on the thread.
    """

    def __init__(self, hearer: _Hearer, event: AfterAiRecordWrittenEvent) -> None:
        self._hearer = hearer
        self._event = event
        self._process = os.getpid()
        self._on_thread = False
        self._given_up = False
        self.task = asyncio.create_task(self._run())
        # A KeyboardInterrupt leaves through the loop as well: asyncio need not report that nobody saw it.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _run(self) -> None:
        with self:
            if self._hearer.on_loop:
                answer: object = self._hearer.call(self._event)
            else:
                self._on_thread = True
                answer = await _threads.submit(self._run_on_thread)
            if inspect.isawaitable(answer):
                await answer

    def _run_on_thread(self) -> object:
        try:
            with self:
                answer = self._hearer.call(self._event)
                if self._given_up and inspect.iscoroutine(answer):
                    answer.close()  # nobody is left to await it, and Python would warn of that
                return answer
        finally:
            self._on_thread = False
        return None

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> bool:
        if error is None or isinstance(error, KeyboardInterrupt):
            return False
        torn_down = self._given_up and isinstance(error, asyncio.CancelledError | GeneratorExit)
        if not torn_down:  # else it was logged as late
            self._hearer.log("failed", "failed", self._event, error)
        return True

    def give_up(self) -> None:
        self._given_up = True
        self._hearer.abandon(self)
        self._hearer.log("late", "did not finish in time and was given up", self._event)
        self.task.cancel()

    def still_runs(self) -> bool:
        """Whether a call that was given up has not ended; it has with its process or its event loop."""
        on_loop = not self.task.done() and not self.task.get_loop().is_closed()
        return self._process == os.getpid() and (self._on_thread or on_loop)


def _check_listener(listener: Listener) -> None:
    if not callable(listener):
        raise ConfigurationError(f"a listener is callable; {_type_name(listener)} is not")
    if _is(listener, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        raise ConfigurationError(f"the listener {_name(listener)} is a generator function, which does nothing")
    try:
        signature = inspect.signature(listener)
    except ValueError:  # of something built in, which tells nothing of its parameters
        return
    try:
        signature.bind(None)
    except TypeError:
        raise ConfigurationError(f"the listener {_name(listener)} takes one argument, the event") from None


def _checked(timeout: object) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise ConfigurationError("a listener timeout is a positive, finite number of seconds")
    return timeout


def _is(listener: Listener, *kinds: Callable[[object], bool]) -> bool:
    """Whether the listener, without its `partial`s, or its type's `__call__` is a function of these kinds."""
    bare = _without_partials(listener)
    return any(kind(function) for kind in kinds for function in (bare, type(bare).__call__))


def _without_partials(listener: object) -> object:
    while isinstance(listener, functools.partial):
        listener = listener.func
    return listener


def _name(listener: object) -> str:
    """Return where the listener was defined. Its repr could print what it holds, and that may be a secret."""
    bare = _without_partials(listener)
    qualname = getattr(bare, "__qualname__", None)
    if isinstance(qualname, str):
        return f"{getattr(bare, '__module__', None) or '?'}.{qualname}"
    return _type_name(bare)


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
