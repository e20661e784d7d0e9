"""Models: the port behind which every provider stands, and the messages that pass through it."""

from byline.models.adapter import PydanticAiModel
from byline.models.messages import (
    AssistantMessage,
    Message,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    NativePart,
    OfferedTool,
    ToolMessage,
    Usage,
    UserMessage,
)
from byline.models.protocol import ChatModel
from byline.models.scripted import ScriptedModel, call

__all__ = [
    "AssistantMessage",
    "ChatModel",
    "Message",
    "ModelAnswer",
    "ModelCall",
    "ModelRequest",
    "NativePart",
    "OfferedTool",
    "PydanticAiModel",
    "ScriptedModel",
    "ToolMessage",
    "Usage",
    "UserMessage",
    "call",
]
