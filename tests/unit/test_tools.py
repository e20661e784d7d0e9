import asyncio
import contextvars
import math
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import JsonValue

from byline.errors import ConfigurationError, ToolContractBroken, ToolError
from byline.records import WriteKind
from byline.tools import (
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    ToolSpec,
    WriteTarget,
    tool,
)
from byline.tools.function import DEFAULT_TIMEOUT
from tests.unit.annotating import ARGUMENTS, CONTEXT, PAGE, SECRET, make, reading, writing


class IntegrityError(Exception):
    pass


class LockTimeout(TimeoutError):
    pass


# ------------------------------------------------------------------------------------------ declaring


def test_a_tool_declares_what_it_is() -> None:
    annotate: Tool = make()
    assert annotate.spec == ToolSpec(
        "annotate",
        "Annotate one page.",
        annotate.spec.parameters,
        ToolEffect.IDEMPOTENT_WRITE,
        timeout=DEFAULT_TIMEOUT,
        asks_approval=False,
    )
    assert repr(annotate) == "<tool 'annotate', idempotent_write>"


def test_a_tool_may_say_it_otherwise() -> None:
    @tool(effect=ToolEffect.READ_ONLY, timeout=None, name="read-page", description="Look.", approval=True)
    def read(context: ToolContext) -> ToolResult:
        """Read."""
        return ToolResult.text("")

    assert read.spec == ToolSpec(
        "read-page", "Look.", read.spec.parameters, ToolEffect.READ_ONLY, timeout=None, asks_approval=True
    )


async def test_the_function_is_there_for_its_own_tests() -> None:
    @writing
    async def later(context: ToolContext, page_id: int) -> ToolResult:
        return ToolResult.text(f"later {page_id}")

    @writing
    def now(context: ToolContext, page_id: int) -> ToolResult:
        return ToolResult.text(f"now {page_id}")

    assert (await later.function(CONTEXT, page_id=1)).for_model == "later 1"
    assert now.function(CONTEXT, 2).for_model == "now 2"


@pytest.mark.promise("P11")
@pytest.mark.parametrize("options", [{}, {"timeout": 3}, {"effect": None}, {"effect": "read_only"}])
def test_a_tool_without_an_effect_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"@tool\(effect=ToolEffect.READ_ONLY\)"):
        cast("Any", tool)(**options)


@pytest.mark.promise("P11")
def test_a_bare_tool_is_refused() -> None:
    def read(context: ToolContext) -> ToolResult:
        raise NotImplementedError

    with pytest.raises(ConfigurationError, match=r"@tool\(effect=ToolEffect.READ_ONLY\)"):
        cast("Any", tool)(read)
    with pytest.raises(ConfigurationError, match=r"@tool\(effect=ToolEffect.READ_ONLY\)"):
        cast("Any", tool)(read, effect=ToolEffect.READ_ONLY)


@pytest.mark.promise("P11")
@pytest.mark.parametrize("effect", [None, "read_only", True])
def test_a_spec_without_an_effect_is_refused(effect: object) -> None:
    with pytest.raises(ConfigurationError, match="'read' declares no effect"):
        ToolSpec("read", "", {}, effect)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.report(2)
@pytest.mark.parametrize(
    "options, fault",
    [
        ({"timeout": 0}, "a positive number of seconds"),
        ({"timeout": -1.5}, "a positive number of seconds"),
        ({"timeout": math.inf}, "a positive number of seconds"),
        ({"timeout": math.nan}, "a positive number of seconds"),
        ({"timeout": True}, "a positive number of seconds"),
        ({"timeout": "30"}, "a positive number of seconds"),
        ({"name": ""}, "1 to 64 letters"),
        ({"name": "a" * 65}, "1 to 64 letters"),
        ({"name": "a b"}, "1 to 64 letters"),
        ({"name": "naïve"}, "1 to 64 letters"),
        ({"name": "read\n"}, "1 to 64 letters"),
        ({"name": 7}, "1 to 64 letters"),
        ({"approval": "yes"}, "True or False"),
        ({"not_written": IntegrityError}, "a tuple of exception types"),
        ({"not_written": [IntegrityError]}, "a tuple of exception types"),
        ({"not_written": (IntegrityError("x"),)}, "types of Exception only"),
        ({"not_written": (KeyboardInterrupt,)}, "types of Exception only"),
        ({"not_written": (asyncio.CancelledError,)}, "types of Exception only"),
        ({"not_written": (BaseException,)}, "types of Exception only"),
        ({"not_written": (Exception,)}, "Exception, which leaves open"),
        ({"not_written": (IntegrityError, TimeoutError)}, "TimeoutError, which leaves open"),
        ({"not_written": (OSError,)}, "OSError, which leaves open"),
        ({"not_written": (ToolContractBroken,)}, "ToolContractBroken, which leaves open"),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], fault: str) -> None:
    def read(context: ToolContext) -> ToolResult:
        raise NotImplementedError

    with pytest.raises(ConfigurationError, match=fault):
        tool(effect=ToolEffect.READ_ONLY, **options)(read)


def test_what_is_no_function_makes_no_tool() -> None:
    with pytest.raises(ConfigurationError, match="not of a SimpleNamespace"):
        reading(cast("Any", SimpleNamespace()))


async def test_a_method_of_an_object_makes_a_tool() -> None:
    class Site:
        name = "site"

        def read(self, context: ToolContext, page_id: int) -> ToolResult:
            return ToolResult.text(f"{self.name} {page_id}")

    read = reading(Site().read)
    assert read.validate('{"page_id": 1}') == {"page_id": 1}
    assert (await read.execute(CONTEXT, {"page_id": 1})).for_model == "site 1"


