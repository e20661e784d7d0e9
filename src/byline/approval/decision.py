"""What a person decides: about a waiting turn, and about a write that nobody knows the outcome of."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Self, TypeAlias
from uuid import UUID

from pydantic import JsonValue

from byline.errors import InvalidArguments, InvalidIdentifier, ToolContractBroken
from byline.records import RecordReference, WriteKind
from byline.tools.json_values import NotPlainJson, plain_json
from byline.tools.result import WriteTarget

MAX_REASON_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class Approve:
    """Release the call exactly as it was shown."""


@dataclass(frozen=True, slots=True)
class Deny:
    """Refuse the call. The reason, at most 2,000 characters, reaches the model as a person's words."""

    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str) or len(self.reason) > MAX_REASON_CHARACTERS:
            raise InvalidIdentifier(f"a reason is a text of at most {MAX_REASON_CHARACTERS} characters")
        object.__setattr__(self, "reason", self.reason.encode("utf-8", "replace").decode())


@dataclass(frozen=True, slots=True)
class Change:
    """Propose other arguments: the whole set, not a patch. The turn is shown and decided anew.

    Raises:
        InvalidArguments: they are no mapping of what JSON can hold. The message names the path, never the value.
    """

    arguments: Mapping[str, JsonValue]

    def __post_init__(self) -> None:
        try:
            kept = plain_json(self.arguments, "arguments")
        except NotPlainJson as error:
            raise InvalidArguments(str(error)) from None
        if not isinstance(kept, dict):
            raise InvalidArguments("arguments: no JSON object")
        object.__setattr__(self, "arguments", MappingProxyType(kept))


Verdict: TypeAlias = Approve | Deny | Change


@dataclass(frozen=True, slots=True)
class Decision:
    """Verdicts on a waiting turn, bound by its digest to what was read.

    Built by `approve`, `deny`, `change` and `per_call`. A decision carries no call and no
    arguments to run: what runs is what was stored.

    Attributes:
        digest: `pending.digest` of the turn that was read.
        verdicts: by call id; empty when `for_all` speaks for every call still undecided.
        for_all: one verdict for every call still undecided, or None.

    Raises:
        InvalidIdentifier: a verdict is no verdict, a call is not named by its id, or it speaks for all and for some.
    """

    digest: str
    verdicts: Mapping[UUID, Verdict] = field(default_factory=lambda: MappingProxyType({}))
    for_all: Approve | Deny | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.verdicts, Mapping):
            raise InvalidIdentifier("verdicts are given by the ids of their calls")
        object.__setattr__(self, "verdicts", MappingProxyType(dict(self.verdicts)))
        if not isinstance(self.for_all, Approve | Deny | None):
            raise InvalidIdentifier("a decision for every call is Approve() or Deny()")
        if self.for_all is not None and self.verdicts:
            raise InvalidIdentifier("a decision speaks for every call or for each by its id, not for both")
        for call_id, verdict in self.verdicts.items():
            if not isinstance(call_id, UUID):
                raise InvalidIdentifier("a call is named by its id, a UUID")
            if not isinstance(verdict, Approve | Deny | Change):
                raise InvalidIdentifier("a verdict is Approve(), Deny() or Change()")

    @classmethod
    def approve(cls, digest: str) -> Self:
        """Release every call that is still undecided."""
        return cls(digest, for_all=Approve())

    @classmethod
    def deny(cls, digest: str, reason: str = "") -> Self:
        """Refuse every call that is still undecided."""
        return cls(digest, for_all=Deny(reason))

    @classmethod
    def change(cls, digest: str, call_id: UUID, arguments: Mapping[str, JsonValue]) -> Self:
        """Propose other arguments for one call."""
        return cls(digest, {call_id: Change(arguments)})

    @classmethod
    def per_call(cls, digest: str, verdicts: Mapping[UUID, Verdict]) -> Self:
        """Decide call by call. Calls that are not named stay undecided, and the run goes on waiting."""
        return cls(digest, verdicts)


@dataclass(frozen=True, slots=True)
class CallVerdict:
    """What was decided about one call, by whom, and when by the store's clock."""

    call_id: UUID
    verdict: Approve | Deny
    actor_id: str
    at: datetime


class ReconcileVerdict(StrEnum):
    """What was found out about an uncertain write."""

    LANDED = "landed"
    RUN_AGAIN = "run_again"
    LEAVE_IT = "leave_it"


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """A verdict on an uncertain call, bound by its digest to what was read.

    Built by `landed`, `run_again` and `leave_it`.

    Attributes:
        digest: `uncertain.digest` of the call that was read.
        verdict: what was found.
        target: the record it wrote, with `LANDED` only.
        deny: ids of other calls of the turn that are not to run any more.

    Raises:
        InvalidIdentifier: a part of it is not what it has to be, or names a record where it must not.
    """

    digest: str
    verdict: ReconcileVerdict
    target: WriteTarget | None = None
    deny: frozenset[UUID] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "deny", _calls(self.deny))
        if not isinstance(self.target, WriteTarget | None):
            raise InvalidIdentifier("the record of a write that landed is a WriteTarget: use Reconciliation.landed()")
        if not isinstance(self.verdict, ReconcileVerdict):
            raise InvalidIdentifier("a verdict on an uncertain call is a ReconcileVerdict")
        if (self.verdict is ReconcileVerdict.LANDED) != (self.target is not None):
            raise InvalidIdentifier("a write that landed names its record; one that did not names none")

    @classmethod
    def landed(cls, digest: str, record: RecordReference, kind: WriteKind, *, deny: Collection[UUID] = ()) -> Self:
        """The write landed: it is announced, and never run again."""
        return cls(digest, ReconcileVerdict.LANDED, _target(record, kind), _calls(deny))

    @classmethod
    def run_again(cls, digest: str, *, deny: Collection[UUID] = ()) -> Self:
        """The write did not land: run it again, with the same idempotency key. A release like any other."""
        return cls(digest, ReconcileVerdict.RUN_AGAIN, None, _calls(deny))

    @classmethod
    def leave_it(cls, digest: str, *, deny: Collection[UUID] = ()) -> Self:
        """The write did not land, and is not to be run again."""
        return cls(digest, ReconcileVerdict.LEAVE_IT, None, _calls(deny))


def _calls(deny: object) -> frozenset[UUID]:
    """Return the ids of calls, of whatever kind of collection they were given in."""
    if not isinstance(deny, Collection):
        raise InvalidIdentifier("the calls to deny are a collection of their ids")
    calls = [call_id for call_id in deny if isinstance(call_id, UUID)]
    if len(calls) < len(deny):
        raise InvalidIdentifier("a call is named by its id, a UUID")
    return frozenset(calls)


def _target(record: RecordReference, kind: WriteKind) -> WriteTarget:
    try:
        return WriteTarget(record, kind)
    except ToolContractBroken as error:  # here it is a person's word, and no tool's
        raise InvalidIdentifier(str(error)) from None
