"""What a tool is told about the call it serves."""

import time
from dataclasses import dataclass
from uuid import UUID

from byline.actors import AiActorContext


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool is told about the call it serves.

    Attributes:
        run: the run's uuid, the correlation id of all it does; None in a bare `ToolLoop`.
        actor: who the run acts for. Check their right on the record, and refuse with one neutral sentence.
        call_id: the call's id, minted by Byline, unique for ever.
        attempt: 1, or more when an earlier attempt of this call may have written.
        claim: a number that grows with every segment that executes the run; a host that keeps the
            highest it has seen can refuse a stale writer. 0 in a bare `ToolLoop`.
        deadline: when the call's time is up, on the monotonic clock (`time.monotonic()`), or None.
        resources: what the host gave to `AgentRuntime(resources=…)`.
    """

    run: UUID | None
    actor: AiActorContext
    call_id: UUID
    attempt: int
    claim: int
    deadline: float | None
    resources: object

    @property
    def idempotency_key(self) -> str:
        """A key of this call: equal across its attempts and restarts, new for a new call."""
        return str(self.call_id)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline (negative when it has passed), or None when there is none."""
        return None if self.deadline is None else self.deadline - time.monotonic()
