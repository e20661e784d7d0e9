"""Hung listeners and tools hold up no exit: SIGTERM ends the process within its grace (P6, P9)."""

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from byline import RunStatus, StepKind, UncertaintyReason
from tests.host import Host
from tests.kernel.entries import unknown
from tests.kernel.writers import WRITE, WRITES, writer

ROOT = Path(__file__).resolve().parent.parent.parent
STARTUP = 40.0
"""Seconds until a process is surely up, or down again once it ends: imports and the disk, on a busy machine."""


@contextmanager
def hung(folder: Path, what: str, grace: float) -> Generator["subprocess.Popen[str]"]:
    """A process in which something hangs; ended in any case."""
    command = [sys.executable, "-m", "tests.kernel.hung_process", str(folder), what, str(grace)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate(timeout=STARTUP)[1]
        yield process
    finally:
        process.kill()
        process.communicate()


def terminate(process: "subprocess.Popen[str]", within: float) -> None:
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=within)
    assert (process.returncode, out, err) == (0, "closed\n", "")


@pytest.mark.promise("P6")
async def test_a_listener_that_was_given_up_holds_up_no_exit(tmp_path: Path) -> None:
    """Its run has ended: the process does not even need its grace of an hour."""
    host = Host(tmp_path / "host.db")
    with hung(tmp_path, "listener", 3_600) as process:
        terminate(process, within=STARTUP)
    async with host.runtime([[WRITE], "Done."], tools=[writer(host, WRITES[1])]) as runtime:
        (run,) = await runtime.list_runs()
        assert run.status is RunStatus.COMPLETED
        assert (host.executions(), host.heard()) == (1, [("pages:42", "updated")])


@pytest.mark.promise("P6", "P9")
@pytest.mark.parametrize("what", ["announcement", "thread", "loop"])
async def test_what_hangs_past_the_grace_is_broken_off_and_uncertain(tmp_path: Path, what: str) -> None:
    """`announcement`: the listener has an hour, so that the grace ends first."""
    host, grace = Host(tmp_path / "host.db"), 0.5
    with hung(tmp_path, what, grace) as process:
        terminate(process, within=grace + STARTUP)

    async with host.runtime([[WRITE], "Done."], tools=[writer(host, WRITES[1])]) as runtime:
        (run,) = await runtime.list_runs()
        assert unknown(run).reason is UncertaintyReason.INTERRUPTED
        assert StepKind.HANDED_BACK not in {step.kind for step in await runtime.list_steps(run.run_id)}
        assert host.executions() == 1
        assert host.heard() == ([("pages:42", "updated")] if what == "announcement" else [])
