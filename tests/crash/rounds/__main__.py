"""`make crash`: many rounds, each by its seed, and a table of what happened in them."""

import argparse
import random
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from queue import Queue

from tests.crash.rounds.outcome import Outcome
from tests.crash.rounds.plan import POINTS, Fault, plan_of
from tests.crash.rounds.round import Grounds, a_folder


def main() -> int:
    asked = argparse.ArgumentParser(prog="make crash", description=__doc__)
    asked.add_argument("--rounds", type=int, default=200)
    asked.add_argument("--seed", type=int, default=None, help="the first round's; the next one has the next")
    asked.add_argument("--jobs", type=int, default=1, help="how many rounds are played at a time")
    options = asked.parse_args()
    first: int = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    rounds: int = options.rounds
    jobs: int = min(options.jobs, rounds)
    print(f"{rounds} rounds from seed {first} on (again: make crash ROUNDS={rounds} SEED={first})", flush=True)
    counts: Counter[str] = Counter()
    faults: Counter[Fault] = Counter()
    points: set[str] = set()
    failed: list[int] = []
    began = time.monotonic()
    places: Queue[Grounds] = Queue()
    with ExitStack() as stack:
        for _ in range(jobs):
            places.put(stack.enter_context(Grounds()))
        playing = stack.enter_context(ThreadPoolExecutor(jobs))
        played = [playing.submit(_play, seed, places) for seed in range(first, first + rounds)]
        for number, done in enumerate(as_completed(played), 1):
            seed, outcome, said = done.result()
            print(f"{number:>4}/{rounds} {said}", flush=True)
            faults.update(fault for _, fault in outcome.struck)
            points.update(point.rstrip(" 0123456789") for point, _ in outcome.struck)
            counts += outcome.counts
            if outcome.violations:
                failed.append(seed)
    counts["violations"] = len(failed)
    _print_table(counts, faults, points, time.monotonic() - began)
    if failed:
        seeds = ", ".join(map(str, failed))
        print(
            f"\nA promise was broken in the rounds of these seeds: {seeds}. Repeat one with make crash SEED=…",
            file=sys.stderr,
        )
        print(
            "(a few times: who is first at a point is not the seed's), read the logs in its folder, and",
            file=sys.stderr,
        )
        print("make a test of it in tests/crash/ that holds each process at its point.", file=sys.stderr)
    return 1 if failed else 0


def _play(seed: int, places: "Queue[Grounds]") -> tuple[int, Outcome, str]:
    """Play the round of a seed where nobody else plays. Returns also what is to be said of it."""
    plan, began = plan_of(seed), time.monotonic()
    grounds = places.get()
    try:
        with a_folder() as folder:
            outcome = grounds.play(plan, folder)
            if outcome.violations:
                (folder / "KEEP").touch()
    finally:
        places.put(grounds)
    outcome.counts[f"rounds on {plan.database}"] += 1
    struck = "; ".join(f"{fault} at {point}" for point, fault in outcome.struck) or "nothing struck"
    said = [f"{plan.name}, {plan.database}: {struck} ({time.monotonic() - began:.1f} s)"]
    said += [f"     VIOLATION {wrong}" for wrong in outcome.violations]
    if outcome.violations:
        said += [f"     Its files and logs: {folder}. Again: make crash SEED={seed}"]
    return seed, outcome, "\n".join(said)


def _print_table(counts: Counter[str], faults: Counter[Fault], points: set[str], seconds: float) -> None:
    lines: list[tuple[str, object]] = [(name, counts[name]) for name in sorted(counts) if name.startswith("rounds")]
    lines += [("processes: workers", counts["worker"]), ("processes: people", counts["people"])]
    lines += [("  of these with a wrong clock", counts["clock wrong"])]
    lines += [(f"fault: {fault}", faults[fault]) for fault in Fault]
    lines += [("faults that struck, of those planned", f"{faults.total()} of {counts['planned strikes']}")]
    lines += [("points at which one struck", f"{len(points & set(POINTS))} of {len(POINTS)}")]
    lines += [(f"{name}", counts[name]) for name in sorted(counts) if name.startswith("run ")]
    lines += [("uncertain, before anybody was asked", counts["uncertain"]), ("dead letters", counts["dead letters"])]
    lines += [(f"people: {name}", counts[name]) for name in sorted(counts) if name.startswith("said")]
    lines += [("executions of tools", counts["executions"]), ("writes that landed", counts["writes"])]
    lines += [(name, counts[name]) for name in ("announcements", "late reports", "conflicts")]
    lines += [("rounds with a violation", counts["violations"]), ("seconds", round(seconds))]
    print()
    for name, value in lines:
        print(f"{name:<40} {value:>12}")
    missed = sorted(set(POINTS) - points)
    if missed:
        print("no fault struck: " + ", ".join(missed))


if __name__ == "__main__":
    sys.exit(main())
