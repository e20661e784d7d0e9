"""The named points of a write's way: a process that reaches one of them can be held there, and killed or stopped.

The store's points are "entering X" (before its transaction begins), "before X" (all is written, COMMIT is next)
and "after X" (COMMIT has answered, nobody has been told). The others lie in the model, the tools and the listener.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TypeVar
from uuid import UUID

from sqlalchemy import event

from byline.models.messages import AssistantMessage
from byline.privacy import PrivacyLevel
from byline.runs.status import RunStatus
from byline.store.protocol import (
    Beat,
    BecomeUncertain,
    Change,
    Claim,
    Claimed,
    HandBack,
    LateReport,
    NewRun,
    Postpone,
    Progress,
    Release,
    Ruling,
    SetFence,
    Settle,
    Settlement,
    StoredRun,
    Suspend,
)
from byline.store.sealing import KeyRing
from byline.store.sql import SqlStore

T = TypeVar("T")

STORED = (
    "create", "claim", "beat", "answer", "suspend", "fence", "step", "hand back", "release", "uncertain", "settle",
    "decide", "reconcile", "late report",
)  # fmt: skip
ELSEWHERE = (
    "first answer", "closing answer", "execute begins", "in execute", "host committed", "dispatching",
    "listener told", "listener heard", "stopping",
)  # fmt: skip
KNOWN = frozenset({f"{stage} {what}" for stage in ("entering", "before", "after") for what in STORED} | {*ELSEWHERE})


class Points:
    """Tells a test that a watched point is reached, and waits there until the test says so.

    A point is watched the first time that it is reached; "fence 2" is the second time. Several threads may wait,
    each at its own.
    """

    def __init__(self, wire: Connection | None = None, watched: Collection[str] = ()) -> None:
        unknown = {name for name in watched if name.rstrip(" 0123456789") not in KNOWN}
        if unknown:
            raise ValueError(f"there are no such points: {sorted(unknown)}")
        self._wire = wire
        self._left = {name: threading.Event() for name in watched}
        self._reached: Counter[str] = Counter()
        self._lock = threading.Lock()
        if wire is not None:
            threading.Thread(target=self._listen, args=(wire,), daemon=True).start()

    def _listen(self, wire: Connection) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._left[wire.recv()].set()

    def watches(self, name: str) -> bool:
        return name in self._left

    def reach(self, name: str) -> None:
        """Pass a point: at once, or when the test says so."""
        with self._lock:
            self._reached[name] += 1
            times = self._reached[name]
            numbered = name if times == 1 else f"{name} {times}"
            if numbered not in self._left or self._wire is None:
                return
            self._wire.send(numbered)
        self._left[numbered].wait()


class PointedStore(SqlStore):
    """The SQL store, with its points. `heartless`: no heartbeat reaches the database."""

    def __init__(
        self,
        url: str,
        points: Points,
        *,
        keys: KeyRing | None = None,
        clock: Callable[[], float] | None = None,
        heartless: bool = False,
    ) -> None:
        super().__init__(url, keys=keys, clock=clock)
        self._points = points
        self._doing = threading.local()
        self._heartless = heartless
        event.listen(self.engine, "commit", self._committing)

    def _committing(self, _connection: object) -> None:
        name: str | None = getattr(self._doing, "name", None)
        if name is not None:
            self._points.reach(f"before {name}")

    def _at(self, name: str, do: Callable[[], T]) -> T:
        self._points.reach(f"entering {name}")
        self._doing.name = name
        try:
            done = do()
        finally:
            self._doing.name = None
        self._points.reach(f"after {name}")
        return done

    def create(self, new: NewRun, *, lease: float | None) -> Claim | StoredRun | None:
        create = super().create
        return self._at("create", lambda: create(new, lease=lease))

    def claim(
        self, run_id: UUID, *, lease: float, takeovers: int, privacy: PrivacyLevel = PrivacyLevel.METADATA
    ) -> Claimed | None:
        claim = super().claim
        return self._at("claim", lambda: claim(run_id, lease=lease, takeovers=takeovers, privacy=privacy))

    def beat(self, claims: Collection[Claim], *, lease: float) -> Mapping[Claim, Beat]:
        if self._heartless:
            raise ConnectionError("this heartbeat reaches no database")
        beat = super().beat
        return self._at("beat", lambda: beat(claims, lease=lease))

    def advance(self, claim: Claim, change: Change, *, at: int, revision: int) -> bool:
        advance = super().advance
        return self._at(_name(change), lambda: advance(claim, change, at=at, revision=revision))

    def decide(self, ruling: Ruling) -> RunStatus:
        decide = super().decide
        return self._at("decide", lambda: decide(ruling))

    def reconcile(self, settlement: Settlement) -> None:
        reconcile = super().reconcile
        self._at("reconcile", lambda: reconcile(settlement))

    def report_late(self, report: LateReport) -> LateReport:
        report_late = super().report_late
        return self._at("late report", lambda: report_late(report))


def _name(change: Change) -> str:
    match change:
        case Progress(messages=messages):
            return "answer" if any(isinstance(message, AssistantMessage) for message in messages) else "step"
        case SetFence():
            return "fence"
        case Suspend():
            return "suspend"
        case HandBack():
            return "hand back"
        case Release():
            return "release"
        case Postpone():
            return "postpone"
        case BecomeUncertain():
            return "uncertain"
        case Settle():
            return "settle"
