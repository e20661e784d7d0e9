"""From what a loop did to what the trace keeps: metadata in the open, content sealed."""

import json

from byline.approval.decision import CallVerdict
from byline.driving import CallOutcome, CallReport
from byline.models.messages import AssistantMessage
from byline.runs.steps import NewStep, StepKind


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
    )


def call_steps(report: CallReport, decided: CallVerdict | None = None) -> tuple[NewStep, ...]:
    """Record how a call ended, who let it or refused it, and the write it announced as a step of its own kind."""
    approved_by = decided.actor_id if decided is not None and report.attempt > 0 else None
    detail: str | None = None
    if report.outcome not in (CallOutcome.SUCCEEDED, CallOutcome.UNCHANGED):
        detail = report.message.text
    elif report.artifacts:
        detail = json.dumps(dict(report.artifacts))
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
        detail=detail,
    )
    if report.written is None:
        return (step,)
    return (step, NewStep(StepKind.WRITE, report.call_id, target=report.written))
