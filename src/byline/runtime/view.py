"""From a stored run to what people and programs read."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from byline.approval.turn import PendingTurn
from byline.runs.run import Pending, Run, UncertainCall
from byline.runs.status import RunStatus, TerminationReason, UncertaintyReason
from byline.runtime.agent import Agent
from byline.runtime.retention import is_answer_too_old
from byline.store.protocol import StoredRun
from byline.tools.protocol import Verification


def view(
    stored: StoredRun, agents: Mapping[str, Agent], found: Verification = None, *, output_ttl: float | None = None
) -> Run:
    """Show a run. What hides a part of it, or would keep this process from executing it, is named in `problem`."""
    pending = uncertain = None
    if stored.status is RunStatus.AWAITING_APPROVAL and stored.turn is not None:
        pending = Pending(_expiring(stored, stored.turn, agents.get(stored.agent)), dict(stored.decided))
    if stored.status is RunStatus.UNCERTAIN and stored.fence is not None:
        reason = stored.reason if isinstance(stored.reason, UncertaintyReason) else UncertaintyReason.INTERRUPTED
        call = None if stored.turn is None else stored.turn.call(stored.fence.call_id)
        uncertain = UncertainCall(stored.run_id, stored.fence, reason, call, found)
    return Run(
        run_id=stored.run_id,
        agent=stored.agent,
        status=stored.status,
        reason=stored.reason,
        actor=stored.actor,
        created_at=stored.created_at,
        updated_at=stored.updated_at,
        cancel_requested=stored.cancel_requested,
        pending=pending,
        uncertain=uncertain,
        output=None if is_answer_too_old(stored, output_ttl) else stored.output,
        problem=problem(stored, agents) or _deferred(stored),
        due_at=None if stored.deferred_because is None else stored.due_at,
        purged_at=stored.purged_at,
    )


def _expiring(stored: StoredRun, turn: PendingTurn, agent: Agent | None) -> PendingTurn:
    """Say when the approval expires: the stricter of what was stored and what the loaded agent says."""
    if agent is None or agent.approval_ttl is None:
        return turn
    loaded = stored.updated_at + timedelta(seconds=agent.approval_ttl)  # nothing updates a run that waits
    return replace(turn, expires_at=loaded if turn.expires_at is None else min(loaded, turn.expires_at))


def _deferred(stored: StoredRun) -> str | None:
    """Say why whoever tried to execute the run last could not; this process may."""
    if stored.deferred_because is None or stored.reason is TerminationReason.MODEL_FAILED:
        return stored.deferred_because
    return f"it could not be executed: {stored.deferred_because}"


def problem(stored: StoredRun, agents: Mapping[str, Agent]) -> str | None:
    """Say why this process cannot read or execute a run that has not ended, or None."""
    if stored.problem is not None or stored.status.is_terminal:
        return stored.problem
    agent = agents.get(stored.agent)
    if agent is None:
        return f"agent {stored.agent!r} is not loaded in this process"
    if stored.turn is not None and stored.status in (RunStatus.AWAITING_APPROVAL, RunStatus.UNCERTAIN):
        loaded = {tool.spec.name for tool in agent.tools}
        missing = sorted({call.tool for call in stored.turn.calls} - loaded)
        if missing:
            return f"agent {stored.agent!r} has no tool {', '.join(map(repr, missing))} in this process"
    return None
