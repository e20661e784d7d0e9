import asyncio
import copy
import dataclasses
import functools
import pickle
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import cast
from uuid import UUID, uuid4

import pytest

from byline.announcing import (
    AfterAiRecordWrittenEvent,
    Listener,
    ListenerDispatcher,
    contained,
)
from byline.errors import ConfigurationError, InvalidIdentifier
from byline.records import RecordReference, WriteKind
from tests.unit.hearing import EVENT, RUN, Ears


@pytest.mark.promise("P2")
def test_the_event_states_three_facts_and_has_room_for_no_more() -> None:
    names = [field.name for field in dataclasses.fields(EVENT)]

    assert names == ["correlation_id", "record", "kind"]
    assert not hasattr(EVENT, "__dict__")
    for name in [*names, "tool"]:
        with pytest.raises((AttributeError, TypeError)):
            setattr(EVENT, name, None)


@pytest.mark.promise("P2")
def test_events_are_equal_by_value() -> None:
    same = AfterAiRecordWrittenEvent(UUID(str(RUN)), RecordReference("pages", "42"), WriteKind("updated"))

    assert {EVENT, same, copy.copy(EVENT), pickle.loads(pickle.dumps(EVENT))} == {EVENT}  # noqa: S301 - our own
    assert dataclasses.replace(EVENT, correlation_id=uuid4()) != EVENT
    assert dataclasses.replace(EVENT, record=RecordReference("pages", 43)) != EVENT
    assert dataclasses.replace(EVENT, kind=WriteKind.CREATED) != EVENT


@pytest.mark.promise("P2")
def test_the_event_is_final() -> None:
    with pytest.raises(TypeError, match="final"):
        type("LabelledEvent", (AfterAiRecordWrittenEvent,), {})


@pytest.mark.promise("P2")
@pytest.mark.parametrize("wrong", [None, "", str(RUN), RUN.bytes, RUN.int, UUID(int=0)], ids=repr)
def test_an_empty_correlation_id_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidIdentifier, match="correlation id"):
        AfterAiRecordWrittenEvent(cast("UUID", wrong), EVENT.record, EVENT.kind)


class RecordWithTitle(RecordReference):
    title = "What the page says"


@pytest.mark.promise("P2")
@pytest.mark.parametrize("wrong", [None, "pages:42", ("pages", 42), RecordWithTitle("pages", 42)], ids=repr)
def test_what_is_no_record_reference_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidIdentifier, match="RecordReference"):
        AfterAiRecordWrittenEvent(RUN, cast("RecordReference", wrong), EVENT.kind)


@pytest.mark.promise("P2", "P3")
@pytest.mark.parametrize("wrong", [None, "created", "UPDATED", "deleted"], ids=repr)
def test_what_is_no_kind_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidIdentifier, match=r"WriteKind\.CREATED or WriteKind\.UPDATED, not builtins\."):
        AfterAiRecordWrittenEvent(RUN, EVENT.record, cast("WriteKind", wrong))


