import pytest
from hypothesis import given
from hypothesis import strategies as st

from byline.errors import InvalidIdentifier
from byline.records import MAX_PART_BYTES, RecordReference, WriteKind

LONGEST_INT = 10**MAX_PART_BYTES - 1


class Name(str):
    __slots__ = ()


def is_part(text: str) -> bool:
    return text == text.strip() and 0 < len(text.encode()) <= MAX_PART_BYTES


part = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=MAX_PART_BYTES).filter(
    is_part
)
references = st.builds(
    RecordReference,
    part.filter(lambda text: ":" not in text),
    part | st.integers(-(LONGEST_INT // 10), LONGEST_INT) | st.integers().map(str),
)


@given(references)
def test_what_is_printed_reads_back_equal(reference: RecordReference) -> None:
    again = RecordReference.parse(str(reference))
    assert again == reference
    assert hash(again) == hash(reference)
    assert type(again.uid) is type(reference.uid)


@given(st.integers(-(LONGEST_INT // 10), LONGEST_INT))
def test_a_canonical_decimal_string_is_the_int(uid: int) -> None:
    assert RecordReference("pages", str(uid)) == RecordReference("pages", uid)
    assert type(RecordReference("pages", str(uid)).uid) is int


@pytest.mark.parametrize("uid", ["042", "-0", "+1", "1.0", "1_000", "٤٢", "0x2a", "42a"])
def test_any_other_string_stays_a_string(uid: str) -> None:
    assert RecordReference("pages", uid).uid == uid


def test_the_first_colon_separates() -> None:
    assert RecordReference.parse("files:a:b:1") == RecordReference("files", "a:b:1")
    assert str(RecordReference("pages", 42)) == "pages:42"


@pytest.mark.parametrize("text", ["", "pages", "pages:", ":42", ":", "pages: ", " pages:42", "pages:42\n"])
def test_what_is_no_reference_is_not_parsed(text: str) -> None:
    with pytest.raises(InvalidIdentifier):
        RecordReference.parse(text)


@pytest.mark.parametrize("uid", [True, False, None, 4.0, b"42", Name("42"), WriteKind.CREATED, "", " ", "\t"])
def test_a_uid_is_an_int_or_a_string_that_is_not_blank(uid: object) -> None:
    with pytest.raises(InvalidIdentifier, match="uid"):
        RecordReference("pages", uid)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("table", [None, 7, Name("pages"), "", "  ", "a:b"])
def test_a_table_is_a_string_without_a_colon(table: object) -> None:
    with pytest.raises(InvalidIdentifier, match="table"):
        RecordReference(table, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("bad", ["\0", "\n", "\x7f", "\x85", "\u2028", "\u2029", "\ud800"])
def test_control_characters_are_refused(bad: str) -> None:
    with pytest.raises(InvalidIdentifier, match="table holds no control character"):
        RecordReference(f"a{bad}b", 1)
    with pytest.raises(InvalidIdentifier, match="uid holds no control character"):
        RecordReference("pages", f"a{bad}b")


def test_a_part_is_at_most_255_bytes_long() -> None:
    assert RecordReference("t" * 255, "é" * 127 + "u").table == "t" * 255
    with pytest.raises(InvalidIdentifier, match="table is at most 255 bytes"):
        RecordReference("t" * 256, 1)
    with pytest.raises(InvalidIdentifier, match="uid is at most 255 bytes"):
        RecordReference("pages", "é" * 128)


@pytest.mark.parametrize("digits", [256, 5_000])  # Python itself refuses to print the second
def test_an_int_is_at_most_255_digits_long(digits: int) -> None:
    assert RecordReference("pages", LONGEST_INT).uid == LONGEST_INT
    with pytest.raises(InvalidIdentifier, match="uid is at most 255 bytes"):
        RecordReference("pages", 10 ** (digits - 1))
    with pytest.raises(InvalidIdentifier, match="uid is at most 255 bytes"):
        RecordReference("pages", "9" * digits)


@pytest.mark.promise("P3")
def test_a_write_is_created_or_updated() -> None:
    assert list(WriteKind) == [WriteKind.CREATED, WriteKind.UPDATED]
    with pytest.raises(ValueError, match="deleted"):
        WriteKind("deleted")
