from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import JsonValue

from byline.errors import ConfigurationError
from byline.models import OfferedTool
from byline.tools import (
    Tool,
    Toolbox,
    ToolContext,
    ToolEffect,
    ToolResult,
    ToolSpec,
    Verification,
)
from tests.unit.annotating import make


@dataclass
class Handmade:
    """A tool that no decorator made."""

    spec: Any = field(default_factory=lambda: spec_of())
    verifies: bool = False

    def validate(self, arguments: str) -> dict[str, JsonValue]:
        return {"text": arguments}

    async def execute(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> ToolResult:
        return ToolResult.text("")

    async def make_preview(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> Sequence[str]:
        return ()

    async def check_landed(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> Verification:
        return None


def spec_of(name: str = "handmade", parameters: object = None) -> ToolSpec:
    schema: Any = {"type": "object", "properties": {}} if parameters is None else parameters
    return ToolSpec(name, "By hand.", schema, ToolEffect.READ_ONLY)


def test_a_toolbox_holds_its_tools_in_their_order() -> None:
    handmade, annotate = Handmade(), make()
    tools: list[Tool] = [handmade, annotate]
    toolbox = Toolbox(iter(tools))
    assert list(toolbox) == tools
    assert len(toolbox) == 2
    assert toolbox.get("annotate") is annotate
    assert toolbox.get("missing") is None
    assert "handmade" in toolbox
    assert "missing" not in toolbox
    assert toolbox.offered() == (
        OfferedTool("handmade", "By hand.", {"type": "object", "properties": {}}),
        OfferedTool("annotate", "Annotate one page.", annotate.spec.parameters),
    )


def test_an_empty_toolbox_is_fine() -> None:
    assert len(Toolbox([])) == 0
    assert Toolbox([]).offered() == ()


@pytest.mark.promise("P11")
@pytest.mark.parametrize("effect", [{}, {"effect": None}, {"effect": ToolEffect.READ_ONLY}])
def test_a_tool_without_a_declared_effect_is_not_registered(effect: dict[str, Any]) -> None:
    spec = SimpleNamespace(name="loose", description="", parameters={"type": "object"}, **effect)
    with pytest.raises(ConfigurationError, match="'loose' declares no ToolSpec, and so no effect"):
        Toolbox([Handmade(spec)])


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two tools are named 'annotate'"):
        Toolbox([make(), Handmade(spec_of("annotate"))])


@pytest.mark.parametrize("missing", ["spec", "verifies", "validate", "execute", "make_preview", "check_landed"])
def test_what_lacks_a_part_of_a_tool_is_refused(missing: str) -> None:
    whole = Handmade()
    names = ("spec", "verifies", "validate", "execute", "make_preview", "check_landed")
    partial = SimpleNamespace(**{name: getattr(whole, name) for name in names if name != missing})
    with pytest.raises(ConfigurationError, match=rf"SimpleNamespace is no tool \(it has no {missing}\)"):
        Toolbox([cast("Any", partial)])


def test_a_plain_function_is_refused_by_its_name() -> None:
    def read_page(context: ToolContext) -> ToolResult:
        raise NotImplementedError

    with pytest.raises(ConfigurationError, match=r"read_page is no tool .* with @tool\(effect=…\)"):
        Toolbox([cast("Any", read_page)])


@pytest.mark.parametrize(
    "parameters, fault",
    [
        ({}, "no JSON schema of an object"),
        ({"type": "array"}, "no JSON schema of an object"),
        ([], "no JSON schema of an object"),
        ({"type": "object", "properties": []}, "no JSON schema"),
        ({"type": "object", "properties": {"a": {"type": "integr"}}}, "no JSON schema"),
        ({"type": "object", "required": "a"}, "no JSON schema"),
        ({"type": "object", "default": object()}, r"parameters\.default: a object"),
    ],
)
def test_parameters_that_are_no_schema_of_an_object_are_refused(parameters: object, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'handmade': .*{fault}"):
        Toolbox([Handmade(spec_of(parameters=parameters))])
