import enum
from collections.abc import Callable
from typing import Annotated

import pytest
from pydantic import (
    Field,
    SecretStr,
)

from byline.errors import ConfigurationError, InvalidArguments
from byline.tools import FunctionTool, ToolContext, ToolResult
from byline.tools.schema import split_docstring
from tests.unit.annotating import SECRET, reading

HIDDEN = SecretStr(SECRET)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def test_the_schema_says_what_fits() -> None:
    @reading
    def describe(
        context: ToolContext,
        page_id: int,
        text: Annotated[str, Field(max_length=300)],
        own: Annotated[str, Field(description="mine")],
        colour: Colour = Colour.RED,
    ) -> ToolResult:
        """Set the description of one page.

        It is what a search engine shows.

        Args:
            context: the call.
            page_id (int): The page to change,
                whichever it is: 1 or more.
            text: The new description.
            own: yours
            colour:

        Returns:
            Nothing of note.

        Example:
            describe(42)

        Raises:
            ToolError: never.
        """
        return ToolResult.text("")

    assert describe.spec.description == (
        "Set the description of one page.\n\nIt is what a search engine shows.\n\nExample:\n    describe(42)"
    )
    parameters = describe.spec.parameters
    assert parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["page_id", "text", "own"],
        "properties": {
            "page_id": {"type": "integer", "description": "The page to change, whichever it is: 1 or more."},
            "text": {"type": "string", "maxLength": 300, "description": "The new description."},
            "own": {"type": "string", "description": "mine"},
            "colour": {"$ref": "#/$defs/Colour", "default": "red", "description": ""},
        },
        "$defs": {"Colour": {"type": "string", "enum": ["red", "blue"], "title": "Colour"}},
    }


def test_a_tool_without_docstring_and_arguments_has_an_empty_schema() -> None:
    @reading
    def nothing(context: ToolContext) -> ToolResult:
        return ToolResult.text("")

    assert nothing.spec.description == ""
    assert nothing.spec.parameters == {"type": "object", "additionalProperties": False, "properties": {}}
    assert nothing.validate(" {} ") == {}
    with pytest.raises(InvalidArguments):
        nothing.validate("")


@pytest.mark.parametrize(
    "docstring, description, documented",
    [
        ("", "", {}),
        ("One line.", "One line.", {}),
        ("\n    Args:\n      a: x\n    ", "", {"a": "x"}),
        (
            "A.\n\nArguments:\n    a (dict[str, int], optional): x\n\n    b: y\n      z\nB.",
            "A.\n\nB.",
            {"a": "x", "b": "y z"},
        ),
        ("A.\n\nArgs:\n    no entry\n\nReturns:\n    b: no argument", "A.", {}),
        ("A.\n\nSee:\n    Args:\n", "A.\n\nSee:\n    Args:", {}),
    ],
)
def test_docstrings_are_split(docstring: str, description: str, documented: dict[str, str]) -> None:
    assert split_docstring(docstring) == (description, documented)


def no_parameters() -> ToolResult:
    raise NotImplementedError


def not_first(page_id: int, context: ToolContext) -> ToolResult:
    raise NotImplementedError


def wrong_context(context: str) -> ToolResult:
    raise NotImplementedError


def keyword_context(*, context: ToolContext) -> ToolResult:
    raise NotImplementedError


def positional(context: ToolContext, value: int, /) -> ToolResult:
    raise NotImplementedError


def star(context: ToolContext, *value: int) -> ToolResult:
    raise NotImplementedError


def stars(context: ToolContext, **value: int) -> ToolResult:
    raise NotImplementedError


def bare(context: ToolContext, value: int) -> ToolResult:
    raise NotImplementedError


del bare.__annotations__["value"]


def unknown(context: ToolContext, value: int) -> ToolResult:
    raise NotImplementedError


unknown.__annotations__["value"] = "Missing"


def called(context: ToolContext, value: Callable[[], int]) -> ToolResult:
    raise NotImplementedError


def opaque(context: ToolContext, value: FunctionTool[[], ToolResult]) -> ToolResult:
    raise NotImplementedError


def constrained(context: ToolContext, value: Annotated[str, Field(pattern="(")]) -> ToolResult:
    raise NotImplementedError


def bag(context: ToolContext, value: list[set[str]]) -> ToolResult:
    raise NotImplementedError


def frozen_bag(context: ToolContext, value: frozenset[int] | None = None) -> ToolResult:
    raise NotImplementedError


def wrong_default(context: ToolContext, value: int | None = None) -> ToolResult:
    raise NotImplementedError


wrong_default.__annotations__["value"] = int


def lost_default(context: ToolContext, value: SecretStr = HIDDEN) -> ToolResult:
    raise NotImplementedError


def no_result(context: ToolContext, value: int) -> str:
    raise NotImplementedError


@pytest.mark.parametrize(
    "function, fault",
    [
        (no_parameters, "first parameter is `context: ToolContext`"),
        (not_first, "first parameter is `context: ToolContext`"),
        (wrong_context, "first parameter is `context: ToolContext`"),
        (keyword_context, "first parameter is `context: ToolContext`"),
        (positional, "parameter 'value' is positional-only"),
        (star, "parameter 'value' is variadic positional"),
        (stars, "parameter 'value' is variadic keyword"),
        (bare, "parameter 'value' has no annotation"),
        (unknown, "name 'Missing' is not defined"),
        (called, "parameter 'value' cannot come from JSON"),
        (opaque, "parameter 'value' cannot come from JSON"),
        (constrained, "parameter 'value' cannot come from JSON"),
        (bag, "parameter 'value' holds a set"),
        (frozen_bag, "parameter 'value' holds a set"),
        (wrong_default, "parameter 'value' has a default that it would refuse"),
        (lost_default, "parameter 'value' has a default that it would refuse"),
        (no_result, "it returns a ToolResult"),
    ],
)
def test_a_function_that_makes_no_tool_is_refused(function: Callable[..., ToolResult], fault: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        reading(function)
    assert fault in str(caught.value)
    assert function.__name__ in str(caught.value)
    assert SECRET not in str(caught.value)


def test_the_context_may_have_another_name_or_no_annotation() -> None:
    @reading
    def named(ctx: ToolContext, context: int) -> ToolResult:
        return ToolResult.text(str(context))

    def context_only(context: ToolContext, value: int) -> ToolResult:
        raise NotImplementedError

    context_only.__annotations__.clear()
    context_only.__annotations__["value"] = int
    assert named.validate('{"context": 1}') == {"context": 1}
    assert reading(context_only).validate('{"value": 1}') == {"value": 1}
