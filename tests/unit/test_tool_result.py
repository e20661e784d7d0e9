import enum
import math
from types import MappingProxyType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import JsonValue

from byline.errors import ToolContractBroken
from byline.records import RecordReference, WriteKind
from byline.tools import ToolResult, WriteTarget
from byline.tools.json_values import MAX_DEPTH
from byline.tools.result import MAX_ARTIFACT_BYTES, MAX_TEXT_BYTES, TRUNCATED

PAGE = RecordReference("pages", 42)
SECRET = "hunter2"


class Level(enum.IntEnum):
    HIGH = 3


class Colour(str, enum.Enum):  # noqa: UP042 - whose str() is not its value
    RED = "red"


def nested(depth: int) -> dict[str, JsonValue]:
    value: JsonValue = SECRET
    for _ in range(depth - 1):
        value = [value]
    return {"a": value}


def test_a_text_is_a_success_that_names_no_record() -> None:
    result = ToolResult.text("done")
    assert (result.for_model, result.is_error, result.target, result.changed) == ("done", False, None, True)
    assert result.artifacts == {}


def test_an_error_says_that_nothing_was_done() -> None:
    result = ToolResult.error("no such page")
    assert (result.for_model, result.is_error, result.target) == ("no such page", True, None)


@pytest.mark.promise("P10")
def test_a_write_names_its_record_and_kind() -> None:
    result = ToolResult.text("done")
    written = result.with_write_target(PAGE, WriteKind.UPDATED)
    assert written.target == WriteTarget(PAGE, WriteKind.UPDATED)
    assert written.changed
    assert result.target is None


@pytest.mark.promise("P10")
@pytest.mark.report(35)
def test_unchanged_names_what_an_earlier_attempt_would_have_done() -> None:
    result = ToolResult.unchanged("as it was", PAGE, WriteKind.UPDATED)
    assert result.target == WriteTarget(PAGE, WriteKind.UPDATED)
    assert not result.changed
    assert not result.is_error


@pytest.mark.promise("P10")
def test_a_target_without_a_kind_is_no_state() -> None:
    with pytest.raises(TypeError):
        ToolResult.text("done").with_write_target(PAGE)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    for kind in (None, "updated", "deleted"):
        with pytest.raises(ToolContractBroken, match="kind"):
            ToolResult.text("done").with_write_target(PAGE, kind)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ToolContractBroken, match="RecordReference, not str"):
        ToolResult.unchanged("done", "pages:42", WriteKind.UPDATED)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.promise("P10")
@pytest.mark.parametrize(
    "result",
    [
        ToolResult.error("no"),
        ToolResult.unchanged("as it was", PAGE, WriteKind.UPDATED),
        ToolResult.text("done").with_write_target(PAGE, WriteKind.UPDATED),
    ],
)
def test_only_a_success_without_a_target_takes_one(result: ToolResult) -> None:
    with pytest.raises(ToolContractBroken, match="names no record yet"):
        result.with_write_target(PAGE, WriteKind.CREATED)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
@example("€")
@example("x🦉")
def test_a_long_text_is_cut_at_the_border_of_a_character(text: str) -> None:
    long = text * (MAX_TEXT_BYTES + 1)
    bounded = ToolResult.text(long).for_model
    assert MAX_TEXT_BYTES - 4 < len(bounded.encode()) <= MAX_TEXT_BYTES
    assert bounded.endswith(TRUNCATED)
    assert long.startswith(bounded.removesuffix(TRUNCATED))


def test_a_text_of_just_the_limit_is_kept() -> None:
    assert ToolResult.text("x" * MAX_TEXT_BYTES).for_model == "x" * MAX_TEXT_BYTES
    cut = ToolResult.text("x" * (MAX_TEXT_BYTES + 1)).for_model
    assert cut == "x" * (MAX_TEXT_BYTES - len(TRUNCATED)) + TRUNCATED


def test_half_a_surrogate_pair_becomes_one_replacement_and_two_halves_their_character() -> None:
    assert ToolResult.text("a\ud800b").for_model == "a\ufffdb"
    assert ToolResult.error("\ud83e\udd89").for_model == "🦉"


