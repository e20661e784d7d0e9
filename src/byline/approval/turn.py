"""The turn that waits: what an approver reads, what its digest binds, and what will run."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from pydantic import JsonValue, TypeAdapter

from byline.tools.effect import ToolEffect
from byline.tools.schema import canonical_json

DIGEST_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """One valid call of a waiting turn.

    Attributes:
        id: the call's id.
        tool: the tool's name.
        effect: the tool's effect as it stood when the turn was stored.
        arguments: the normalised arguments: what is shown, digested and executed.
        needs_decision: False for a call of the turn that waits only because another one does.
        preview: what the tool says it would do, for the approver.
        parameters: the JSON schema that the arguments fitted.
        proposed: the model's own arguments, when a person changed them.
        changed_by: the id of the person who changed them last.
        changed_before: the ids of those who had changed them before.
    """

    id: UUID
    tool: str
    effect: ToolEffect
    arguments: dict[str, JsonValue]
    needs_decision: bool
    preview: tuple[str, ...] = ()
    parameters: Mapping[str, JsonValue]
    proposed: dict[str, JsonValue] | None = None
    changed_by: str | None = None
    changed_before: tuple[str, ...] = ()

    @property
    def changers(self) -> frozenset[str]:
        """The ids of all who changed the arguments: each is a proposer of what is shown now."""
        return frozenset(self.changed_before if self.changed_by is None else (*self.changed_before, self.changed_by))


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedCall:
    """One call of a turn that nobody is asked about and that never runs: not offered, or not valid.

    Attributes:
        id: the call's id.
        tool: the name that the model called.
        error: what the model is told, so that it can mend the call.
        offered: whether there is a tool of that name; if so, its arguments were invalid.
    """

    id: UUID
    tool: str
    error: str
    offered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTurn:
    """The calls of one model answer that have no result yet, with the gate's facts as they stood.

    Attributes:
        run_id: the run.
        suspension: how often the run has been suspended, this time included.
        agent: the agent's name.
        second_approver: whether the initiator may not release it.
        calls: the valid calls, in the model's order.
        rejected: the calls that never run.
        approval_ttl: seconds until the approval expires, or None.
        expires_at: when it expires, by the store's clock, or None.
    """

    run_id: UUID
    suspension: int
    agent: str
    second_approver: bool
    calls: tuple[PendingCall, ...]
    rejected: tuple[RejectedCall, ...] = ()
    approval_ttl: float | None = None
    expires_at: datetime | None = None

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, over what a decision binds to (P13). Previews are no part of it."""
        bound: dict[str, JsonValue] = {
            "format": DIGEST_FORMAT,
            "run": str(self.run_id),
            "suspension": self.suspension,
            "agent": self.agent,
            "calls": [
                {
                    "id": str(call.id),
                    "tool": call.tool,
                    "effect": call.effect.value,
                    "arguments": call.arguments,
                }
                for call in self.calls
            ],
        }
        return hashlib.sha256(canonical_json(bound).encode()).hexdigest()

    @property
    def waiting(self) -> frozenset[UUID]:
        """The ids of the calls that need a decision."""
        return frozenset(call.id for call in self.calls if call.needs_decision)

    def holds(self, call_ids: Collection[UUID]) -> bool:
        """Whether one of these calls belongs to this turn."""
        return any(call.id in call_ids for call in self.calls) or any(call.id in call_ids for call in self.rejected)

    def call(self, call_id: UUID) -> PendingCall | None:
        """Find a valid call by its id."""
        return next((call for call in self.calls if call.id == call_id), None)


def stricter_ttl(stored: float | None, loaded: float | None) -> float | None:
    """Return the shorter of two times to live; None is for ever."""
    return min((ttl for ttl in (stored, loaded) if ttl is not None), default=None)


_TURN = TypeAdapter(PendingTurn)


def dump_turn(turn: PendingTurn) -> bytes:
    """Write a turn as JSON."""
    return _TURN.dump_json(turn)


def load_turn(data: bytes) -> PendingTurn:
    """Read a turn that `dump_turn` wrote.

    Raises:
        ValueError: the data is no turn.
    """
    return _TURN.validate_json(data)
