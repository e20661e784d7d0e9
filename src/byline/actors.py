"""Who a run acts for, who decides, and the host's object that knows what they may do."""

import unicodedata
from collections.abc import Awaitable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self
from uuid import UUID

from pydantic import JsonValue

from byline.errors import InvalidIdentifier

MAX_ACTOR_ID_BYTES = 255


class Scope(StrEnum):
    """What kind of actor this is."""

    USER = "user"
    SERVICE = "service"


class Grant(StrEnum):
    """What an actor may do to runs, on top of what the host lets them do to records.

    `APPROVE`: release or deny the calls of a waiting turn, have an uncertain write run again, cancel others' runs.
    `RECONCILE`: say that an uncertain write landed, or that it did not and is to be left so.
    """

    APPROVE = "approve"
    """Release or deny the calls of a waiting turn."""
    RECONCILE = "reconcile"
    """Say whether an uncertain write landed."""


@dataclass(frozen=True, slots=True)
class AiActorContext:
    """Who a run acts for, or who decides. It comes from the host's authentication, never from a request.

    Raises:
        InvalidIdentifier: the id is blank, not a str, holds a control character or half a surrogate pair, or is
            longer than 255 bytes.
    """

    id: str
    scope: Scope = Scope.USER
    grants: frozenset[Grant] = frozenset()

    def __post_init__(self) -> None:
        if (
            type(self.id) is not str
            or not self.id.strip()
            or len(self.id.encode("utf-8", "replace")) > MAX_ACTOR_ID_BYTES
        ):
            raise InvalidIdentifier(f"an actor's id is a str that is not blank, of at most {MAX_ACTOR_ID_BYTES} bytes")
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in self.id):
            raise InvalidIdentifier("an actor's id holds no control character and no half of a surrogate pair")
        object.__setattr__(self, "scope", Scope(self.scope))
        object.__setattr__(self, "grants", _grants(self.grants))

    @classmethod
    def user(cls, id: str, *, grants: Collection[Grant] = ()) -> Self:  # noqa: A002 - the field's own name
        """Name a person."""
        return cls(id, Scope.USER, _grants(grants))

    @classmethod
    def service(cls, id: str, *, grants: Collection[Grant] = ()) -> Self:  # noqa: A002 - the field's own name
        """Name a service account: it may start runs, and can never release a write."""
        return cls(id, Scope.SERVICE, _grants(grants))

    def restricted_to(self, other: "AiActorContext") -> "AiActorContext":
        """Return this actor with what both have: a session may be narrower than its owner.

        Its grants are those of both, and it is a person only if both say so: a token of a person's is none.
        """
        scope = Scope.SERVICE if Scope.SERVICE in (self.scope, other.scope) else Scope.USER
        return AiActorContext(self.id, scope, self.grants & other.grants)


def _grants(grants: object) -> frozenset[Grant]:
    try:
        if not isinstance(grants, str) and isinstance(grants, Iterable):
            return frozenset(Grant(str(grant)) for grant in grants)
    except ValueError:
        pass
    known = ", ".join(f"Grant.{grant.name}" for grant in Grant)
    raise InvalidIdentifier(f"grants are a set of Grants, such as {{Grant.APPROVE}}; there are {known}")


def checked_actor(actor: object) -> AiActorContext:
    """Refuse who is named by anything but an `AiActorContext`.

    Raises:
        InvalidIdentifier: it is none.
    """
    if not isinstance(actor, AiActorContext):
        raise InvalidIdentifier("actor is an AiActorContext, such as AiActorContext.user('7')")
    return actor


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """One call as the authority judges it: permissions are per record, so it sees the arguments.

    `arguments` is the normalised JSON object that will run if it is approved.
    """

    run_id: UUID
    call_id: UUID
    agent: str
    tool: str
    writes: bool
    arguments: Mapping[str, JsonValue]


class Authority(Protocol):
    """The host's object that knows people and what they may do. Methods may be sync or async; raising means no."""

    def load(self, actor_id: str, /) -> "AiActorContext | Awaitable[AiActorContext | None] | None":
        """Return the actor as the host knows them now, or None if they are disabled or unknown."""
        ...

    def may_run(self, actor: AiActorContext, call: ProposedCall, /) -> bool | Awaitable[bool]:
        """Say whether the actor may run this call with these arguments."""
        ...
