"""What of a step reaches the store, at each privacy level (P23).

A payload key that is not on the list below is not stored, at any level, whoever puts it into a step.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from byline.privacy import PrivacyLevel, redact
from byline.runs.steps import NewStep, StepKind

_NEEDED: Final[Mapping[StepKind, frozenset[str]]] = MappingProxyType(
    {
        StepKind.MODEL: frozenset(),
        StepKind.SUSPENDED: frozenset({"digest", "by"}),
        StepKind.TOOL: frozenset({"outcome", "by", "attempt"}),
        StepKind.WRITE: frozenset(),
        StepKind.UNCERTAIN: frozenset({"attempt", "reason"}),
        StepKind.RECONCILED: frozenset(),
        StepKind.HANDED_BACK: frozenset(),
        StepKind.TAKEN_OVER: frozenset(),
        StepKind.SETTLED: frozenset({"status", "reason"}),
    }
)
"""What the promises need: how a call ended, who decided, why a run stands where it stands."""

_METADATA: Final[Mapping[StepKind, frozenset[str]]] = MappingProxyType(
    {
        **_NEEDED,
        StepKind.MODEL: frozenset({"calls", "input_tokens", "output_tokens", "seconds", "failed"}),
        StepKind.SUSPENDED: _NEEDED[StepKind.SUSPENDED] | {"calls", "proposed", "arguments"},  # digests, no content
        StepKind.TOOL: _NEEDED[StepKind.TOOL] | {"tool", "effect", "seconds"},
        StepKind.UNCERTAIN: _NEEDED[StepKind.UNCERTAIN] | {"tool"},
    }
)

ALLOWED: Final[Mapping[PrivacyLevel, Mapping[StepKind, frozenset[str]]]] = MappingProxyType(
    {
        PrivacyLevel.NONE: _NEEDED,
        PrivacyLevel.METADATA: _METADATA,
        PrivacyLevel.REDACTED: _METADATA,
        PrivacyLevel.FULL: _METADATA,
    }
)
"""The payload keys that are stored. Content is never among them: it is sealed, in the step's detail."""


def kept(step: NewStep, level: PrivacyLevel) -> NewStep:
    """Return what is stored of a step."""
    allowed = ALLOWED[level][step.kind]
    payload = MappingProxyType({key: value for key, value in step.payload.items() if key in allowed})
    return replace(step, payload=payload, detail=_detail(step, level), content=None)


def _detail(step: NewStep, level: PrivacyLevel) -> str | None:
    match level:
        case PrivacyLevel.NONE:
            return None
        case PrivacyLevel.METADATA:
            return step.detail
        case PrivacyLevel.REDACTED:
            said = step.content or step.detail
            return None if said is None else redact(said)
        case PrivacyLevel.FULL:
            return step.content or step.detail
