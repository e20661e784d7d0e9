"""The processes of a round, and the faults that strike them."""

import heapq
import itertools
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait

from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from tests.crash.program import Order
from tests.crash.rounds.plan import BEAT, GRACE, LEASE, NO_GRACE, OF_A_DATABASE, Fault, Role, Stint, Strike
from tests.crash.rounds.site import RoundSite
from tests.crash.workers import Worker
from tests.store.own import OwnServer
from tests.store.servers import cut_connections

STEP = 0.05
"""Seconds after which the crew is looked after again, at the latest."""
HELD = 2.0
"""Seconds after which whatever is held at a point of the event loop goes on: there it hears no signal."""
ENDS = 60.0
"""Seconds that the processes get to end when they are told to."""


@dataclass(slots=True, eq=False)
class _Member:
    worker: Worker
    stint: Stint
    may_end_with: set[int] = field(default_factory=set)
    stopped: bool = False


class Crew:
    """Keeps a number of processes at work, lets planned faults strike them, and replaces those that end by one.

    Attributes:
        struck: the faults that struck, each with the point.
        wrong: what no process may do: end by itself, or not at all.
    """

    def __init__(self, site: RoundSite, server: OwnServer | None, *, lease: float = LEASE, beat: float = BEAT) -> None:
        self.struck: list[tuple[str, Fault]] = []
        self.wrong: list[str] = []
        self.started: Counter[str] = Counter()
        self._site = site
        self._server = server
        self._lease, self._beat = lease, beat
        self._members: list[_Member] = []
        self._stints: dict[Role, Iterator[Stint]] = {"worker": iter(()), "people": iter(())}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._locks: list[threading.Thread] = []
        self._ending = False

    def begin(self, stints: Sequence[Stint], workers: int) -> None:
        """Start people and workers, the planned ones first."""
        self._ending = False
        self._stints = {role: iter([stint for stint in stints if stint.role == role]) for role in self._stints}
        for role in ("people", *["worker"] * workers):
            self._start("people" if role == "people" else "worker")

    def _start(self, role: Role) -> None:
        stint = next(self._stints[role], None) or Stint(role)
        self.started["clock wrong"] += stint.off_by != 0
        self.started[role] += 1
        order = Order(
            "work" if role == "worker" else "attend",
            (),
            watched={strike.point for strike in stint.strikes},
            off_by=stint.off_by,
            serves=True,
            execution="queued",
            lease=self._lease,
            beat=self._beat,
            at_once=self._site.plan.at_once,
            grace=NO_GRACE if any(strike.fault is Fault.END_WITHOUT_GRACE for strike in stint.strikes) else GRACE,
        )
        log = self._site.path.parent / f"{role}-{next(self._numbers)}.log"
        self._members.append(_Member(Worker(order, self._site, log), stint))

    @property
    def is_calm(self) -> bool:
        """Whether nobody is stopped, and nothing is still to happen by the clock."""
        return not self._timers and not any(member.stopped for member in self._members)

    def until(self, done: Callable[[], bool], patience: float) -> bool:
        """Look after the crew until something is so. Returns whether it came to be."""
        give_up = time.monotonic() + patience
        while not done():
            if time.monotonic() > give_up:
                return False
            self._look_after()
        return True

    def workers(self) -> list[int]:
        """The process ids of the workers, the one that has been at work for longest first."""
        return [member.worker.pid for member in self._members if member.stint.role == "worker"]

    def kill(self, pid: int) -> None:
        """Kill one, wherever it is."""
        for member in self._members:
            if member.worker.pid == pid:
                self.struck.append(("anywhere", Fault.KILL))
                member.may_end_with = {-signal.SIGKILL}
                member.worker.signal(signal.SIGKILL)

    def end(self) -> None:
        """Tell everybody to end as a shutdown does, and wait for it."""
        self._ending = True
        for member in self._members:
            member.may_end_with |= {0, -signal.SIGTERM}
            member.worker.signal(signal.SIGTERM)
        if not self.until(lambda: not self._members, ENDS):
            said = "\n".join(member.worker.said() for member in self._members)
            self.wrong.append(f"{len(self._members)} processes did not end when they were told to:\n{said}")
        self.clear_away()

    def clear_away(self) -> None:
        for member in self._members:
            member.worker.clear_away()
        for thread in self._locks:
            thread.join()
        self._members, self._locks, self._timers = [], [], []

    def _look_after(self) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()
        soon = min((self._timers[0][0] - time.monotonic(), STEP)) if self._timers else STEP
        wait([waited for member in self._members for waited in member.worker.waitables], max(0.0, soon))
        for member in list(self._members):
            for point in member.worker.reached():
                self._strike(member, point)
            if (code := member.worker.exit_code) is not None:
                self._has_ended(member, code)

    def _has_ended(self, member: _Member, code: int) -> None:
        self._members.remove(member)
        # Who starts while the database is away says so and ends, as any service: it is started again.
        unlucky = "StoreUnavailable" in member.worker.said() and self._site.plan.faults() & OF_A_DATABASE
        if code not in member.may_end_with and not (code == 1 and unlucky):
            self.wrong.append(f"a process ended by itself with {code}:\n{member.worker.said()}")
        member.worker.clear_away()
        if not self._ending:
            self._start(member.stint.role)

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), do))

    def _strike(self, member: _Member, point: str) -> None:
        worker = member.worker
        strike = next(strike for strike in member.stint.strikes if strike.point == point)
        self.struck.append((point, strike.fault))
        match strike.fault:
            case Fault.KILL:
                member.may_end_with = {-signal.SIGKILL}
                worker.signal(signal.SIGKILL)
            case Fault.STOP:
                member.stopped = True
                worker.signal(signal.SIGSTOP)
                self._after(strike.seconds, lambda: self._comes_back(member, point))
            case Fault.END:
                self._ends(member)
                self._after(0.1, lambda: self._goes_on(member, point))
            case Fault.END_TWICE:
                self._ends(member)
                self._after(0.1, lambda: self._ends(member))
                self._after(HELD, lambda: self._goes_on(member, point))
            case Fault.END_WITHOUT_GRACE:
                self._ends(member)
                self._after(HELD, lambda: self._goes_on(member, point))
            case Fault.LOCK:
                self._locks.append(threading.Thread(target=self._lock, args=(strike,)))
                self._locks[-1].start()
                worker.go_on(point)
            case Fault.CUT:
                cut_connections(make_url(self._site.url))
                worker.go_on(point)
            case Fault.RESTART | Fault.CRASH:
                assert self._server is not None
                self._server.restart(crash=strike.fault is Fault.CRASH, away=strike.seconds)
                worker.go_on(point)

    def _ends(self, member: _Member) -> None:
        if member in self._members:
            member.may_end_with |= {0, -signal.SIGTERM}
            member.worker.signal(signal.SIGTERM)

    def _goes_on(self, member: _Member, point: str) -> None:
        if member in self._members:
            member.worker.go_on(point)

    def _comes_back(self, member: _Member, point: str) -> None:
        member.stopped = False
        if member in self._members:
            member.worker.go_on(point).signal(signal.SIGCONT)

    def _lock(self, strike: Strike) -> None:
        """Hold the lock that every write needs, from outside."""
        url = make_url(self._site.url)
        if url.get_backend_name() == "sqlite":
            connection = sqlite3.connect(str(url.database), isolation_level=None, timeout=30)
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(strike.seconds)
            connection.execute("ROLLBACK")
            connection.close()
            return
        engine = create_engine(url)
        with suppress(OperationalError), engine.connect() as locked:  # another fault may stop its server meanwhile
            locked.execute(text("LOCK TABLE byline_run IN ACCESS EXCLUSIVE MODE"))
            time.sleep(strike.seconds)
            locked.rollback()
        engine.dispose()
