"""Rotation in the middle of two hundred waiting runs, beside a worker and beside somebody who decides."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

from byline import RunStatus
from byline.store.keys import KeyState
from tests.host import ALICE, Host
from tests.keys.program import SCRIPT, Administrator, Step, store_of

RUNS = 200


class Other:
    """A process of its own, told what to do over a pipe."""

    def __init__(self, role: str, folder: Path) -> None:
        self._log = (folder / f"{role}.log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.keys.program", role, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> Self:
        self.hear("ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def hear(self, words: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == words, self.said()

    def tell(self, line: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def ends_well(self) -> None:
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0, self.said()

    def said(self) -> str:
        self._log.seek(0)
        return self._log.read()


@pytest.mark.promise("P23")
@pytest.mark.parametrize("killed", [False, True], ids=["in peace", "killed in each step"])
async def test_every_waiting_run_outlives_a_rotation_beside_a_worker(host: Host, tmp_path: Path, killed: bool) -> None:
    async with host.runtime(SCRIPT) as runtime:
        waiting = [(await runtime.run("editor", "See to page 42.", actor=ALICE)).run_id for _ in range(RUNS)]
    left = iter(waiting)
    store = store_of(tmp_path)
    store.open()
    [old] = [key.key_id for key in store.keys.list()]

    with Other("worker", tmp_path) as worker, Other("decide", tmp_path) as decider:

        def decide(runs: int) -> None:
            for _ in range(runs):
                decider.tell(next(left))
                decider.hear("decided")

        def administer(step: Step, key_id: str = "") -> None:
            """Be killed at three moments, one after the other, if this is what is tried; then do it."""
            for die_at in (1, 3, 5) if killed else ():
                assert Administrator(tmp_path, step, key_id, die_at=die_at).ended() == -signal.SIGKILL
                decide(2)
            assert Administrator(tmp_path, step, key_id).ended() == 0

        decide(30)
        administer("add")
        decide(20)
        new = next(key.key_id for key in store.keys.list() if key.key_id != old)
        administer("activate", new)
        decide(20)
        administer("reseal")
        decide(20)
        administer("drop", old)
        for run_id in left:
            decider.tell(run_id)
            decider.hear("decided")
        decider.ends_well()
        worker.ends_well()
        assert "cannot be executed" not in worker.said()

    store.close()
    assert old not in (tmp_path / "byline.db.key").read_text()
    store.open()  # with what the file holds now, and nothing that was remembered
    keys = {key.key_id: key for key in store.keys.list()}
    assert (keys[old].state, keys[old].values, keys[new].state) == (KeyState.CLOSED, 0, KeyState.ACTIVE)
    store.close()
    async with host.runtime(SCRIPT) as runtime:
        runs = {run.run_id: run for run in await runtime.list_runs(limit=RUNS + 100)}
        assert [run.problem for run in runs.values() if run.problem is not None] == []
        assert {runs[run_id].status for run_id in waiting} == {RunStatus.COMPLETED}
        assert {run.status for run in runs.values() if run.pending is None} == {RunStatus.COMPLETED}
        asked_meanwhile = [run for run in runs.values() if run.pending is not None]
        assert len(asked_meanwhile) == RUNS // 10
        assert all(run.output == "Done." for run in runs.values() if run.status is RunStatus.COMPLETED)
    assert host.executions() == RUNS
