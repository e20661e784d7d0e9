"""The arguments of a function: their JSON schema, and the one way to read them from a model's text."""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    create_model,
)
from pydantic.json_schema import GenerateJsonSchema

from byline.errors import ConfigurationError, InvalidArguments
from byline.tools.context import ToolContext
from byline.tools.json_values import NotPlainJson, canonical_json, plain_json, read_json
from byline.tools.result import ToolResult

__all__ = ["MAX_ARGUMENT_BYTES", "ArgumentSchema", "argument_schema", "canonical_json", "split_docstring"]

MAX_ARGUMENT_BYTES = 262_144
"""Longest arguments of one call, in bytes of UTF-8."""
MAX_ERRORS = 10
"""Most faults that one message lists."""
MAX_ERROR_CHARACTERS = 1_000
"""Longest message about invalid arguments."""

_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


@dataclass(frozen=True, slots=True)
class ArgumentSchema:
    """How the arguments of one function are read. Made by `argument_schema`.

    Attributes:
        description: the function's docstring without its sections on arguments, result and errors.
        parameters: JSON schema (draft 2020-12) of the object of the arguments.
        names: the arguments' names, in the function's order.
    """

    description: str
    parameters: Mapping[str, JsonValue]
    names: tuple[str, ...]
    _model: type[BaseModel]

    def normalise(self, text: str) -> dict[str, JsonValue]:
        """Read a model's text: defaults are filled in, each value is as it serialises.

        `normalise(canonical_json(normalise(text))) == normalise(text)`.

        Raises:
            InvalidArguments: the text is too long, also with its defaults filled in; it is no JSON object, or does
                not fit; or a value does not read back equal from its own JSON. The message lists paths and faults;
                a value is in it only if a validator of the host's puts it there.
        """
        _check_size(text)
        normal = self._read(text)[0]
        _check_size(canonical_json(normal))  # here, before anyone is asked, so that what was approved can run
        return normal

    def values(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Turn the normalised object into the values that the function takes.

        Raises:
            InvalidArguments: they do not fit, or are no longer what `normalise` would return.
        """
        text = canonical_json(arguments)
        normal, read = self._read(text)
        if canonical_json(normal) != text:
            raise InvalidArguments("the arguments are no longer what they were normalised to")
        return {name: cast("object", getattr(read, _field(n))) for n, name in enumerate(self.names)}

    def _read(self, text: str) -> tuple[dict[str, JsonValue], BaseModel]:
        try:
            _check_object(text)
            read = self._model.model_validate_json(text)
            normal = _dumped(read)
            again = self._model.model_validate_json(canonical_json(normal))
            if again == read and canonical_json(_dumped(again)) == canonical_json(normal):
                return normal, read
            fault = "arguments: a value does not read back equal from its own JSON"
        except ValidationError as error:
            fault = _listed(error)
        except NotPlainJson as error:
            fault = str(error)
        except Exception as error:  # noqa: BLE001 - a validator of the host may raise anything
            fault = f"arguments: reading them failed with {type(error).__name__}"
        # Out here, so that no error that holds a value hangs on to it as its context.
        raise InvalidArguments(fault)


def argument_schema(name: str, function: Callable[..., object], locals_: Mapping[str, object]) -> ArgumentSchema:
    """Read a function's signature and its Google-style docstring.

    Args:
        name: the tool's name, for an error's message.
        function: takes the call's `ToolContext` first; any other parameter is an argument of the tool.
        locals_: names beside those of the function's module, in which its annotations may be written.

    Raises:
        ConfigurationError: the first parameter is not the context; a parameter cannot be passed by name or
            has no annotation; or an annotation or a default is nothing that pydantic can read from JSON,
            write as JSON and read back equal.
    """
    hints = _hints(name, function, locals_)
    context, *parameters = _parameters(name, function)
    if hints.get(context.name, ToolContext if context.name == "context" else None) is not ToolContext:
        raise ConfigurationError(f"tool {name!r}: its first parameter is `context: ToolContext`")
    if hints.get("return", ToolResult) is not ToolResult:
        raise ConfigurationError(f"tool {name!r}: it returns a ToolResult, and is annotated so")
    for parameter in parameters:
        _check_parameter(name, parameter, hints)

    model = _model(parameters, hints)
    description, documented = split_docstring(function.__doc__ or "")
    schema: dict[str, Any] = model.model_json_schema(schema_generator=_WithoutTitles)
    del schema["title"]
    for argument, property_ in schema["properties"].items():
        if argument in documented:
            property_.setdefault("description", documented[argument])
    return ArgumentSchema(description, schema, tuple(p.name for p in parameters), model)


def split_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Split a Google-style docstring into what it says of the function and of each argument.

    The sections on the result and on errors are the programmer's and left out.
    """
    kept: list[str] = []
    section: list[str] = kept
    sections: dict[str, list[str]] = {}
    for line in inspect.cleandoc(docstring).splitlines():
        if header := _SECTION.fullmatch(line):
            section = sections.setdefault("Args" if header[1] in _ARGUMENT_SECTIONS else header[1], [])
            continue
        if line and not line[0].isspace():
            section = kept
        section.append(line)
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()

    documented: dict[str, str] = {}
    name = ""
    for line in textwrap.dedent("\n".join(sections.get("Args", []))).splitlines():
        if entry := _ENTRY.fullmatch(line):
            name = entry[1]
            documented[name] = entry[2].strip()
        elif name:
            documented[name] = f"{documented[name]} {line.strip()}".strip()
    return description, documented


_ARGUMENT_SECTIONS = ("Args", "Arguments", "Parameters")
_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns|Yields|Raises):\s*")
_ENTRY = re.compile(r"(\w+)\s*(?:\(.*?\))?\s*:(.*)")


