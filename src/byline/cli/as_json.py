"""What programs read: one JSON object a line, in ASCII, times in UTC, ids whole."""

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import JsonValue

from byline.approval.decision import CallVerdict
from byline.approval.turn import PendingCall
from byline.cli.output import write
from byline.runs.run import Pending, Run, UncertainCall
from byline.runs.steps import Step, WriteFact
from byline.tools.protocol import Landed, Verification
from byline.tools.result import WriteTarget

Json = Mapping[str, JsonValue]


def print_json(value: Json) -> None:
    """Print one object as a line. It is ASCII: what is stored cannot steer a terminal that it is printed on."""
    write(sys.stdout, json.dumps(dict(value)) + "\n")


def time_json(at: datetime | None) -> str | None:
    """Write a time as ISO 8601 in UTC."""
    return None if at is None else at.astimezone(UTC).isoformat()


def run_json(run: Run) -> dict[str, JsonValue]:
    """Write a run."""
    return {
        "run_id": str(run.run_id),
        "agent": run.agent,
        "status": run.status.value,
        "reason": None if run.reason is None else run.reason.value,
        "actor": {"id": run.actor.id, "scope": run.actor.scope.value},
        "created_at": time_json(run.created_at),
        "updated_at": time_json(run.updated_at),
        "cancel_requested": run.cancel_requested,
        "pending": None if run.pending is None else _pending(run.pending),
        "uncertain": None if run.uncertain is None else _uncertain(run.uncertain),
        "output": run.output,
        "problem": run.problem,
        "due_at": time_json(run.due_at),
        "purged_at": time_json(run.purged_at),
    }


def _pending(pending: Pending) -> dict[str, JsonValue]:
    return {
        "digest": pending.digest,
        "expires_at": time_json(pending.expires_at),
        "second_approver": pending.turn.second_approver,
        "calls": [_call(call, pending.decided.get(call.id)) for call in pending.calls],
        "rejected": [{"call_id": str(call.id), "tool": call.tool, "error": call.error} for call in pending.rejected],
    }


def _call(call: PendingCall, decided: CallVerdict | None = None) -> dict[str, JsonValue]:
    return {
        "call_id": str(call.id),
        "tool": call.tool,
        "effect": call.effect.value,
        "needs_decision": call.needs_decision,
        "arguments": call.arguments,
        "proposed": call.proposed,
        "changed_by": call.changed_by,
        "preview": list(call.preview),
        "decided": None if decided is None else _verdict(decided),
    }


def _verdict(decided: CallVerdict) -> dict[str, JsonValue]:
    return {
        "verdict": type(decided.verdict).__name__.lower(),
        "reason": getattr(decided.verdict, "reason", None),
        "by": decided.actor_id,
        "at": time_json(decided.at),
    }


def _uncertain(uncertain: UncertainCall) -> dict[str, JsonValue]:
    return {
        "digest": uncertain.digest,
        "call_id": str(uncertain.call_id),
        "tool": uncertain.fence.tool,
        "effect": uncertain.fence.effect.value,
        "attempt": uncertain.fence.attempt,
        "reason": uncertain.reason.value,
        "arguments": None if uncertain.call is None else uncertain.call.arguments,
        "preview": None if uncertain.call is None else list(uncertain.call.preview),
        "found": found_json(uncertain.found),
    }


def found_json(found: Verification) -> JsonValue:
    """Write what a tool's `verify` found."""
    if isinstance(found, Landed):
        return {"landed": True, "record": str(found.record), "kind": found.kind.value}
    return None if found is None else {"landed": False}


def step_json(step: Step) -> dict[str, JsonValue]:
    """Write a step."""
    return {
        "position": step.position,
        "run_id": str(step.run_id),
        "kind": step.kind.value,
        "at": time_json(step.at),
        "call_id": None if step.call_id is None else str(step.call_id),
        "payload": dict(step.payload),
        **_target(step.target),
        "detail": step.detail,
    }


def _target(target: WriteTarget | None) -> dict[str, JsonValue]:
    return {
        "record": None if target is None else str(target.record),
        "write_kind": None if target is None else target.kind.value,
    }


def write_json(fact: WriteFact) -> dict[str, JsonValue]:
    """Write an announced write."""
    return {
        "cursor": fact.cursor,
        "correlation_id": str(fact.correlation_id),
        "record": str(fact.record),
        "kind": fact.kind.value,
        "at": time_json(fact.at),
    }
