"""The fence: the durable mark "this call is about to write", and what is known of a call it stands before."""

import hashlib
from dataclasses import dataclass
from uuid import UUID

from pydantic import JsonValue

from byline.approval.decision import ReconcileVerdict
from byline.tools.effect import ToolEffect
from byline.tools.result import WriteTarget
from byline.tools.schema import canonical_json


@dataclass(frozen=True, slots=True)
class Fence:
    """The durable mark "this call is about to write", set before the write, cleared with its result."""

    call_id: UUID
    tool: str
    effect: ToolEffect
    attempt: int

    def digest(self, run_id: UUID) -> str:
        """SHA-256, in hexadecimal, that binds a reconciliation to this attempt of this call of the run."""
        bound: dict[str, JsonValue] = {
            "format": 1,
            "run": str(run_id),
            "uncertain": str(self.call_id),
            "attempt": self.attempt,
        }
        return hashlib.sha256(canonical_json(bound).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class FenceVerdict:
    """What is known about the fenced call: a person's word, or a fact's (`actor_id` None).

    `denied` names the other calls of the turn that are not to run any more.
    """

    verdict: ReconcileVerdict
    target: WriteTarget | None
    actor_id: str | None
    denied: frozenset[UUID] = frozenset()
