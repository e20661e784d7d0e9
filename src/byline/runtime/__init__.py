"""The runtime: agents, their runs, the executor of one segment, decisions and recovery."""

from byline.runtime.agent import Agent
from byline.runtime.executor import Recovery
from byline.runtime.retrying import Backoff
from byline.runtime.runtime import AgentRuntime
from byline.runtime.sync import SyncRuntime
from byline.runtime.wakeup import Wakeup

__all__ = ["Agent", "AgentRuntime", "Backoff", "Recovery", "SyncRuntime", "Wakeup"]
