"""Byline: AI agents change records, a person approves each write, and people know.

`CONSUMER_API` is what an application calls; `EXTENSION_POINTS` is what a host or a third party implements.
"""

from typing import TYPE_CHECKING

from byline.actors import AiActorContext, Authority, Grant, ProposedCall, Scope
from byline.announcing import AfterAiRecordWrittenEvent, EventDispatcher, Listener, ListenerDispatcher
from byline.approval.decision import (
    Approve,
    CallVerdict,
    Change,
    Decision,
    Deny,
    ReconcileVerdict,
    Reconciliation,
)
from byline.approval.fence import Fence, FenceVerdict
from byline.approval.turn import PendingCall, PendingTurn, RejectedCall
from byline.driving import (
    AboutToWrite,
    Answered,
    CallOutcome,
    CallReport,
    Conversation,
    Ended,
    Finished,
    Lied,
    LoopRun,
    LoopStep,
    ModelFailed,
    Suspended,
    Uncertain,
)
from byline.errors import (
    AlreadyDecided,
    ApprovalExpired,
    BylineError,
    ConfigurationError,
    ContextTooLong,
    DedupeConflict,
    InvalidArguments,
    InvalidIdentifier,
    KeyInUse,
    KeyMissing,
    ModelAccessDenied,
    ModelError,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
    ModelUnreachable,
    NativeUnreadable,
    NotAllowed,
    NotDecidable,
    NotRetryable,
    RunFinished,
    RuntimeClosed,
    SchemaMismatch,
    SealBroken,
    StaleDecision,
    StoreError,
    StoreUnavailable,
    ToolContractBroken,
    ToolError,
    ToolNotLoaded,
    UnknownAgent,
    UnknownCall,
    UnknownKey,
    UnknownRun,
)
from byline.loop import ToolLoop
from byline.models import (
    AssistantMessage,
    ChatModel,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    NativePart,
    OfferedTool,
    PydanticAiModel,
    ToolMessage,
    Usage,
    UserMessage,
)
from byline.privacy import PrivacyLevel
from byline.records import RecordReference, WriteKind
from byline.runs.run import Pending, Run, UncertainCall
from byline.runs.status import RunStatus, TerminationReason, UncertaintyReason
from byline.runs.steps import Step, StepKind, WriteFact
from byline.runtime import Agent, AgentRuntime, Backoff, Recovery, SyncRuntime, Wakeup
from byline.store.protocol import LateReport, Purged, RunStore
from byline.telemetry import Telemetry
from byline.tools import (
    FunctionTool,
    Landed,
    NotLanded,
    Tool,
    Toolbox,
    ToolContext,
    ToolEffect,
    ToolResult,
    ToolSpec,
    tool,
)
from byline.tools.result import WriteTarget

if TYPE_CHECKING:
    from byline.store.sealing import KeyRing

__all__ = [
    "AboutToWrite",
    "AfterAiRecordWrittenEvent",
    "Agent",
    "AgentRuntime",
    "AiActorContext",
    "AlreadyDecided",
    "Answered",
    "ApprovalExpired",
    "Approve",
    "AssistantMessage",
    "Authority",
    "Backoff",
    "BylineError",
    "CallOutcome",
    "CallReport",
    "CallVerdict",
    "Change",
    "ChatModel",
    "ConfigurationError",
    "ContextTooLong",
    "Conversation",
    "Decision",
    "DedupeConflict",
    "Deny",
    "Ended",
    "EventDispatcher",
    "Fence",
    "FenceVerdict",
    "Finished",
    "FunctionTool",
    "Grant",
    "InvalidArguments",
    "InvalidIdentifier",
    "KeyInUse",
    "KeyMissing",
    "KeyRing",
    "Landed",
    "LateReport",
    "Lied",
    "Listener",
    "ListenerDispatcher",
    "LoopRun",
    "LoopStep",
    "ModelAccessDenied",
    "ModelAnswer",
    "ModelCall",
    "ModelError",
    "ModelFailed",
    "ModelRateLimited",
    "ModelRefused",
    "ModelRequest",
    "ModelUnavailable",
    "ModelUnreachable",
    "NativePart",
    "NativeUnreadable",
    "NotAllowed",
    "NotDecidable",
    "NotLanded",
    "NotRetryable",
    "OfferedTool",
    "Pending",
    "PendingCall",
    "PendingTurn",
    "PrivacyLevel",
    "ProposedCall",
    "Purged",
    "PydanticAiModel",
    "ReconcileVerdict",
    "Reconciliation",
    "RecordReference",
    "Recovery",
    "RejectedCall",
    "Run",
    "RunFinished",
    "RunStatus",
    "RunStore",
    "RuntimeClosed",
    "SchemaMismatch",
    "Scope",
    "SealBroken",
    "StaleDecision",
    "Step",
    "StepKind",
    "StoreError",
    "StoreUnavailable",
    "Suspended",
    "SyncRuntime",
    "Telemetry",
    "TerminationReason",
    "Tool",
    "ToolContext",
    "ToolContractBroken",
    "ToolEffect",
    "ToolError",
    "ToolLoop",
    "ToolMessage",
    "ToolNotLoaded",
    "ToolResult",
    "ToolSpec",
    "Toolbox",
    "Uncertain",
    "UncertainCall",
    "UncertaintyReason",
    "UnknownAgent",
    "UnknownCall",
    "UnknownKey",
    "UnknownRun",
    "Usage",
    "UserMessage",
    "Wakeup",
    "WriteFact",
    "WriteKind",
    "WriteTarget",
    "tool",
]

EXTENSION_POINTS = ("Authority", "ChatModel", "EventDispatcher", "Listener", "RunStore", "Tool", "Wakeup")
CONSUMER_API = tuple(name for name in __all__ if name not in EXTENSION_POINTS)

if not TYPE_CHECKING:  # a type checker that saw it would let any name pass

    def __getattr__(name: str) -> object:
        if name == "KeyRing":  # with what it seals with: costly to import, and rarely named
            from byline.store.sealing import KeyRing

            return KeyRing
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