@pytest.mark.promise("P10")
def test_the_target_survives_the_bounding() -> None:
    long = "x" * (2 * MAX_TEXT_BYTES)
    target = WriteTarget(PAGE, WriteKind.CREATED)
    assert ToolResult.text(long).with_write_target(PAGE, WriteKind.CREATED).target == target
    assert ToolResult.unchanged(long, PAGE, WriteKind.CREATED).target == target
    assert (
        ToolResult.text("").with_write_target(PAGE, WriteKind.CREATED).with_artifacts({"a": "x" * 1000}).target
        == target
    )


@pytest.mark.parametrize("text", [None, 3, b"done", ["done"]])
def test_a_text_is_a_str(text: object) -> None:
    with pytest.raises(ToolContractBroken, match=f"not {type(text).__name__}"):
        ToolResult.text(text)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_artifacts_are_copied_and_plain() -> None:
    inner: list[JsonValue] = [1]
    artifacts: dict[str, JsonValue] = {"list": inner, "level": Level.HIGH, "colour": Colour.RED, "yes": True}
    result = ToolResult.text("done").with_artifacts(MappingProxyType(artifacts))
    inner.append(2)
    artifacts["more"] = 1
    assert result.artifacts == {"list": [1], "level": 3, "colour": "red", "yes": True}
    assert [type(value) for value in result.artifacts.values()] == [list, int, str, bool]
    with pytest.raises(TypeError):
        result.artifacts["more"] = 1  # type: ignore[index]  # pyright: ignore[reportIndexIssue]


@pytest.mark.report(25)
@pytest.mark.parametrize(
    "value, fault",
    [
        (object(), "a object"),
        ({SECRET}, "a set"),
        ((SECRET,), "a tuple"),
        (SECRET.encode(), "a bytes"),
        (math.nan, "a float that JSON cannot hold"),
        (-math.inf, "a float that JSON cannot hold"),
        (2**63, "an integer of more than 64 bits"),
        (-(2**63) - 1, "an integer of more than 64 bits"),
        pytest.param(10**5000, "an integer of more than 64 bits", id="too long to print"),
        (f"{SECRET}\ud800", "no valid Unicode text"),
        (f"{SECRET}\0", "a text with a NUL character"),
        ({7: SECRET}, "a key that is a int"),
    ],
)
def test_an_artifact_that_cannot_be_stored_is_named_by_its_path(value: object, fault: str) -> None:
    artifacts = {"pages": [{"ok": 1}, {"owner": value}]}
    with pytest.raises(ToolContractBroken) as caught:
        ToolResult.text("done").with_artifacts(artifacts)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert str(caught.value).startswith(f"artifacts.pages[1].owner: {fault}")
    assert SECRET not in str(caught.value)


@pytest.mark.report(25)
@pytest.mark.parametrize("key", ["\ud800", "\0"])
def test_a_key_that_cannot_be_stored_is_named_by_its_parent(key: str) -> None:
    with pytest.raises(ToolContractBroken, match=r"a key of artifacts\.a:"):
        ToolResult.text("done").with_artifacts({"a": {key: 1}})


@pytest.mark.report(25)
def test_endless_artifacts_break_the_contract_and_not_the_stack() -> None:
    ring: list[JsonValue] = []
    ring.append(ring)
    with pytest.raises(ToolContractBroken, match="nested deeper than 64 levels"):
        ToolResult.text("done").with_artifacts({"ring": ring})
    assert ToolResult.text("done").with_artifacts(nested(MAX_DEPTH)).artifacts == nested(MAX_DEPTH)
    with pytest.raises(ToolContractBroken, match="nested deeper"):
        ToolResult.text("done").with_artifacts(nested(MAX_DEPTH + 1))


def test_a_long_path_is_cut() -> None:
    with pytest.raises(ToolContractBroken) as caught:
        ToolResult.text("done").with_artifacts({"k" * 5_000: 2**70})
    assert len(str(caught.value)) < 300


def test_artifacts_are_a_mapping() -> None:
    with pytest.raises(ToolContractBroken, match="a mapping, not list"):
        ToolResult.text("done").with_artifacts([1])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_artifacts_are_bounded_in_bytes() -> None:
    room = MAX_ARTIFACT_BYTES - len('{"a":""}')
    assert ToolResult.text("done").with_artifacts({"a": "é" * (room // 2)}).artifacts["a"] == "é" * (room // 2)
    with pytest.raises(ToolContractBroken, match="1000000 bytes"):
        ToolResult.text("done").with_artifacts({"a": "é" * (room // 2 + 1)})
