import datetime as dt
import enum
import itertools
import json
import math
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    JsonValue,
    PlainSerializer,
    SecretStr,
    computed_field,
)

from byline.errors import InvalidArguments
from byline.tools import FunctionTool, ToolContext, ToolResult
from byline.tools.json_values import MAX_DEPTH
from byline.tools.schema import MAX_ARGUMENT_BYTES, MAX_ERROR_CHARACTERS, canonical_json
from tests.unit.annotating import CONTEXT, SECRET, reading

HIDDEN = SecretStr(SECRET)
SINCE = dt.date(2020, 1, 1)


counter = itertools.count()


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(BaseModel):
    width: float = Field(alias="w")
    unit: Literal["px", "em"] = "px"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def label(self) -> str:
        return f"{self.width}{self.unit}"


@dataclass
class Link:
    url: str
    opened: dt.datetime | None = None


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


@reading
async def everything(
    context: ToolContext,
    number: int,
    ratio: float,
    text: Annotated[str, Field(max_length=300)],
    day: dt.date,
    at: dt.datetime,
    took: dt.timedelta,
    price: Decimal,
    key: uuid.UUID,
    colour: Colour,
    mode: Literal["a", 1],
    sizes: list[Size],
    link: Link,
    table: dict[str, int],
    pair: tuple[int, str],
    anything: JsonValue,
    either: dt.date | int | str,
    pet: Annotated[Cat | Dog, Field(discriminator="kind")],
    maybe: int | None = None,
    since: dt.date = SINCE,
    *,
    json: bool = False,
    _private: tuple[int, ...] = (),
) -> ToolResult:
    return ToolResult.text("read")


@reading
def one(context: ToolContext, page_id: int, note: str = "") -> ToolResult:
    """Read one page."""
    return ToolResult.text(note)


def takes(annotation: object) -> FunctionTool[[object], ToolResult]:
    def take(context: ToolContext, value: object) -> ToolResult:
        return ToolResult.text("")

    take.__annotations__["value"] = annotation
    return reading(take)


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | integers | floats | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
sizes = st.fixed_dictionaries({"w": floats}, optional={"unit": st.sampled_from(["px", "em"])})
required = {
    "number": integers | integers.map(str),
    "ratio": floats | st.integers(-100, 100),
    "text": text,
    "day": st.dates().map(str),
    "at": st.datetimes(timezones=st.just(dt.UTC) | st.none()).map(dt.datetime.isoformat),
    "took": st.integers(-(10**9), 10**9) | st.sampled_from(["P3DT2H", "00:10:00.25", "-PT1S"]),
    "price": st.decimals(allow_nan=False, allow_infinity=False).map(str) | st.floats(-1e9, 1e9),
    "key": st.uuids().map(str),
    "colour": st.sampled_from(["red", "blue"]),
    "mode": st.sampled_from(["a", 1]),
    "sizes": st.lists(sizes, max_size=3),
    "link": st.fixed_dictionaries({"url": text}, optional={"opened": st.none() | st.datetimes().map(str)}),
    "table": st.dictionaries(text, integers, max_size=3),
    "pair": st.tuples(integers, text),
    "anything": json_values,
    "either": st.dates().map(str) | integers | text,
    "pet": st.sampled_from([{"kind": "cat"}, {"kind": "dog"}]),
}
optional = {
    "maybe": st.none() | integers,
    "since": st.dates().map(str),
    "json": st.booleans(),
    "_private": st.lists(integers, max_size=3),
}
calls: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(required, optional=optional)


@pytest.mark.promise("P12")
@pytest.mark.report(8)
@given(calls)
def test_normalising_twice_changes_nothing(call: dict[str, Any]) -> None:
    once = everything.validate(json.dumps(call))
    assert everything.validate(json.dumps(once)) == once
    assert everything.validate(canonical_json(once)) == once
    assert canonical_json(everything.validate(canonical_json(once))) == canonical_json(once)


@given(json_values)
def test_the_canonical_form_reads_back_equal_and_is_one(value: JsonValue) -> None:
    written = canonical_json(value)
    assert json.loads(written) == value
    assert canonical_json(json.loads(json.dumps(value, indent=2))) == written


def test_the_canonical_form_is_sorted_and_without_spaces_and_escapes() -> None:
    assert canonical_json({"b": [1, 2.5], "a": {"é": None, "d": True}}) == '{"a":{"d":true,"é":null},"b":[1,2.5]}'
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"a": math.nan})


