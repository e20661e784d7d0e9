"""`byline worker`: a process that takes up runs until it is told to stop."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from byline import Decision, RunStatus, UncertaintyReason
from byline.cli.failing import ExitCode
from byline.store.sql import SqlStore
from tests.cli.conftest import Command
from tests.cli.program import SCRIPTS
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import until_left, waiting

PATIENCE = 30


@contextmanager
def worker(*options: str) -> Generator["subprocess.Popen[str]"]:
    """A worker that has begun."""
    command = [sys.executable, "-m", "byline", "worker", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    try:
        assert "at work" in process.stderr.readline()
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)
        process.stderr.close()


@pytest.mark.promise("P17", "P21")
async def test_it_executes_what_others_queue(host: Host) -> None:
    async with host.runtime(SCRIPTS["set"], execution="queued") as runtime:
        with worker("--poll", "0.05"):
            run = await runtime.enqueue("editor", "Describe page 42.", actor=ALICE)
            async with asyncio.timeout(PATIENCE):
                await until_left(runtime, run.run_id, RunStatus.QUEUED)
                run = await until_left(runtime, run.run_id, RunStatus.RUNNING)
                await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
                await until_left(runtime, run.run_id, RunStatus.QUEUED)
                run = await until_left(runtime, run.run_id, RunStatus.RUNNING)
        assert (run.output, host.executions(), host.heard()) == ("Done.", 1, [("pages:42", "updated")])


@pytest.mark.promise("P21")
@pytest.mark.parametrize("number, code", [(signal.SIGTERM, ExitCode.TERMINATED), (signal.SIGINT, ExitCode.INTERRUPTED)])
def test_it_stops_when_it_is_told_to(host: Host, number: signal.Signals, code: ExitCode) -> None:
    with worker() as process:
        os.kill(process.pid, number)
        assert process.wait(PATIENCE) == code


@pytest.mark.promise("P9", "P20", "P21")
@pytest.mark.report(39)
async def test_a_second_signal_ends_it_in_the_middle_of_a_write_as_a_crash_would(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROGRAM_SCRIPT", "add")
    async with host.runtime(SCRIPTS["add"], execution="queued") as runtime:
        run = await runtime.enqueue("editor", "Add it.", actor=ALICE)
        run = await runtime.execute(run.run_id)
        await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        with worker("--poll", "0.05") as process, host.connect() as locked:
            assert process.stderr is not None
            locked.execute("begin exclusive")  # the tool waits for the host's database, behind its fence
            async with asyncio.timeout(PATIENCE):
                while (await asyncio.to_thread(runtime.store.get, run.run_id)).fence is None:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.02)
            process.terminate()
            assert "one more signal" in process.stderr.readline()
            assert (await runtime.get_run(run.run_id)).status is RunStatus.RUNNING
            process.terminate()
            assert process.wait(PATIENCE) == -signal.SIGTERM
        assert (await runtime.get_run(run.run_id)).status is RunStatus.RUNNING  # nobody has said anything
    an_hour_later = SqlStore(f"sqlite:///{host.path.parent / 'byline.db'}", clock=lambda: time.time() + 3_600)
    async with host.runtime(SCRIPTS["add"], store=an_hour_later) as runtime:
        await runtime.recover()
        run = await runtime.get_run(run.run_id)
    assert (run.status, run.reason) == (RunStatus.UNCERTAIN, UncertaintyReason.INTERRUPTED)
    assert (host.executions(), host.heard()) == (0, [])


def test_without_an_application_it_says_what_to_do(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BYLINE_APP")
    said = command("worker")
    assert (said.code, said.out) == (ExitCode.USAGE, "")
    assert "--app" in said.err


@pytest.mark.parametrize("wrong", [["--concurrency", "0"], ["--poll", "0"]])
def test_what_cannot_work_is_refused(command: Command, wrong: list[str]) -> None:
    assert command("worker", *wrong).code == ExitCode.USAGE