async def test_every_shape_of_listener_is_told_the_event_itself() -> None:
    heard: list[tuple[str, AfterAiRecordWrittenEvent, bool]] = []
    loop_thread = threading.current_thread()

    def note(shape: str, event: AfterAiRecordWrittenEvent) -> None:
        heard.append((shape, event, threading.current_thread() is loop_thread))

    async def note_later(shape: str, event: AfterAiRecordWrittenEvent) -> None:
        await asyncio.sleep(0)
        note(shape, event)

    def function(event: AfterAiRecordWrittenEvent) -> None:
        note("function", event)

    async def async_function(event: AfterAiRecordWrittenEvent) -> None:
        await note_later("async function", event)

    class Object:
        def __call__(self, event: AfterAiRecordWrittenEvent) -> None:
            note("object", event)

        def method(self, event: AfterAiRecordWrittenEvent) -> None:
            note("method", event)

        async def async_method(self, event: AfterAiRecordWrittenEvent) -> None:
            await note_later("async method", event)

    class AsyncObject:
        async def __call__(self, event: AfterAiRecordWrittenEvent, shape: str = "async object") -> None:
            await note_later(shape, event)

    listeners: list[Listener] = [
        function,
        async_function,
        Object(),
        Object().method,
        Object().async_method,
        AsyncObject(),
        functools.partial(note, "partial"),
        functools.partial(note_later, "async partial"),
        functools.partial(AsyncObject(), shape="partial of async object"),
        lambda event: note_later("returns an awaitable", event),
    ]

    await ListenerDispatcher(listeners).dispatch(EVENT)

    assert all(event is EVENT for _, event, _ in heard)
    assert {shape: on_loop for shape, _, on_loop in heard} == {
        "function": False,
        "async function": True,
        "object": False,
        "method": False,
        "async method": True,
        "async object": True,
        "partial": False,
        "async partial": True,
        "partial of async object": True,
        "returns an awaitable": True,
    }
    assert len(heard) == len(listeners)


async def test_a_listener_sees_the_dispatchers_context() -> None:
    who: ContextVar[str] = ContextVar("who", default="nobody")
    seen: list[str] = []

    def sync(event: AfterAiRecordWrittenEvent) -> None:
        seen.append(who.get())
        who.set("sync")

    async def on_loop(event: AfterAiRecordWrittenEvent) -> None:
        seen.append(who.get())
        who.set("on_loop")

    who.set("run")
    await ListenerDispatcher([sync, on_loop]).dispatch(EVENT)

    assert seen == ["run", "run"]
    assert who.get() == "run"


async def test_listeners_start_in_order_and_run_at_the_same_time() -> None:
    started: list[int] = []
    all_started = asyncio.Event()

    async def meet(number: int, event: AfterAiRecordWrittenEvent) -> None:
        started.append(number)
        if len(started) == 4:
            all_started.set()
        await all_started.wait()

    barrier = threading.Barrier(3)

    def meet_on_thread(number: int, event: AfterAiRecordWrittenEvent) -> None:
        barrier.wait()

    listeners: list[Listener] = [functools.partial(meet, number) for number in range(4)]
    listeners += [functools.partial(meet_on_thread, number) for number in range(3)]
    await ListenerDispatcher(listeners, timeout=60).dispatch(EVENT)

    assert started == [0, 1, 2, 3]


async def test_without_listeners_nothing_is_created() -> None:
    before = asyncio.all_tasks(), threading.active_count()

    await ListenerDispatcher([]).dispatch(EVENT)

    assert (asyncio.all_tasks(), threading.active_count()) == before


def generator(event: AfterAiRecordWrittenEvent) -> Iterator[None]:
    yield


class GeneratorObject:
    def __call__(self, event: AfterAiRecordWrittenEvent) -> Iterator[None]:
        yield


@pytest.mark.parametrize(
    "listeners, message",
    [
        ([Ears(), "a label"], "builtins.str is not"),
        ("label", "builtins.str is not"),
        ([None], "builtins.NoneType is not"),
        (Ears(), "iterable of callables, not .*Ears"),
        ([generator], "generator function"),
        ([functools.partial(generator)], "generator function"),
        ([GeneratorObject()], "GeneratorObject is a generator function"),
        ([EVENT.record.parse, EVENT.record.parse], r"RecordReference\.parse is given twice"),
    ],
)
def test_a_wrong_listener_is_found_at_construction(listeners: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ListenerDispatcher(cast("list[Listener]", listeners))


@pytest.mark.parametrize("wrong", [0, -1, True, float("inf"), float("nan"), "5", None], ids=repr)
def test_a_wrong_timeout_is_found_at_construction(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="positive, finite number of seconds"):
        ListenerDispatcher([], timeout=cast("float", wrong))
    with pytest.raises(ConfigurationError, match="positive, finite number of seconds"):
        contained(ListenerDispatcher([]), timeout=cast("float", wrong))
