"""What a tool hands back: text for the model, artifacts for the host, and the record it wrote."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

from pydantic import JsonValue

from byline.errors import InvalidIdentifier, ToolContractBroken
from byline.hosted import MAX_TEXT_BYTES as MAX_TEXT_BYTES
from byline.hosted import TRUNCATED as TRUNCATED
from byline.hosted import bounded_text
from byline.records import RecordReference, WriteKind
from byline.tools.json_values import NotPlainJson, canonical_json, plain_json

MAX_ARTIFACT_BYTES = 1_000_000
"""Most artifacts of one result, in bytes of their JSON."""


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """The record that a call wrote, and what happened to it.

    A host's own kind of reference becomes a plain one: what is announced, stored and compared is the record.

    Raises:
        ToolContractBroken: the record is no RecordReference, or the kind no WriteKind.
    """

    record: RecordReference
    kind: WriteKind

    def __post_init__(self) -> None:
        if not isinstance(self.record, RecordReference):
            raise ToolContractBroken(f"a write target is a RecordReference, not {type(self.record).__name__}")
        if not isinstance(self.kind, WriteKind):
            raise ToolContractBroken("a write target needs its kind: WriteKind.CREATED or WriteKind.UPDATED")
        if type(self.record) is not RecordReference:
            object.__setattr__(self, "record", _plain(self.record))


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool hands back. Built by `text`, `error` and `unchanged` only; never changed.

    The text is bounded to 50,000 bytes of valid UTF-8; artifacts never reach the model; the write
    target survives every bounding.
    """

    _text: str
    _is_error: bool = False
    _target: WriteTarget | None = None
    _changed: bool = True
    _artifacts: Mapping[str, JsonValue] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def text(cls, text: str) -> Self:
        """Report success in words. A writing tool adds `with_write_target`."""
        return cls(bounded_text(text, MAX_TEXT_BYTES))

    @classmethod
    def error(cls, text: str) -> Self:
        """Report that the tool did nothing, and why. The same as raising `ToolError`: nothing was written."""
        return cls(bounded_text(text, MAX_TEXT_BYTES), _is_error=True)

    @classmethod
    def unchanged(cls, text: str, record: RecordReference, kind: WriteKind) -> Self:
        """Report that nothing had to be written now, and what an earlier attempt of the call would have done.

        It is announced only if an earlier attempt of the call may have written.
        """
        return cls(bounded_text(text, MAX_TEXT_BYTES), _target=WriteTarget(record, kind), _changed=False)

    def with_write_target(self, record: RecordReference, kind: WriteKind) -> Self:
        """Name the record that was written, and whether it was created or updated. Both are required.

        Raises:
            ToolContractBroken: the result is an error or unchanged, or already names its record.
        """
        if self._is_error or self._target is not None:
            raise ToolContractBroken("only a successful result that names no record yet can name the record it wrote")
        return replace(self, _target=WriteTarget(record, kind))

    def with_artifacts(self, artifacts: Mapping[str, JsonValue]) -> Self:
        """Set the values for the host that the model never sees: at most 1,000,000 bytes as JSON.

        They are copied: what the tool changes later changes nothing here.

        Raises:
            ToolContractBroken: a value is not what `plain_json` takes; the message names its path and never
                prints it.
        """
        try:
            kept = plain_json(artifacts, "artifacts")
        except NotPlainJson as error:
            raise ToolContractBroken(str(error)) from None
        if not isinstance(kept, dict):
            raise ToolContractBroken(f"artifacts are a mapping, not {type(artifacts).__name__}")
        if len(canonical_json(kept).encode()) > MAX_ARTIFACT_BYTES:
            raise ToolContractBroken(f"the artifacts of a result are at most {MAX_ARTIFACT_BYTES} bytes of JSON")
        return replace(self, _artifacts=MappingProxyType(kept))

    @property
    def for_model(self) -> str:
        """The text that the model reads."""
        return self._text

    @property
    def is_error(self) -> bool:
        """Whether the tool says that it did nothing."""
        return self._is_error

    @property
    def target(self) -> WriteTarget | None:
        """The record that was written, or would have been by an earlier attempt."""
        return self._target

    @property
    def changed(self) -> bool:
        """False for `unchanged`: this attempt wrote nothing."""
        return self._changed

    @property
    def artifacts(self) -> Mapping[str, JsonValue]:
        """Values for the host."""
        return self._artifacts


def _plain(record: RecordReference) -> RecordReference:
    try:
        return RecordReference(record.table, record.uid)
    except InvalidIdentifier as error:
        raise ToolContractBroken(f"a write target names no record: {error}") from None
