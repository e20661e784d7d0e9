"""`@tool`: a tool made of a function."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Concatenate, Generic, Never, ParamSpec, TypeVar, cast, overload

from pydantic import JsonValue

from byline.errors import ConfigurationError, InvalidArguments, ToolContractBroken, ToolError
from byline.hosted import bounded_text
from byline.threads import DaemonThreads
from byline.tools.context import ToolContext
from byline.tools.effect import ToolEffect
from byline.tools.protocol import Landed, NotLanded, ToolSpec, Verification
from byline.tools.result import ToolResult
from byline.tools.schema import ArgumentSchema, argument_schema

DEFAULT_TIMEOUT = 60.0
"""Seconds that one attempt may take when a tool does not say."""
MAX_PREVIEW_ITEMS = 200
"""Most items of one call's preview."""
MAX_PREVIEW_ITEM_BYTES = 20_000
"""Longest item of a preview, in bytes of UTF-8."""

P = ParamSpec("P")
ReturnT = TypeVar("ReturnT", bound="ToolResult | Awaitable[ToolResult]")
PreviewT = TypeVar("PreviewT", bound="list[str] | Awaitable[list[str]]")
VerifyT = TypeVar("VerifyT", bound="Verification | Awaitable[Verification]")

_THREADS = DaemonThreads("byline-tool")


