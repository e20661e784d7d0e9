"""A program that is interrupted at its keyboard in the middle of a write: a real process, a real signal."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from byline import RunStatus, ToolEffect
from tests.host import Host
from tests.kernel.stopping import outcomes
from tests.kernel.writers import TURNS, writer

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 20.0


@pytest.mark.promise("P22", "P9", "P19")
@pytest.mark.report(28, 30)
@pytest.mark.parametrize("form", ["sync", "async"])
async def test_the_write_ends_well_and_the_run_goes_on(host: Host, form: Literal["sync", "async"]) -> None:
    """The caller hears of the interrupt while the tool still writes; the runtime's end waits for the write."""
    folder = host.path.parent
    command = [sys.executable, "-W", "error", "-m", "tests.kernel.callers_program", str(folder), form]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "writing\n"
        program.send_signal(signal.SIGINT)
        assert program.stdout.readline() == "interrupted\n"
        (folder / "go").touch()
        said, complained = program.communicate(timeout=PATIENCE)
    assert (said, complained, program.returncode) == ("ended\n", "", 0)
    assert (host.executions(), host.heard()) == (1, [("pages:42", "updated")])

    async with host.runtime(TURNS, tools=[writer(host, ToolEffect.NON_IDEMPOTENT_WRITE)]) as runtime:
        (run,) = await runtime.list_runs()
        assert (run.status, run.cancel_requested) == (RunStatus.QUEUED, False)
        assert len(await runtime.writes()) == 1
        assert (await runtime.recover()).executed == (run.run_id,)
        run = await runtime.get_run(run.run_id)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
        assert await outcomes(runtime, run.run_id) == [("write", "succeeded")]
        assert host.executions() == 1
