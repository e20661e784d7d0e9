"""The heartbeat: extends the leases of the runs that this process executes, on a thread of its own."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from byline.errors import ClaimLost
from byline.store.protocol import Claim, RunStore

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Holding:
    """One claim that this process holds, as far as it knows.

    Attributes:
        claim: the claim.
        lease: its length in seconds.
        margin: seconds before the lease's end at which no new effect may begin.
        beaten_at: the monotonic time just before the last heartbeat that succeeded was sent.
        told: called on the heartbeat's thread at each beat: whether the claim is lost, whether a cancel was requested.
    """

    claim: Claim
    lease: float
    margin: float
    beaten_at: float
    told: Callable[[bool, bool], None]
    lost: bool = field(default=False)

    def check(self) -> None:
        """Refuse to go on unless the last heartbeat is young enough (P18). Runs directly before an effect.

        Raises:
            ClaimLost: another segment may hold the run by now.
        """
        if self.lost or time.monotonic() - self.beaten_at > self.lease - self.margin:
            raise ClaimLost("the lease could not be extended in time; another segment may execute this run now")


class Heartbeat:
    """One thread that beats for all claims of a runtime. It waits for nothing that a tool, listener or loop does."""

    def __init__(self, store: RunStore, *, lease: float, interval: float) -> None:
        self._store = store
        self._lease = lease
        self._interval = interval
        self._holdings: dict[Claim, Holding] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, claim: Claim, claimed_at: float, told: Callable[[bool, bool], None]) -> Holding:
        """Begin to beat for a claim. `claimed_at` is the monotonic time just before it was asked for."""
        holding = Holding(claim, self._lease, self._interval, claimed_at, told)
        with self._lock:
            self._holdings[claim] = holding
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat_on, name="byline-heartbeat", daemon=True)
                self._thread.start()
        return holding

    def release(self, holding: Holding) -> None:
        """Beat for this claim no more."""
        with self._lock:
            self._holdings.pop(holding.claim, None)

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self._interval)

    def _beat_on(self) -> None:
        while not self._stop.wait(self._interval):
            with self._lock:
                holdings = list(self._holdings.values())
            if holdings:
                self._beat(holdings)

    def _beat(self, holdings: list[Holding]) -> None:
        sent_at = time.monotonic()
        try:
            beats = self._store.beat([holding.claim for holding in holdings], lease=self._lease)
        except Exception:  # noqa: BLE001 - what was not extended grows old, and `check` stops it; the next beat may do
            _log.exception("A heartbeat failed", extra={"action": "heartbeat_failed"})
            return
        for holding in holdings:
            beat = beats[holding.claim]
            holding.lost = not beat.held
            if beat.held:
                holding.beaten_at = sent_at
            holding.told(holding.lost, beat.cancel_requested)
