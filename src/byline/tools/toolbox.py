"""The tools of one agent."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, cast

from pydantic import JsonValue

from byline.errors import ConfigurationError
from byline.models.messages import OfferedTool
from byline.tools.json_values import NotPlainJson, plain_json
from byline.tools.protocol import Tool, ToolSpec

_METHODS: Final = ("validate", "execute", "make_preview", "check_landed")


class Toolbox:
    """The tools of one agent, in their order. Checked when it is made, and never changed.

    Args:
        tools: the tools; none is fine.

    Raises:
        ConfigurationError: something is no tool or declares no effect; two have one name; or parameters are
            no JSON schema of an object. The message names the tool.
    """

    __slots__ = ("_offered", "_tools")

    def __init__(self, tools: Iterable[Tool]) -> None:
        found: dict[str, Tool] = {}
        offered: list[OfferedTool] = []
        for tool in tools:
            spec = _checked_spec(tool)
            if spec.name in found:
                raise ConfigurationError(f"two tools are named {spec.name!r}")
            found[spec.name] = tool
            offered.append(OfferedTool(spec.name, spec.description, spec.parameters))
        self._tools: Final[Mapping[str, Tool]] = MappingProxyType(found)
        self._offered: Final = tuple(offered)

    def get(self, name: str) -> Tool | None:
        """Find a tool by its name."""
        return self._tools.get(name)

    def offered(self) -> tuple[OfferedTool, ...]:
        """Return the tools as a model sees them."""
        return self._offered

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)


def _checked_spec(tool: object) -> ToolSpec:
    missing = [name for name in _METHODS if not callable(getattr(tool, name, None))]
    missing += [name for name in ("spec", "verifies") if not hasattr(tool, name)]
    if missing:
        what = getattr(tool, "__name__", type(tool).__name__)
        raise ConfigurationError(
            f"{what} is no tool (it has no {', '.join(missing)}): make one of a function with @tool(effect=…)"
        )
    spec: object = cast("Tool", tool).spec
    if not isinstance(spec, ToolSpec):  # which cannot be made without an effect
        name = getattr(spec, "name", type(tool).__name__)
        raise ConfigurationError(f"tool {name!r} declares no ToolSpec, and so no effect")
    _check_parameters(spec.name, spec.parameters)
    return spec


def _check_parameters(name: str, parameters: Mapping[str, JsonValue]) -> None:
    # Imported here: it takes 40 ms, which `import byline` can do without.
    from jsonschema import Draft202012Validator, SchemaError

    try:
        schema = plain_json(parameters, "parameters")
    except NotPlainJson as error:
        raise ConfigurationError(f"tool {name!r}: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise ConfigurationError(f"tool {name!r}: its parameters are no JSON schema of an object")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ConfigurationError(f"tool {name!r}: its parameters are no JSON schema: {error.message:.200}") from error
