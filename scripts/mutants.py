"""Break each promise on purpose, and see that a test notices.

A mutant is a patch in `git diff` format, `tests/mutants/P3-what-it-breaks.patch`. Each is applied to a copy
of the tree, never to the tree itself, and the tests marked `promise("P3")` run on that copy. A failing test
kills the mutant. Anything that is neither a failing test nor a passing run is an error: a patch that does not
apply, code that cannot be imported, no test that carries the promise, a run past the time limit.

A patch may begin with a line `# tests: tests/test_loop.py::test_name …`, which narrows the tests for speed.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
MUTANTS = ROOT / "tests" / "mutants"
Verdict = Literal["killed", "survived", "error"]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A patch and what it says of itself."""

    path: Path
    promise: str
    tests: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> "Mutant":
        named = re.match(r"(P\d+)-[\w.-]+\.patch$", path.name)
        if named is None:
            raise SystemExit(f"{path.name}: a mutant is named P3-what-it-breaks.patch")
        first, _, _ = path.read_text("utf-8").partition("\n")
        tests = first.removeprefix("# tests:").split() if first.startswith("# tests:") else []
        return cls(path, named[1], tuple(tests))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one mutant, and why."""

    verdict: Verdict
    detail: str
    seconds: float = 0.0
    log: str = ""


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of pytest on a copy."""

    status: int | None  # None: the time limit passed
    report: dict[str, object]
    log: str


@contextlib.contextmanager
def copy_of_tree() -> Generator[Path]:
    """A copy of what git would commit from the working tree as it is now."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder).resolve() / "tree"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            source, target = ROOT / name, copy / name
            if source.is_file():  # a file deleted from the tree is still listed
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        yield copy


def apply(mutant: Mutant, copy: Path) -> str | None:
    """Apply the patch to the copy; return what is wrong with it, or None."""
    # The copy is no repository: without the ceiling, git would look for one above it.
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(copy.parent)}

    def git_apply(*options: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["git", "apply", *options, str(mutant.path)],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    touched = git_apply("--numstat")
    if touched.returncode == 0 and re.search(r"^\S+\t\S+\ttests/", touched.stdout, re.MULTILINE):
        return "the patch changes the tests: a mutant breaks the code"
    applied = git_apply("--whitespace=nowarn")
    if applied.returncode:
        reason = applied.stderr.strip().splitlines()
        return f"the patch does not apply: {reason[0] if reason else 'git said nothing'}"
    return None


def run_tests(copy: Path, limit: float, *arguments: str) -> Run:
    """Run pytest on the copy, and stop it and all its children at the limit."""
    report = copy.parent / "report.json"
    environment = os.environ | {
        # Ahead of the installed package, which points at the working tree.
        "PYTHONPATH": os.pathsep.join([str(copy / "src"), str(copy / "scripts")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "BYLINE_MUTANT_REPORT": str(report),
    }
    command = [
        *(sys.executable, "-m", "pytest", "-q", "--tb=short"),
        *("-p", "no:cacheprovider", "-p", "mutant_report", "--hypothesis-profile=ci"),
        *arguments,
    ]
    # A file, not a pipe: a process that a failed test left behind would hold a pipe open.
    output = copy.parent / "pytest.log"
    with output.open("w") as stream:
        process = subprocess.Popen(
            command,
            cwd=copy,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(timeout=limit)
        with contextlib.suppress(ProcessLookupError):  # the run itself, or what it left behind
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    log = output.read_text("utf-8", "replace")
    written: dict[str, object] = json.loads(report.read_text("utf-8")) if report.exists() else {}
    return Run(status, written, log)


def wrong_tree(run: Run, copy: Path) -> str | None:
    """Say so if pytest imported another byline than the copy's."""
    imported = run.report.get("byline")
    if imported is None:
        return None  # pytest did not get that far; its status says why
    if not Path(str(imported)).resolve().is_relative_to(copy / "src"):
        return f"the tests imported {imported}, not the copy's byline"
    return None