class _WithoutTitles(GenerateJsonSchema):
    """Leaves out the titles that pydantic makes of the names: they cost the model tokens and say nothing."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def _field(number: int) -> str:
    return f"argument_{number}"


def _model(parameters: Iterable[inspect.Parameter], hints: Mapping[str, Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for n, parameter in enumerate(parameters):
        # Fields are numbered, with the name as alias: a field cannot be called `json` or `_id`.
        name = parameter.name
        field = Field(alias=name)
        default: object = ... if parameter.default is parameter.empty else parameter.default
        fields[_field(n)] = (Annotated[hints[name], field], default)
    return create_model("Arguments", __config__=_CONFIG, **fields)


def _hints(name: str, function: Callable[..., object], locals_: Mapping[str, object]) -> dict[str, Any]:
    module: dict[str, object] = getattr(inspect.unwrap(function), "__globals__", {})
    known = {"ToolContext": ToolContext, "ToolResult": ToolResult, **module}  # often imported for types only
    try:
        return get_type_hints(function, known, dict(locals_), include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise ConfigurationError(
            f"tool {name!r}: an annotation cannot be resolved ({error}): import its names at run time, "
            "and define them in the module or beside the function"
        ) from error


def _parameters(name: str, function: Callable[..., object]) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise ConfigurationError(f"tool {name!r}: its first parameter is `context: ToolContext`")
    for parameter in parameters[1:]:
        if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise ConfigurationError(
                f"tool {name!r}: parameter {parameter.name!r} is {parameter.kind.description}; "
                "an argument is passed by its name"
            )
    return parameters


def _check_parameter(tool: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> None:
    name = parameter.name
    if name not in hints:
        raise ConfigurationError(f"tool {tool!r}: parameter {name!r} has no annotation")
    try:
        alone = _model([parameter], hints)
        if parameter.default is not parameter.empty:
            ArgumentSchema("", {}, (name,), alone).normalise("{}")
        schema = alone.model_json_schema()
    except InvalidArguments as error:
        raise ConfigurationError(f"tool {tool!r}: parameter {name!r} has a default that it would refuse") from error
    except Exception as error:  # pydantic raises half a dozen types, each for the annotation's fault
        reason = str(error).splitlines()[0]
        raise ConfigurationError(f"tool {tool!r}: parameter {name!r} cannot come from JSON: {reason}") from error
    if any(node.get("uniqueItems") is True for node in _nodes(schema)):
        raise ConfigurationError(
            f"tool {tool!r}: parameter {name!r} holds a set, whose order differs from process to process, "
            "so that its digest would: take a list"
        )


def _nodes(schema: JsonValue) -> Iterator[dict[str, JsonValue]]:
    if isinstance(schema, dict):
        yield schema
    if isinstance(schema, dict | list):
        for child in schema.values() if isinstance(schema, dict) else schema:
            yield from _nodes(child)


def _check_size(text: str) -> None:
    if isinstance(text, str) and len(text.encode("utf-8", "replace")) > MAX_ARGUMENT_BYTES:
        raise InvalidArguments(f"arguments: more than {MAX_ARGUMENT_BYTES} bytes")


def _check_object(text: str) -> None:
    """Refuse what pydantic would let pass: repeated keys, NULs, infinities, endless nesting."""
    if not isinstance(text, str):
        raise NotPlainJson("arguments", f"JSON text is a str, not a {type(text).__name__}")
    if not isinstance(read_json(text, "arguments"), dict):
        raise NotPlainJson("arguments", "no JSON object")


def _dumped(read: BaseModel) -> dict[str, JsonValue]:
    dumped: object = read.model_dump(mode="json", by_alias=True, round_trip=True, warnings="error")
    return cast("dict[str, JsonValue]", plain_json(dumped, "arguments"))


def _listed(error: ValidationError) -> str:
    details = error.errors(include_url=False, include_input=False)
    faults: list[str] = []
    for detail in details[:MAX_ERRORS]:
        path = ".".join(map(str, detail["loc"])) or "arguments"
        fault = detail["msg"]
        if detail["type"] == "union_tag_invalid":  # whose message repeats the tag that was given
            fault = f"expected one of the tags {detail.get('ctx', {}).get('expected_tags')}"
        faults.append(f"{path}: {fault}")
    if len(details) > MAX_ERRORS:
        faults.append(f"and {len(details) - MAX_ERRORS} more")
    listed = "; ".join(faults)
    return listed if len(listed) <= MAX_ERROR_CHARACTERS else listed[: MAX_ERROR_CHARACTERS - 1] + "…"
