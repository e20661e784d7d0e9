"""A store whose commits fail: before they are made, or after, so that only their answer is lost."""

import sqlite3
from collections.abc import Callable
from typing import Literal

from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from byline.store.sql import SqlStore


class Silence:
    """Makes commits of a store fail from the moment it is told to.

    Attributes:
        lost: what of a failing commit is lost: all of it, or its answer only.
        fails: asked at each commit whether it fails.
        refused: how many have failed.
    """

    def __init__(self, store: SqlStore, *, lost: Literal["commit", "answer"] = "commit") -> None:
        self.lost = lost
        self.fails: Callable[[], bool] = lambda: False
        self.refused = 0
        event.listen(store.engine, "commit", self._on_commit)

    def begin(self, commits: int | None = None) -> None:
        """Fail every commit from now on, or the next ones only."""
        last = None if commits is None else self.refused + commits
        self.fails = lambda: last is None or self.refused < last

    def end(self) -> None:
        """Let commits succeed again."""
        self.fails = lambda: False

    def _on_commit(self, connection: Connection) -> None:
        if not self.fails():
            return
        self.refused += 1
        if self.lost == "answer":
            connection.connection.commit()
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise OperationalError("COMMIT", {}, error)
