"""From what a loop did to what the trace may keep: metadata in the open, content sealed.

How much of it is stored is decided by the run's privacy level, in `byline.runs.keeping`.
"""

import json

from pydantic import JsonValue

from byline.approval.decision import CallVerdict
from byline.approval.turn import PendingTurn
from byline.driving import CallOutcome, CallReport
from byline.models.messages import AssistantMessage
from byline.runs.steps import NewStep, StepKind
from byline.tools.schema import canonical_json


def model_step(message: AssistantMessage, seconds: float) -> NewStep:
    """Record one answer: how many calls, how many tokens, how long."""
    usage = message.answer.usage
    return NewStep(
        StepKind.MODEL,
        payload={
            "calls": len(message.call_ids),
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "seconds": round(seconds, 6),
        },
        content=_lines(message.answer.text, *(f"{call.name} {call.arguments}" for call in message.answer.calls)),
    )


def suspended_step(turn: PendingTurn) -> NewStep:
    """Record that a turn waits, and what an approver is shown of it."""
    shown = ("\n".join((f"{call.tool} {canonical_json(dict(call.arguments))}", *call.preview)) for call in turn.calls)
    payload: dict[str, JsonValue] = {"calls": len(turn.calls), "digest": turn.digest}
    return NewStep(StepKind.SUSPENDED, payload=payload, content=_lines(*shown))


def call_steps(report: CallReport, decided: CallVerdict | None = None) -> tuple[NewStep, ...]:
    """Record how a call ended, who let it or refused it, and the write it announced as a step of its own kind."""
    approved_by = decided.actor_id if decided is not None and report.attempt > 0 else None
    artifacts = json.dumps(dict(report.artifacts), ensure_ascii=False) if report.artifacts else None
    well = report.outcome in (CallOutcome.SUCCEEDED, CallOutcome.UNCHANGED)
    step = NewStep(
        StepKind.TOOL,
        report.call_id,
        {
            # What a model called that is no tool is the model's own text, and so content.
            "tool": None if report.outcome is CallOutcome.NOT_OFFERED else report.tool,
            "effect": None if report.effect is None else report.effect.value,
            "outcome": report.outcome.value,
            "by": report.by or approved_by,
            "attempt": report.attempt,
            "seconds": round(report.seconds, 6),
        },
        detail=artifacts if well else report.message.text,
        content=_lines(report.message.text, artifacts),
    )
    if report.written is None:
        return (step,)
    return (step, NewStep(StepKind.WRITE, report.call_id, target=report.written))


def _lines(*parts: str | None) -> str | None:
    return "\n".join(part for part in parts if part) or None