@pytest.mark.promise("P12")
@pytest.mark.report(9)
def test_defaults_are_filled_in_and_values_are_as_they_serialise() -> None:
    call = {
        "number": "7", "ratio": 1, "text": "", "day": "2020-01-02", "at": "2020-01-02 03:04", "took": 90,
        "price": 1.5, "key": "A" * 32, "colour": "red", "mode": 1,
        "sizes": [{"w": "2"}], "link": {"url": "u"}, "table": {}, "pair": [1, "x"], "anything": {}, "either": 3,
        "pet": {"kind": "cat"},
    }  # fmt: skip
    normal = everything.validate(json.dumps(call))
    assert list(normal) == list(cast("dict[str, JsonValue]", everything.spec.parameters["properties"]))
    assert normal == {
        **call, "number": 7, "at": "2020-01-02T03:04:00", "took": "PT1M30S", "price": "1.5",
        "key": "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", "sizes": [{"w": 2.0, "unit": "px"}],
        "link": {"url": "u", "opened": None}, "maybe": None, "since": "2020-01-01", "json": False,
        "_private": [],
    }  # fmt: skip


@pytest.mark.promise("P12")
@pytest.mark.report(3)
@pytest.mark.parametrize(
    "arguments, fault",
    [
        ("", "no JSON: "),
        (" \n", "no JSON: "),
        ("{", "no JSON: "),
        ('{"page_id": 1,}', "no JSON: "),
        ("{'page_id': 1}", "no JSON: "),
        ('{"page_id": 1} {}', "no JSON: "),
        ("null", "no JSON object"),
        ("[]", "no JSON object"),
        ('"{}"', "no JSON object"),
        ("{}", "page_id: Field required"),
        ('{"page_id": "x"}', "page_id: Input should be a valid integer"),
        ('{"page_id": 1.5}', "page_id: Input should be a valid integer"),
        ('{"page_id": null}', "page_id: Input should be a valid integer"),
        ('{"page_id": 1, "more": 2}', "more: Extra inputs are not permitted"),
        ('{"argument_0": 1}', "argument_0: Extra inputs are not permitted"),
        ('{"page_id": 1, "page_id": 2}', "repeats a key"),
        ('{"page_id": 1, "note": {"a": 1, "a": 1}}', "repeats a key"),
        ('{"page_id": NaN}', "a number that JSON does not know"),
        ('{"page_id": -Infinity}', "a number that JSON does not know"),
        ('{"page_id": 1e999}', "a float that JSON cannot hold"),
        ('{"page_id": 9223372036854775808}', "more than 64 bits"),
        ('{"page_id": "9223372036854775808"}', "more than 64 bits"),
        pytest.param('{"page_id": ' + "9" * 5000 + "}", "more than 64 bits", id="too long to read"),
        ('{"page_id": 1, "note": "a\\u0000b"}', "arguments.note: a text with a NUL character"),
        ('{"page_id": 1, "a\\u0000": 2}', "a key of arguments: a text with a NUL character"),
        ('{"page_id": 1, "note": "\0"}', "no JSON: "),
        ('{"page_id": 1, "note": "\\ud800"}', "arguments.note: no valid Unicode text"),
        ('{"page_id": 1, "note": "\ud800"}', "arguments.note: no valid Unicode text"),
        pytest.param('{"note":' * 70 + "1" + "}" * 70, "nested deeper than 64 levels", id="deep"),
        pytest.param("[" * 200_000, "nested deeper than 64 levels", id="endless"),
        pytest.param('{"page_id": 1, "note": "%s"}' % ("é" * 131_072), "more than 262144 bytes", id="long"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: str, fault: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        one.validate(arguments)
    assert fault in str(caught.value)


def test_arguments_are_text() -> None:
    for arguments in (None, b"{}", {"page_id": 1}):
        with pytest.raises(InvalidArguments, match=f"a str, not a {type(arguments).__name__}"):
            one.validate(arguments)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_arguments_may_have_just_the_limit() -> None:
    room = MAX_ARGUMENT_BYTES - len('{"page_id":1,"note":""}')
    assert one.validate('{"page_id":1,"note":"%s"}' % ("n" * room))["note"] == "n" * room
    with pytest.raises(InvalidArguments, match="bytes"):
        one.validate('{"page_id":1,"note":"%s"}' % ("n" * (room + 1)))


def test_ids_of_64_bits_pass() -> None:
    for number in (2**63 - 1, -(2**63)):
        assert one.validate(f'{{"page_id": {number}}}') == {"page_id": number, "note": ""}


def test_arguments_may_be_nested_to_the_limit() -> None:
    deep = '{"value":' + "[" * (MAX_DEPTH - 1) + "1" + "]" * (MAX_DEPTH - 1) + "}"
    assert canonical_json(takes(JsonValue).validate(deep)) == deep
    with pytest.raises(InvalidArguments, match="nested deeper"):
        takes(JsonValue).validate(deep.replace("1", "[1]"))


@pytest.mark.report(8)
@pytest.mark.parametrize(
    "annotation, value",
    [
        (SecretStr, SECRET),  # is written as stars
        (Annotated[int, PlainSerializer(lambda value: value // 10)], 424242),
        (Annotated[dt.date, PlainSerializer(lambda value: f"{value.year}-01-01")], "2021-05-05"),
        (Iterable[int], [1]),  # can be read once only
        (Annotated[int, AfterValidator(lambda _: 0), PlainSerializer(lambda _: next(counter))], 1),
    ],
)
def test_a_value_that_its_json_loses_is_refused(annotation: object, value: JsonValue) -> None:
    with pytest.raises(InvalidArguments, match="does not read back equal"):
        takes(annotation).validate(json.dumps({"value": value}))


@pytest.mark.parametrize("value", ["inf", "-Infinity", "nan"])
def test_a_text_that_reads_as_no_finite_number_is_refused(value: str) -> None:
    with pytest.raises(InvalidArguments, match="finite"):
        takes(float).validate(json.dumps({"value": value}))
    with pytest.raises(InvalidArguments, match="a float that JSON cannot hold"):
        takes(Size).validate(json.dumps({"value": {"w": value}}))


@pytest.mark.promise("P12")
async def test_a_default_is_read_as_a_value_is() -> None:
    @reading
    def scale(context: ToolContext, factor: float = 1) -> ToolResult:
        return ToolResult.text(repr(factor))

    assert canonical_json(scale.validate("{}")) == '{"factor":1.0}'
    assert (await scale.execute(CONTEXT, {"factor": 1.0})).for_model == "1.0"


async def test_a_model_calls_an_argument_by_its_name_alone() -> None:
    @reading
    def read(
        context: ToolContext,
        first: Annotated[int, Field(alias="a", default=1)],
        second: Annotated[int, Field(validation_alias="b", serialization_alias="c")],
    ) -> ToolResult:
        return ToolResult.text(f"{first} {second}")

    assert read.validate('{"first": 3, "second": 4}') == {"first": 3, "second": 4}
    assert (await read.execute(CONTEXT, {"first": 3, "second": 4})).for_model == "3 4"
    for other in ("a", "b", "c"):
        with pytest.raises(InvalidArguments, match=f"{other}: Extra inputs"):
            read.validate(json.dumps({"first": 3, "second": 4, other: 5}))
    with pytest.raises(InvalidArguments, match="first: Field required"):
        read.validate('{"second": 4}')


def refuse(value: str) -> str:
    raise KeyError(value)


@pytest.mark.parametrize(
    "annotation",
    [
        int,
        Colour,
        dt.date,
        uuid.UUID,
        Decimal,
        Literal["a"],
        Annotated[str, Field(max_length=2)],
        Annotated[str, Field(pattern="^a$")],
        Annotated[Cat | Dog, Field(discriminator="kind")],
        Annotated[str, AfterValidator(refuse)],
    ],
)
def test_a_message_about_arguments_holds_no_value(annotation: object) -> None:
    for value in (SECRET, {"kind": SECRET}):
        with pytest.raises(InvalidArguments) as caught:
            takes(annotation).validate(json.dumps({"value": value}))
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None


def test_a_message_about_arguments_lists_ten_faults_and_is_bounded() -> None:
    with pytest.raises(InvalidArguments) as caught:
        takes(list[int]).validate(json.dumps({"value": ["x"] * 12}))
    assert "value.9: Input should be" in str(caught.value)
    assert "value.10" not in str(caught.value)
    assert str(caught.value).endswith("; and 2 more")
    with pytest.raises(InvalidArguments) as caught:
        takes(dict[str, int]).validate(json.dumps({"value": {"k" * 5000: "x"}}))
    assert len(str(caught.value)) == MAX_ERROR_CHARACTERS
