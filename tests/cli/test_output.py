"""Where a command's output goes nowhere: a pipe that nobody reads, a full disk, a stream that was closed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from byline import Run, RunStatus
from byline.cli.failing import ExitCode
from tests.cli import program
from tests.host import ALICE, Host

FULL = Path("/dev/full")


def waiting(host: Host) -> Run:
    with host.runtime(program.SCRIPTS["set"]).sync as runtime:
        return runtime.run("editor", "See to page 42.", actor=ALICE)


def byline(redirected: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command by a shell, which redirects its streams."""
    shell = ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-m", "byline", *arguments]
    return subprocess.run(shell, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.promise("P13")
def test_a_decision_that_nobody_reads_of_is_not_said_to_be_refused(host: Host) -> None:
    run = waiting(host)
    assert run.pending is not None
    read, unread = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "byline", "approve", str(run.run_id), "--yes", "--digest", run.pending.digest]
    done = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    os.close(unread)
    assert (done.returncode, host.executions()) == (ExitCode.UNREAD, 1)
    assert " ".join(done.stderr.split()) == (
        "byline: the output cannot be written (Broken pipe). What was done stays done."
    )
    with host.runtime(program.SCRIPTS["set"]).sync as runtime:
        assert runtime.get_run(run.run_id).status is RunStatus.COMPLETED


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_a_full_disk_is_said_in_a_line(host: Host, options: list[str]) -> None:
    waiting(host)
    said = byline(f">{FULL}", "runs", *options)
    assert said.returncode == ExitCode.UNREAD
    words = " ".join(said.stderr.split())
    assert words == "byline: the output cannot be written (No space left on device). What was done stays done."
    refused = byline(f"2>{FULL}", "show", "nothing")
    assert refused.returncode == ExitCode.USAGE, "what cannot be said, the code still tells"


@pytest.mark.promise("P13")
def test_a_closed_stream_is_neither_missed_nor_taken_by_the_store(host: Host) -> None:
    run = waiting(host)
    assert byline(">&-", "runs").returncode == 0
    assert byline(">&-", "runs", "--json").returncode == 0
    assert byline("2>&-", "show", "nothing").returncode == ExitCode.USAGE
    unasked = byline("<&-", "approve", str(run.run_id))
    assert (unasked.returncode, unasked.stdout) == (ExitCode.USAGE, "")
    assert "there is no terminal to answer on" in unasked.stderr
    assert byline("<&- >&- 2>&-", "show", str(run.run_id)).returncode == 0
    with host.runtime(program.SCRIPTS["set"]).sync as runtime:
        assert runtime.get_run(run.run_id) == run
