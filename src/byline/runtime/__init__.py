"""The runtime: agents, their runs, the executor of one segment, decisions and recovery."""

from byline.runtime.agent import Agent
from byline.runtime.executor import Recovery
from byline.runtime.runtime import AgentRuntime
from byline.runtime.sync import SyncRuntime

__all__ = ["Agent", "AgentRuntime", "Recovery", "SyncRuntime"]
