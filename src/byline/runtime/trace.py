"""From what a loop did to what the trace keeps: metadata in the open, content sealed."""

import json
from collections.abc import Iterable
from uuid import UUID

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


def call_steps(report: CallReport) -> tuple[NewStep, ...]:
    """Record how a call ended, and the write it announced as a step of its own kind."""
    detail: str | None = None
    if report.outcome not in (CallOutcome.SUCCEEDED, CallOutcome.UNCHANGED):
        detail = report.message.text
    elif report.artifacts:
        detail = json.dumps(dict(report.artifacts))
    step = NewStep(
        StepKind.TOOL,
        report.call_id,
        {
            "tool": report.tool,
            "effect": None if report.effect is None else report.effect.value,
            "outcome": report.outcome.value,
            "by": report.by,
            "attempt": report.attempt,
            "seconds": round(report.seconds, 6),
        },
        detail=detail,
    )
    if report.written is None:
        return (step,)
    return (step, NewStep(StepKind.WRITE, report.call_id, target=report.written))


def cancelled_steps(open_calls: Iterable[tuple[UUID, str]]) -> tuple[NewStep, ...]:
    """Record the calls that a cancel left without a result: every call has one."""
    return tuple(
        NewStep(StepKind.TOOL, call_id, {"tool": tool, "outcome": CallOutcome.CANCELLED.value})
        for call_id, tool in open_calls
    )