class FunctionTool(Generic[P, ReturnT]):
    """A tool made of a function; `@tool` makes it. It implements `Tool`."""

    __slots__ = ("_function", "_not_written", "_preview", "_schema", "_spec", "_verify")

    def __init__(
        self,
        function: Callable[Concatenate[ToolContext, P], ReturnT],
        spec: ToolSpec,
        schema: ArgumentSchema,
        not_written: tuple[type[Exception], ...],
    ) -> None:
        self._function = function
        self._spec = spec
        self._schema = schema
        self._not_written = not_written
        self._preview: Callable[..., object] | None = None
        self._verify: Callable[..., object] | None = None

    def __repr__(self) -> str:
        return f"<tool {self._spec.name!r}, {self._spec.effect}>"

    @property
    def function(self) -> Callable[Concatenate[ToolContext, P], ReturnT]:
        """The function itself, for its own tests: called so, it passes no gate and nothing is announced."""
        return self._function

    @property
    def spec(self) -> ToolSpec:
        """What the tool declares."""
        return self._spec

    def preview(
        self, function: Callable[Concatenate[ToolContext, P], PreviewT], /
    ) -> Callable[Concatenate[ToolContext, P], PreviewT]:
        """Register how the tool shows an approver what a call would do, as a decorator.

        The function, sync or async, takes the parameters of the tool, writes nothing, and returns a list of
        texts.

        Raises:
            ConfigurationError: the tool has a preview already, or the parameters differ.
        """
        if self._preview is not None:
            raise ConfigurationError(f"tool {self._spec.name!r} has a preview already")
        self._check_same_parameters(function)
        self._preview = function
        return function

    def verify(
        self, function: Callable[Concatenate[ToolContext, P], VerifyT], /
    ) -> Callable[Concatenate[ToolContext, P], VerifyT]:
        """Register how the tool looks whether a call landed, as a decorator.

        The function, sync or async, takes the parameters of the tool, writes nothing, and returns
        `Landed(record, kind)`, `NotLanded()`, or None if it cannot tell.

        Raises:
            ConfigurationError: the tool has a verify already, or the parameters differ.
        """
        if self._verify is not None:
            raise ConfigurationError(f"tool {self._spec.name!r} has a verify already")
        self._check_same_parameters(function)
        self._verify = function
        return function

    @property
    def verifies(self) -> bool:
        """Whether a verify is registered."""
        return self._verify is not None

    def validate(self, arguments: str) -> dict[str, JsonValue]:
        """Read a model's JSON text and return the one normalised object that is shown, digested and executed.

        Raises:
            InvalidArguments: the text is no JSON object or does not fit. An empty text is no object.
        """
        return self._schema.normalise(arguments)

    async def execute(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> ToolResult:
        """Run the call. A sync function runs on a thread, and this does not return before it has ended.

        Raises:
            ToolError: nothing was written; it says so, or the arguments do not fit and it was not called.
            ToolContractBroken: the function returned no ToolResult.
        """
        try:
            values = self._schema.values(arguments)
        except InvalidArguments as error:
            raise ToolError(f"not executed: {error}") from error
        try:
            result = await self._called(context, values)
        except self._not_written as error:
            # The type only: what such an error says may hold content.
            raise ToolError(f"{type(error).__name__}: nothing was written") from error
        if not isinstance(result, ToolResult):
            raise self._broken("returned", result, "a ToolResult")
        return result

    async def make_preview(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> list[str]:
        """Say, for the approver, what the call would do: at most 200 texts of at most 20,000 bytes each.

        Returns:
            No text if the tool has no preview.

        Raises:
            InvalidArguments: the arguments do not fit.
            ToolContractBroken: the preview returned anything but a list of texts.
        """
        if self._preview is None:
            return []
        shown = await _looked(self._preview, context, self._schema.values(arguments))
        if not isinstance(shown, list):
            raise self._broken("previewed", shown, "a list of str")
        items = cast("list[object]", shown)
        texts: list[str] = []
        for item in items[:MAX_PREVIEW_ITEMS]:
            if not isinstance(item, str):
                raise self._broken("previewed a list with", item, "a list of str")
            texts.append(bounded_text(item, MAX_PREVIEW_ITEM_BYTES))
        if len(items) > MAX_PREVIEW_ITEMS:
            texts[-1] = f"[{len(items) - MAX_PREVIEW_ITEMS + 1} more items left out by Byline]"
        return texts

    async def check_landed(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> Verification:
        """Look, without writing, whether this call landed; None if there is no verify or it cannot tell.

        Raises:
            InvalidArguments: the arguments do not fit.
            ToolContractBroken: the verify returned anything but Landed, NotLanded or None.
        """
        if self._verify is None:
            return None
        found = await _looked(self._verify, context, self._schema.values(arguments))
        if found is not None and not isinstance(found, Landed | NotLanded):
            raise self._broken("verified", found, "Landed, NotLanded or None")
        return found

    async def _called(self, context: ToolContext, values: Mapping[str, object]) -> object:
        function = cast("Callable[..., object]", self._function)
        if inspect.iscoroutinefunction(function):
            return await function(context, **values)
        thread = _THREADS.submit(partial(function, context, **values))
        while not thread.done():
            try:
                await asyncio.wait([thread])
            except asyncio.CancelledError:
                # A thread cannot be stopped, and "this task is done" must mean that nothing of the call still
                # runs: else a second attempt would write beside the first (P10). So it ends with the thread,
                # and as that did: the truth beats the cancellation, of which `Task.cancelling()` still tells.
                # A second cancellation is the event loop's own end, which no thread may hold up.
                if (task := asyncio.current_task()) is not None and task.cancelling() > 1:
                    raise
        return thread.result()

    def _check_same_parameters(self, function: Callable[..., object]) -> None:
        names = tuple(inspect.signature(function).parameters)[1:]
        if names != self._schema.names:
            raise ConfigurationError(
                f"tool {self._spec.name!r}: its preview and verify take its own parameters, "
                f"{', '.join(('context', *self._schema.names))}"
            )

    def _broken(self, did: str, what: object, expected: str) -> ToolContractBroken:
        return ToolContractBroken(f"tool {self._spec.name!r} {did} a {type(what).__name__}, not {expected}")


async def _looked(function: Callable[..., object], context: ToolContext, values: Mapping[str, object]) -> object:
    """Call a preview or verify. It writes nothing, so that nobody waits for the thread of a cancelled one."""
    if inspect.iscoroutinefunction(function):
        return await function(context, **values)
    return await _THREADS.submit(partial(function, context, **values))


@overload
def tool(
    *,
    effect: ToolEffect,
    timeout: float | None = DEFAULT_TIMEOUT,
    not_written: tuple[type[Exception], ...] = (),
    name: str | None = None,
    description: str | None = None,
    approval: bool = False,
) -> Callable[[Callable[Concatenate[ToolContext, P], ReturnT]], FunctionTool[P, ReturnT]]: ...


@overload
def tool(function: Never, /) -> Never: ...


def tool(
    *bare: object,
    effect: ToolEffect | None = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    not_written: tuple[type[Exception], ...] = (),
    name: str | None = None,
    description: str | None = None,
    approval: bool = False,
) -> object:
    """Make a tool of a function, sync or async, whose first parameter is the context, a `ToolContext`.

    The tool has two decorators of its own: `@that_tool.preview` registers what an approver is shown, and
    `@that_tool.verify` how the host looks whether a call landed; both take the tool's parameters.

    Its other parameters, their annotations and the docstring's `Args:` section give the schema that the model
    sees and that its arguments must fit. What they are normalised to is what an approver reads and what runs.
    A sync function runs on a thread of its own.

    Args:
        *bare: nothing. `@tool` without options declares no effect and is refused.
        effect: what running the tool does to the world. A write waits for a person's approval.
        timeout: seconds that one attempt may take, or None for no limit. A write whose time is up may have
            landed: its outcome is unknown.
        not_written: exceptions by which the function says that it wrote nothing, as `ToolError` does.
        name: what the model calls it; the function's name by default. 1 to 64 letters, digits, `_` or `-`.
        description: what the model reads about it; by default the docstring without its sections on
            arguments, result and errors.
        approval: whether the tool wants a person's approval although it writes nothing.

    Raises:
        ConfigurationError: no effect is declared, or an option, a parameter, its annotation or its default
            cannot work. The message names it.
    """
    if bare or not isinstance(effect, ToolEffect):
        raise ConfigurationError(
            "a tool declares what it does to the world: @tool(effect=ToolEffect.READ_ONLY), "
            "ToolEffect.IDEMPOTENT_WRITE or ToolEffect.NON_IDEMPOTENT_WRITE"
        )
    _check_not_written(not_written)

    def decorate(function: Callable[Concatenate[ToolContext, P], ReturnT], /) -> FunctionTool[P, ReturnT]:
        if not inspect.isfunction(function) and not inspect.ismethod(function):
            raise ConfigurationError(f"a tool is made of a function, not of a {type(function).__name__}")
        known_as = function.__name__ if name is None else name
        frame = inspect.currentframe()
        beside = frame.f_back.f_locals if frame and frame.f_back else {}  # where annotations find local names
        schema = argument_schema(known_as, function, beside)
        said = schema.description if description is None else description
        spec = ToolSpec(known_as, said, schema.parameters, effect, timeout, approval)
        return FunctionTool(function, spec, schema, not_written)

    return decorate


def _check_not_written(types: object) -> None:
    if not isinstance(types, tuple):
        raise ConfigurationError("not_written is a tuple of exception types, such as (IntegrityError,)")
    for kind in cast("tuple[object, ...]", types):
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            raise ConfigurationError("not_written holds types of Exception only")
        # A type that a time-out or a broken contract belongs to says nothing of whether the write landed.
        if issubclass(TimeoutError, kind) or issubclass(ToolContractBroken, kind):
            raise ConfigurationError(
                f"not_written holds {kind.__name__}, which leaves open whether the tool wrote: name narrower types"
            )
