"""`byline steps RUN --follow`: the steps of a run as they come."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from byline import Decision, RunStatus
from byline.cli.failing import ExitCode
from tests.cli.conftest import Command
from tests.cli.program import SCRIPTS
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import waiting

PATIENCE = 30


@contextmanager
def followed(run_id: object, *options: str) -> Generator["subprocess.Popen[str]"]:
    """A process that follows a run."""
    command = [sys.executable, "-m", "byline", "steps", str(run_id), "--follow", *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.promise("P19", "P21")
def test_steps_are_printed_as_they_come_until_the_run_ends(host: Host) -> None:
    with host.runtime(SCRIPTS["set"]).sync as runtime:
        run = runtime.run("editor", "Please do.", actor=ALICE)
        with followed(run.run_id, "--json") as process:
            assert process.stdout is not None
            printed = [process.stdout.readline() for _ in runtime.list_steps(run.run_id)]
            assert process.poll() is None  # the run waits, and has not ended
            run = runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
            out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err, run.status) == (ExitCode.DONE, "", RunStatus.COMPLETED)
        told = [json.loads(line) for line in [*printed, *out.splitlines()]]
        assert [(each["position"], each["kind"]) for each in told] == [
            (step.position, step.kind.value) for step in runtime.list_steps(run.run_id)
        ]


@pytest.mark.promise("P21")
@pytest.mark.parametrize("number, code", [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)])
def test_it_is_left_calmly_and_the_run_stays(host: Host, number: signal.Signals, code: ExitCode) -> None:
    with host.runtime(SCRIPTS["set"]).sync as runtime:
        run = runtime.run("editor", "Please do.", actor=ALICE)
        with followed(run.run_id) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            os.kill(process.pid, number)
            _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, runtime.get_run(run.run_id)) == (code, run)
        assert [line.split()[0] for line in lines] == ["POSITION", "1", "2"]
        assert "Traceback" not in err
        assert ("The run itself goes on." in err) is (number == signal.SIGINT)


def test_of_a_run_that_has_ended_it_prints_what_is_listed(host: Host, command: Command) -> None:
    with host.runtime(SCRIPTS["words"]).sync as runtime:
        run = runtime.run("editor", "Please do.", actor=ALICE)
    listed, told = (command("steps", str(run.run_id), *options) for options in ([], ["--follow"]))
    assert told.code == ExitCode.DONE
    assert [line.split() for line in told.out.splitlines()] == [line.split() for line in listed.out.splitlines()]
    as_json = [command("steps", str(run.run_id), "--json", *options) for options in ([], ["--follow"])]
    assert as_json[0].json() == as_json[1].json()
    assert command("steps", "0" * 32, "--follow").code == ExitCode.REFUSED


def test_who_queues_a_run_is_told_how_to_follow_it(
    host: Host, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROGRAM_QUEUES", "1")
    said = command("run", "editor", "Please do.")
    (run,) = command("runs", "--json").json()
    assert said.code == ExitCode.DONE
    assert f"byline steps {run['run_id']} --follow" in said.out