# ------------------------------------------------------------------------------------------ executing


@pytest.mark.promise("P10")
async def test_a_call_runs_with_its_values() -> None:
    result = await make().execute(CONTEXT, ARGUMENTS)
    assert result.for_model == "7 wrote new"
    assert result.target == WriteTarget(PAGE, WriteKind.UPDATED)


async def test_a_sync_function_runs_on_a_daemon_thread_in_the_caller_s_context() -> None:
    variable = contextvars.ContextVar[str]("variable")
    variable.set("seen")

    @reading
    def read(context: ToolContext) -> ToolResult:
        thread = threading.current_thread()
        assert thread.daemon
        return ToolResult.text(f"{variable.get()} {thread.name}")

    assert (await read.execute(CONTEXT, {})).for_model.startswith("seen byline-tool")


@pytest.mark.promise("P12")
@pytest.mark.parametrize("arguments", [{}, {"page_id": "42", "note": ""}, {"page_id": 42, "note": "", "more": 1}])
async def test_only_normalised_arguments_are_executed(arguments: Mapping[str, JsonValue]) -> None:
    runs: list[int] = []

    @writing
    async def write(context: ToolContext, page_id: int, note: str) -> ToolResult:
        runs.append(page_id)
        return ToolResult.text("")

    with pytest.raises(ToolError, match="not executed"):
        await write.execute(CONTEXT, arguments)
    assert runs == []


def failing(error: BaseException, *, threaded: bool) -> Tool:
    if threaded:

        @tool(effect=ToolEffect.IDEMPOTENT_WRITE, not_written=(IntegrityError, LockTimeout))
        def write(context: ToolContext) -> ToolResult:
            raise error

        return write

    @tool(effect=ToolEffect.IDEMPOTENT_WRITE, not_written=(IntegrityError, LockTimeout))
    async def awrite(context: ToolContext) -> ToolResult:
        raise error

    return awrite


@pytest.mark.promise("P10")
@pytest.mark.report(33)
@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("error", [IntegrityError(SECRET), LockTimeout(SECRET)])
async def test_an_error_that_says_not_written_is_a_tool_error(error: Exception, threaded: bool) -> None:
    with pytest.raises(ToolError) as caught:
        await failing(error, threaded=threaded).execute(CONTEXT, {})
    assert str(caught.value) == f"{type(error).__name__}: nothing was written"
    assert caught.value.__cause__ is error


@pytest.mark.promise("P10")
@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("error", [ValueError("x"), TimeoutError(), ToolError("no"), StopAsyncIteration()])
async def test_any_other_error_comes_through(error: Exception, threaded: bool) -> None:
    with pytest.raises(type(error)) as caught:
        await failing(error, threaded=threaded).execute(CONTEXT, {})
    assert caught.value is error


@pytest.mark.promise("P10")
@pytest.mark.parametrize("returned", [None, SECRET, {"text": SECRET}, ToolResult])
async def test_a_tool_that_returns_no_result_broke_its_contract(returned: object) -> None:
    def write(context: ToolContext) -> ToolResult:
        return cast("ToolResult", returned)

    with pytest.raises(ToolContractBroken) as caught:
        await writing(write).execute(CONTEXT, {})
    assert str(caught.value) == f"tool 'write' returned a {type(returned).__name__}, not a ToolResult"


class Held:
    """A sync tool that runs until it is let go, and says whether it still does."""

    def __init__(self, outcome: ToolResult | Exception) -> None:
        self.outcome = outcome
        self.ended = threading.Event()
        self.begun = threading.Event()
        self.go = threading.Event()

    def write(self, context: ToolContext) -> ToolResult:
        self.begun.set()
        assert self.go.wait(20)
        self.ended.set()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    async def begin(self, made: Callable[..., Tool]) -> asyncio.Task[ToolResult]:
        task = asyncio.create_task(made(self.write).execute(CONTEXT, {}))
        assert await asyncio.to_thread(self.begun.wait, 20)
        return task


@pytest.mark.promise("P10", "P22")
@pytest.mark.report(28)
async def test_a_cancelled_call_ends_with_its_thread_and_as_that_did() -> None:
    written = ToolResult.text("done").with_write_target(PAGE, WriteKind.UPDATED)
    held = Held(written)
    task = await held.begin(writing)
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    held.go.set()
    assert await task is written
    assert held.ended.is_set()
    assert task.cancelling() == 1


async def test_a_second_cancellation_is_the_end_of_the_event_loop_and_waits_for_no_thread() -> None:
    held = Held(ToolResult.text("late"))
    task = await held.begin(writing)
    task.cancel()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not held.ended.is_set()
    held.go.set()


@pytest.mark.promise("P10")
async def test_a_cancelled_call_whose_thread_raised_raises_that() -> None:
    held = Held(IntegrityError(SECRET))
    task = await held.begin(tool(effect=ToolEffect.IDEMPOTENT_WRITE, not_written=(IntegrityError,)))
    task.cancel()
    held.go.set()
    with pytest.raises(ToolError, match="IntegrityError: nothing was written"):
        await task


@pytest.mark.report(30)
async def test_a_cancelled_async_call_is_cancelled() -> None:
    begun = asyncio.Event()

    @writing
    async def write(context: ToolContext) -> ToolResult:
        begun.set()
        await asyncio.sleep(60)
        return ToolResult.text("never")

    task = asyncio.create_task(write.execute(CONTEXT, {}))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
