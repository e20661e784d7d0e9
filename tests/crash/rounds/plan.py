"""What happens in a round: which runs there are, what people say of them, and which fault strikes whom, and where.

A plan is a function of its seed alone, so that `SEED=` repeats a round. What the operating system makes of it (who of
several processes is the first at a point) is not the plan's: a round that failed may have to be repeated a few times.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Database = Literal["sqlite", "postgresql"]
Role = Literal["worker", "people"]

LEASE, BEAT = 1.0, 0.25
"""Seconds."""
WORKERS = 3
"""How many work at a time."""
AT_ONCE = 4
"""How many runs a worker executes at a time, unless it takes one after the other."""
GRACE, NO_GRACE = 20.0, 0.3
"""Seconds that a worker has to end what it does: all it needs, or less than what holds it needs."""
FIRST_PAGE = 100
"""The first of the pages that the calls of a round describe, each its own."""


class Fault(StrEnum):
    """What strikes a process at a point, or its database while it is held there."""

    KILL = "SIGKILL"
    STOP = "SIGSTOP, past the lease"
    END = "SIGTERM"
    END_TWICE = "SIGTERM, twice"
    END_WITHOUT_GRACE = "SIGTERM, no grace"
    CUT = "connections cut"
    LOCK = "database locked"
    RESTART = "server restarted"
    CRASH = "server crashed"


OF_A_SERVER = frozenset({Fault.CUT, Fault.RESTART, Fault.CRASH})
OF_A_DATABASE = OF_A_SERVER | {Fault.LOCK}

_STORED = ("claim", "answer", "suspend", "fence", "step", "settle")
_LATER = {
    # What is stored only when something else has struck before: the same process, or another.
    "hand back": ("host committed", Fault.END),
    "late report": ("host committed", Fault.STOP),
    "uncertain": ("host committed", Fault.END_WITHOUT_GRACE),
}
_BY_PEOPLE = ("create", "decide", "reconcile")
_ELSEWHERE = (
    "first answer", "closing answer", "execute begins", "in execute", "host committed", "listener told",
    "listener heard",
)  # fmt: skip
_STAGES = ("entering", "before", "after")
POINTS: tuple[str, ...] = (
    *(f"{stage} {what}" for what in (*_STORED, *_LATER, *_BY_PEOPLE) for stage in _STAGES),
    *_ELSEWHERE,
)
"""Where a fault can strike: each commit's three points, and those in the model, the tools and the listener."""

READS = ("read_page", "inspect_page")
FREE = ("read_page",)
"""What waits for nobody."""
IDEMPOTENT = ("set_description", "ensure_description", "put_element", "describe_on_loop")
NOT_IDEMPOTENT = ("add_element", "insert_element")
EFFECTS: dict[str, tuple[str, ...]] = {"read": READS, "idempotent": IDEMPOTENT, "non-idempotent": NOT_IDEMPOTENT}


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault at a point, and how many seconds it lasts, if it does."""

    point: str
    fault: Fault
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Stint:
    """What awaits one process, from its start to its end."""

    role: Role = "worker"
    strikes: tuple[Strike, ...] = ()
    off_by: float = 0.0
    """Seconds by which its clock is wrong."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call that the model makes, known everywhere by its mark."""

    tool: str
    mark: str
    page: int
    denied: bool = False

    @property
    def writes(self) -> bool:
        return self.tool not in READS

    @property
    def waits(self) -> bool:
        return self.tool not in FREE


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run: its model's calls, turn by turn, and whether somebody cancels it once its first turn was decided."""

    name: str
    turns: tuple[tuple[PlannedCall, ...], ...]
    cancelled: bool = False

    @property
    def calls(self) -> tuple[PlannedCall, ...]:
        return tuple(call for turn in self.turns for call in turn)


@dataclass(frozen=True, slots=True)
class Plan:
    """A round.

    Attributes:
        name: what it is called where it is told of.
        database: where the runs are stored.
        runs: what is asked for.
        stints: one process after the other takes the next one of its role; when there is none left, no fault strikes.
        at_once: how many runs a worker executes at a time.
    """

    name: str
    database: Database
    runs: tuple[PlannedRun, ...]
    stints: tuple[Stint, ...]
    at_once: int = AT_ONCE

    def faults(self) -> frozenset[Fault]:
        return frozenset(strike.fault for stint in self.stints for strike in stint.strikes)


def plan_of(seed: int) -> Plan:
    """The round of a seed. Seeds in a row go through every point, on either database."""
    chance = random.Random(seed)
    database: Database = ("sqlite", "postgresql")[seed % 2]
    point = POINTS[seed // 2 % len(POINTS)]
    effect = chance.choice((*EFFECTS, "mixed"))
    tools = EFFECTS.get(effect) or tuple(tool for tools in EFFECTS.values() for tool in tools)
    runs = runs_of(chance, tools, chance.randint(4, 7))
    stints = [_stint(chance, database, point)]
    stints += [_stint(chance, database, chance.choice(POINTS)) for _ in range(chance.randint(1, 3))]
    chance.shuffle(stints)
    return Plan(f"seed {seed}, {effect}", database, runs, tuple(stints), chance.choice((1, AT_ONCE)))


def runs_of(chance: random.Random, tools: Sequence[str], count: int) -> tuple[PlannedRun, ...]:
    """So many runs, each of a turn or two of these tools' calls."""
    runs: list[PlannedRun] = []
    page = FIRST_PAGE
    for number in range(count):
        turns: list[tuple[PlannedCall, ...]] = []
        for turn in range(chance.choice((1, 1, 2))):
            calls: list[PlannedCall] = []
            for place in range(chance.choice((1, 1, 2, 3))):
                tool = chance.choice(tools)
                denied = chance.random() < 0.15 and tool not in FREE
                calls.append(PlannedCall(tool, f"run {number}, turn {turn}, call {place}", page, denied))
                page += 1
            turns.append(tuple(calls))
        runs.append(PlannedRun(f"run {number}", tuple(turns), cancelled=chance.random() < 0.12))
    return tuple(runs)


def _stint(chance: random.Random, database: Database, point: str) -> Stint:
    """A process that something strikes at a point, and before that whatever makes the point be reached."""
    what = point.partition(" ")[2]
    off_by = chance.choice((0.0, 0.0, 600.0, -600.0))
    if what in _LATER:
        provoked = Strike(*_LATER[what], _seconds(chance, _LATER[what][1]))
        faults = [Fault.KILL] + ([Fault.CUT, Fault.RESTART] if database == "postgresql" else [])
        return Stint("worker", (provoked, _strike(chance, point, faults)), off_by)
    faults = [fault for fault in Fault if database == "postgresql" or fault not in OF_A_SERVER]
    if what in _BY_PEOPLE:
        faults = [fault for fault in faults if fault is Fault.KILL or fault in OF_A_DATABASE]
        return Stint("people", (_strike(chance, point, faults),), off_by)
    again = chance.choice(("", "", " 2", " 3"))
    return Stint("worker", (_strike(chance, point + again, faults),), off_by)


def _strike(chance: random.Random, point: str, faults: Sequence[Fault]) -> Strike:
    fault = chance.choice(faults)
    return Strike(point, fault, _seconds(chance, fault))


def _seconds(chance: random.Random, fault: Fault) -> float:
    if fault is Fault.STOP:
        return LEASE * chance.uniform(1.5, 2.5)
    return chance.uniform(0.1, 1.0) if fault in OF_A_DATABASE else 0.0