def judge(run: Run, copy: Path, limit: float) -> Outcome:
    """Turn a run on a mutated copy into killed, survived or error."""
    wrong = wrong_tree(run, copy)
    failed, passed = run.report.get("failed"), run.report.get("passed")
    if wrong is not None:
        return Outcome("error", wrong, log=run.log)
    if run.status is None:
        return Outcome(
            "error", f"no verdict within {limit:.0f} s, and no test's own time limit reported it", log=run.log
        )
    if "byline" not in run.report:
        return Outcome("error", "the tests did not start", log=run.log)
    if run.status == 1 and failed:
        return Outcome("killed", f"killed by {failed}")
    if run.status == 0 and passed:
        return Outcome("survived", "SURVIVED", log=run.log)
    if run.status in (0, 5):
        return Outcome("error", "no test that carries the promise ran", log=run.log)
    return Outcome("error", f"pytest ended with status {run.status} and no failed test", log=run.log)


def try_mutant(mutant: Mutant, limit: float) -> Outcome:
    """Make a copy, break it, test it."""
    begun = time.monotonic()
    with copy_of_tree() as copy:
        wrong = apply(mutant, copy)
        if wrong is not None:
            return Outcome("error", wrong)
        run = run_tests(copy, limit, "-x", "--promise", mutant.promise, *mutant.tests)
        outcome = judge(run, copy, limit)
    return dataclasses.replace(outcome, seconds=time.monotonic() - begun)


def baseline(mutants: Sequence[Mutant], jobs: int, limit: float) -> None:
    """The marked tests must pass on an unmutated copy, or no failure would say anything."""
    promises = sorted({mutant.promise for mutant in mutants})
    with copy_of_tree() as copy:
        run = run_tests(copy, limit, "-n", str(jobs), *(f"--promise={promise}" for promise in promises))
        wrong = wrong_tree(run, copy)
    if wrong is not None or run.status != 0:
        print(run.log)
        raise SystemExit(
            wrong or f"The unmutated tree fails its own tests (pytest: {run.status}); no mutant was tried."
        )
    print(f"unmutated: {run.report.get('passed')} tests pass")


def main() -> int:
    parser = argparse.ArgumentParser(description="Break each promise on purpose, and see that a test notices.")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="only mutants whose file name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default: 2)")
    parser.add_argument("--limit", type=float, default=300, help="seconds a mutant (default: 300)")
    options = parser.parse_args()

    mutants = [Mutant.read(path) for path in MUTANTS.glob("*.patch") if options.only in path.name]
    mutants.sort(key=lambda mutant: (int(mutant.promise[1:]), mutant.path.name))
    if not mutants:
        print(f"No mutant in tests/mutants{f' is named like {options.only!r}' if options.only else ''}.")
        print("0 killed, 0 survived, 0 errors")
        return 1
    baseline(mutants, options.jobs, options.limit * 6)

    counts: dict[Verdict, int] = {"killed": 0, "survived": 0, "error": 0}
    left: list[str] = []
    width = max(len(mutant.path.stem) for mutant in mutants)
    print(f"\n{'promise':8}{'mutant':{width + 2}}{'seconds':>7}  outcome")
    limit: float = options.limit

    def attempt(mutant: Mutant) -> Outcome:
        return try_mutant(mutant, limit)

    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, outcome in zip(mutants, pool.map(attempt, mutants), strict=True):
            counts[outcome.verdict] += 1
            if outcome.verdict != "killed":
                left.append(f"{mutant.path.stem}: {outcome.detail}")
            detail = f"ERROR: {outcome.detail}" if outcome.verdict == "error" else outcome.detail
            print(
                f"{mutant.promise:8}{mutant.path.stem:{width + 2}}{outcome.seconds:7.1f}  {detail}",
                flush=True,
            )
            if outcome.verdict == "error" and outcome.log:
                print("".join(f"        | {line}\n" for line in outcome.log.strip().splitlines()[-15:]), end="")
    # Once more at the end, where somebody who reads only the last lines of a log finds it.
    print("".join(f"\n{line}" for line in left))
    print(f"{counts['killed']} killed, {counts['survived']} survived, {counts['error']} errors")
    return 1 if counts["survived"] or counts["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
