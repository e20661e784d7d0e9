"""`make soak`: four workers on a PostgreSQL server, thousands of runs, people who decide, and a kill every few seconds.

Everything has to settle, nothing may break a promise, and a worker that is never killed must not grow.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select

from byline.store.sql import SqlStore
from byline.store.tables import run as run_table
from tests.crash.rounds.crew import Crew
from tests.crash.rounds.outcome import SETTLED, Outcome, Seen
from tests.crash.rounds.plan import EFFECTS, Plan, runs_of
from tests.crash.rounds.round import Grounds, a_folder
from tests.crash.rounds.site import RoundSite
from tests.store.sqlite import KEYS

WORKERS = 4
AT_ONCE = 25
LEASE, BEAT = 5.0, 1.0
"""Seconds: so long that only who is dead loses one. People may then take the host's word that nothing landed."""
KILL_EVERY = (2.0, 5.0)
"""Seconds between two kills: at least, and at most."""
LINE_EVERY = 10.0
STALLED = 120.0
"""Seconds without a run that settles, after which none will."""
GROWTH = 1.25
"""By how much the worker that is never killed may grow from the first half of the runs to the end."""


@dataclass(frozen=True, slots=True)
class Look:
    """How things stood at a moment: seconds, runs settled, and mebibytes of the worker that is never killed."""

    at: float
    settled: int
    memory: float


def main() -> int:
    asked = argparse.ArgumentParser(prog="make soak", description=__doc__)
    asked.add_argument("--runs", type=int, default=2_000)
    asked.add_argument("--seed", type=int, default=None)
    options = asked.parse_args()
    seed: int = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    runs: int = options.runs
    chance = random.Random(seed)
    tools = [tool for tools in EFFECTS.values() for tool in tools]
    plan = Plan(f"soak {seed}", "postgresql", runs_of(chance, tools, runs), (), AT_ONCE)
    print(f"{runs} runs, {WORKERS} workers, seed {seed}", flush=True)
    with Grounds() as grounds, a_folder() as folder, grounds.database() as (url, server):
        site = RoundSite.made(folder, plan, url)
        site.settling.touch()
        crew = Crew(site, server, lease=LEASE, beat=BEAT)
        outcome = Outcome()
        with closing(SqlStore(url, keys=KEYS)) as store:
            store.open()
            try:
                crew.begin([], WORKERS)
                looks = _until_settled(crew, store, runs, chance)
                crew.end()
            finally:
                crew.clear_away()
            seen = Seen(site, store)
            seen.count(outcome)
            outcome.violations += [*seen.settled(), *crew.wrong]
        outcome.counts += crew.started
        _print_table(outcome.counts, looks, len(crew.struck))
        outcome.violations += _grown(looks)
        for wrong in outcome.violations:
            print(f"VIOLATION {wrong}", file=sys.stderr)
        if outcome.violations:
            (folder / "KEEP").touch()
            print(f"Its files and logs: {folder}", file=sys.stderr)
    return 1 if outcome.violations else 0


def _until_settled(crew: Crew, store: SqlStore, runs: int, chance: random.Random) -> Sequence[Look]:
    """Kill a worker every few seconds until every run is settled, or none settles any more."""
    began = time.monotonic()
    looks: list[Look] = []
    settled = latest = 0
    moved = said = began
    (elder, *_) = crew.workers()
    while settled < runs and time.monotonic() - moved < STALLED:
        crew.until(lambda: False, chance.uniform(*KILL_EVERY))
        settled = _settled(store)
        looks.append(Look(time.monotonic() - began, settled, _mebibytes(elder)))
        if settled > latest:
            latest, moved = settled, time.monotonic()
        if time.monotonic() - said > LINE_EVERY:
            said = time.monotonic()
            print(f"{looks[-1].at:>6.0f} s {settled:>6} settled {looks[-1].memory:>8.1f} MiB", flush=True)
        if settled < runs:
            crew.kill(chance.choice([pid for pid in crew.workers() if pid != elder]))
    return looks


def _settled(store: SqlStore) -> int:
    with store.engine.connect() as connection:
        statement = select(func.count()).where(run_table.c.status.in_([status.value for status in SETTLED]))
        found: int = connection.execute(statement).scalar_one()
    return found


def _mebibytes(pid: int) -> float:
    """What a process has in memory, as Linux counts it."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def _halfway(looks: Sequence[Look]) -> Look:
    return next(look for look in looks if look.settled >= looks[-1].settled / 2)


def _grown(looks: Sequence[Look]) -> list[str]:
    before, after = _halfway(looks), looks[-1]
    if after.memory <= before.memory * GROWTH:
        return []
    return [f"a worker grew from {before.memory:.0f} to {after.memory:.0f} MiB in the second half of the runs"]


def _print_table(counts: Counter[str], looks: Sequence[Look], kills: int) -> None:
    last = looks[-1]
    lines: list[tuple[str, object]] = [("processes: workers", counts["worker"]), ("SIGKILL, anywhere", kills)]
    lines += [(name, counts[name]) for name in sorted(counts) if name.startswith(("run ", "said "))]
    lines += [("executions of tools", counts["executions"]), ("writes that landed", counts["writes"])]
    lines += [(name, counts[name]) for name in ("announcements", "late reports", "conflicts")]
    lines += [("seconds", round(last.at)), ("runs settled a second", round(last.settled / last.at, 1))]
    lines += [
        ("MiB of one worker, halfway", round(_halfway(looks).memory)),
        ("MiB of it, at the end", round(last.memory)),
    ]
    print()
    for name, value in lines:
        print(f"{name:<40} {value:>12}")


if __name__ == "__main__":
    sys.exit(main())
