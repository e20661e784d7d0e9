"""How a process dies inside a write: just before the site's commit, or just behind it."""

import os
import signal
from collections.abc import Callable
from enum import StrEnum

from sqlalchemy import event
from sqlalchemy.orm import Session

from examples.newsroom.models import HistoryEntry
from examples.newsroom.site import Site


class Moment(StrEnum):
    """Where in a write something happens."""

    BEFORE = "before"
    AFTER = "after"


def on_commit(site: Site, moment: Moment, happens: Callable[[HistoryEntry], None]) -> None:
    """Let something happen before or behind each commit that holds an entry for the history."""
    held = object()  # where this call keeps the entry: another one may listen beside it

    def before(session: Session) -> None:
        for entry in session.new:
            if isinstance(entry, HistoryEntry):
                session.info[held] = entry
                if moment is Moment.BEFORE:
                    happens(entry)

    def after(session: Session) -> None:
        entry = session.info.pop(held, None)
        if moment is Moment.AFTER and isinstance(entry, HistoryEntry):
            happens(entry)

    event.listen(site.writers, "before_commit", before)
    event.listen(site.writers, "after_commit", after)


def die(entry: HistoryEntry) -> None:
    """End this process as nothing can catch it."""
    os.kill(os.getpid(), signal.SIGKILL)
