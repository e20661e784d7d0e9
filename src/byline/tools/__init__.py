"""Tools: what one is, what it declares, and how one is made of a function."""

from byline.tools.context import ToolContext
from byline.tools.effect import ToolEffect
from byline.tools.function import FunctionTool, tool
from byline.tools.protocol import Landed, NotLanded, Tool, ToolSpec, Verification
from byline.tools.result import ToolResult, WriteTarget
from byline.tools.toolbox import Toolbox

__all__ = [
    "FunctionTool",
    "Landed",
    "NotLanded",
    "Tool",
    "ToolContext",
    "ToolEffect",
    "ToolResult",
    "ToolSpec",
    "Toolbox",
    "Verification",
    "WriteTarget",
    "tool",
]
