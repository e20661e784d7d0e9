"""The story with a crash: the process is killed inside the write that must not be repeated, and another one goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import override

from byline import Reconciliation, RecordReference, Run, RunStatus, WriteKind
from byline.runtime.sync import SyncRuntime
from examples.quickstart.application import LEASE
from examples.quickstart.seed import APPROVER
from examples.quickstart.site import Element, Site
from examples.quickstart.story import PAGE, THE_APPROVER, close, open_runtime, tell
from examples.quickstart.terminal import Terminal

POLL = 0.2
"""Seconds between two looks for a run that nobody executes."""


class DeadlySite(Site):
    """A site that kills its process with SIGKILL when a draft has just been committed."""

    @override
    def add_element(self, page_id: int, heading: str, body: str, *, editor: str) -> Element:
        super().add_element(page_id, heading, body, editor=editor)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("nobody comes back from SIGKILL")
