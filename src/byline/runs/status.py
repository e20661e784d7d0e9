"""The statuses of a run, the moves between them, and why a run stands where it stands."""

from enum import StrEnum
from types import MappingProxyType


class RunStatus(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    AWAITING_INPUT = "awaiting_input"
    UNCERTAIN = "uncertain"
    DEAD_LETTER = "dead_letter"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether the run has ended for good."""
        return not MOVES[self]


_WAITING_MOVES = frozenset({RunStatus.QUEUED, RunStatus.CANCELLED, RunStatus.FAILED})

MOVES = MappingProxyType(
    {
        RunStatus.QUEUED: frozenset({RunStatus.RUNNING, RunStatus.CANCELLED, RunStatus.FAILED}),
        RunStatus.RUNNING: frozenset(RunStatus) - {RunStatus.RUNNING},
        RunStatus.AWAITING_APPROVAL: _WAITING_MOVES,
        RunStatus.AWAITING_INPUT: _WAITING_MOVES,
        RunStatus.UNCERTAIN: frozenset({RunStatus.QUEUED}),
        RunStatus.DEAD_LETTER: _WAITING_MOVES,
        RunStatus.COMPLETED: frozenset[RunStatus](),
        RunStatus.FAILED: frozenset[RunStatus](),
        RunStatus.CANCELLED: frozenset[RunStatus](),
    }
)
"""The legal moves. The one copy: the store refuses any other."""

TERMINAL = frozenset(status for status, targets in MOVES.items() if not targets)


class TerminationReason(StrEnum):
    """Why a run ended, went to dead letter, or is queued anew."""

    ANSWERED = "answered"
    MAX_ROUNDS = "max_rounds"
    CANCELLED = "cancelled"
    APPROVAL_EXPIRED = "approval_expired"
    READ_ONLY_TOOL_WROTE = "read_only_tool_wrote"
    MODEL_FAILED = "model_failed"
    """Of a run that is queued: its model failed, and is asked again once the run is due."""
    NOT_RETRYABLE = "not_retryable"
    """Its model failed in a way that asking again does not mend."""
    RETRIES_EXHAUSTED = "retries_exhausted"
    """It was taken over, or its model failed, too often without progress."""
    RETENTION = "retention"
    """It stood in dead letter for longer than runs are kept."""


class UncertaintyReason(StrEnum):
    """Why nobody knows whether a write landed."""

    INTERRUPTED = "interrupted"
    """The segment died, or was stopped past its grace, between the fence and the stored result."""
    RAISED = "raised"
    """The tool raised something other than a ToolError."""
    TIMED_OUT = "timed_out"
    """The tool did not return before its deadline."""
    UNNAMED = "unnamed"
    """The tool succeeded and did not name its record."""
    NOT_REPEATABLE = "not_repeatable"
    """An interrupted idempotent write may not be repeated: the tool, a permission or the budget is gone."""
