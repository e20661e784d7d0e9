"""Commands of operators: settle, recover, retry, the feed, the schema, the doctor."""

import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from byline import (
    Decision,
    InvalidIdentifier,
    ModelError,
    ModelRateLimited,
    Run,
    RunStatus,
    ToolContext,
    ToolEffect,
    ToolResult,
    tool,
)
from byline.cli.ages import duration, moment
from byline.models.scripted import Turn
from byline.testing import call
from tests.cli import program
from tests.cli.conftest import Command
from tests.cli.terminal import terminal
from tests.host import ALICE, BOB, Host


def uncertain(host: Host) -> Run:
    """A run whose approved write has lost its answer."""

    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def add_element(context: ToolContext, page_id: int, text: str) -> ToolResult:
        """Add an element to a page."""
        raise ConnectionError("the answer was lost")

    script: list[Turn] = [[call("add_element", page_id=42, text="Come in.")], "Done."]
    with host.runtime(script, tools=[add_element]).sync as runtime:
        run = runtime.run("editor", "See to page 42.", actor=ALICE)
        assert run.pending is not None
        run = runtime.decide(run.run_id, Decision.approve(run.pending.digest), actor=BOB)
    assert run.uncertain is not None
    return run


def digest(run: Run) -> str:
    assert run.uncertain is not None
    return run.uncertain.digest


def test_a_write_that_landed_is_settled_by_its_record(command: Command, host: Host) -> None:
    run = uncertain(host)
    shown = command("show", str(run.run_id))
    for part in ("may have landed: add_element", "raised", '"Come in."', digest(run)):
        assert part in shown.out
    landed = ["--landed", "elements:1", "--kind", "created"]
    assert command("reconcile", str(run.run_id), *landed).code == 2, "nobody was asked"
    assert command("reconcile", str(run.run_id), *landed, "--yes", "--digest", "0" * 64).code == 1
    assert command("reconcile", str(run.run_id), "--leave-it", "--run-again").code == 2
    assert command("reconcile", str(run.run_id), "--landed", "elements:1").code == 2
    assert host.heard() == []
    said = command("reconcile", str(run.run_id), *landed, "--yes", "--digest", digest(run), "--json")
    assert (said.code, said.json()[0]["status"]) == (0, "completed")
    assert (host.heard(), host.executions()) == ([("elements:1", "created")], 0)
    assert command("reconcile", str(run.run_id), "--leave-it", "--yes", "--digest", digest(run)).code == 1


def test_at_a_terminal_it_asks_what_became_of_it(host: Host) -> None:
    run = uncertain(host)
    with terminal("reconcile", str(run.run_id)) as person:
        assert "may have landed: add_element" in person.read_until("Answer:")
        person.type("landed elements\n")
        person.read_until("Please answer")
        person.type("again\n")
        assert person.end() == 0
    assert (host.elements(), host.heard()) == (["Come in."], [("elements:1", "created")])


def test_a_run_in_dead_letter_is_retried(command: Command, host: Host) -> None:
    with host.runtime([ModelError("no answer")]).sync as runtime:
        run = runtime.run("editor", "See to page 42.", actor=ALICE)
    assert command("doctor").code == 1
    retried = command("retry", str(run.run_id), "--json")
    assert (retried.code, retried.json()[0]["status"]) == (0, "awaiting_approval")
    again = command("retry", str(run.run_id))
    assert again.code == 1
    assert "Only a run in dead letter" in again.err


@pytest.mark.promise("P21")
def test_a_run_that_waits_for_its_model_says_why_and_until_when(command: Command, host: Host) -> None:
    """It needs nobody; what it has used up is given back once somebody retries it in dead letter."""
    with host.runtime([ModelRateLimited(retry_after=900)]).sync as runtime:
        run = runtime.run("editor", "See to page 42.", actor=ALICE)
    assert (run.status, run.due_at is not None) == (RunStatus.QUEUED, True)
    [shown] = command("show", str(run.run_id), "--json").json()
    assert (shown["status"], shown["reason"]) == ("queued", "model_failed")
    assert shown["problem"] == "its model failed (ModelRateLimited)"
    assert datetime.fromisoformat(shown["due_at"]) - datetime.now(UTC) > timedelta(minutes=14)
    words = " ".join(command("show", str(run.run_id)).out.split())
    assert "problem its model failed (ModelRateLimited) due 20" in words
    doctor = command("doctor")
    assert doctor.code == 0
    assert "1 run whose model failed" in doctor.out
    assert command("recover", "--json").json()[0]["executed"] == []


def test_a_failing_run_ends_with_the_code_for_somebody_has_to_look(command: Command, host: Host) -> None:
    with host.runtime([ModelError("no answer")]).sync as runtime:
        run = runtime.run("editor", "See to page 42.", actor=ALICE, dedupe_key="form-1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "cli_actor", lambda: ALICE)
        same = command("run", "editor", "Again.", "--dedupe-key", "form-1", "--json")
    assert (same.code, same.json()[0]["run_id"]) == (4, str(run.run_id))
    assert command("run", "nobody", "See to it.").code == 1


def test_recover_goes_on_once_with_what_nobody_executes(command: Command, host: Host) -> None:
    with host.runtime(program.SCRIPTS["words"]).sync as runtime:
        run = runtime.enqueue("editor", "See to it.", actor=ALICE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROGRAM_SCRIPT", "words")
        said = command("recover", "--json")
    assert (said.code, said.json()) == (0, [{"executed": [str(run.run_id)], "expired": [], "skipped": {}}])
    assert "completed" in command("show", str(run.run_id)).out
    assert command("recover").out.split() == ["taken", "up", "0", "expired", "0", "skipped", "0"]


def test_the_feed_is_asked_for_a_record_a_table_and_a_time(command: Command, host: Host) -> None:
    run = command("run", "editor", "See to page 42.", "--json").json()[0]
    command("approve", run["run_id"], "--yes", "--digest", run["pending"]["digest"])
    [fact] = command("writes", "--json").json()
    assert (fact["record"], fact["kind"], fact["correlation_id"]) == ("pages:42", "updated", run["run_id"])
    for arguments in (["pages:42"], ["--table", "pages"], ["--since", "24h"], ["pages:42", "--since", "2020-01-01"]):
        assert command("writes", *arguments, "--json").json() == [fact]
    for arguments in (["pages:43"], ["--table", "files"], ["--since", "2999-01-01"], ["--after", fact["cursor"]]):
        assert command("writes", *arguments, "--json").json() == []
    assert command("writes", "pages:42", "--after", fact["cursor"], "--json").json() == []
    for arguments in (["pages"], ["--since", "soon"], ["--after", "nowhere"], ["pages:42", "--table", "pages"]):
        assert command("writes", *arguments).code == 2
    assert "pages:42" in command("writes").out


def test_ages_are_read_as_people_write_them() -> None:
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert moment("24h", now) == now - timedelta(days=1)
    assert moment("7d", now) == now - timedelta(days=7)
    assert moment("2026-11-30T10:00:00Z", now) == now - timedelta(hours=2)
    assert moment("2026-11-30", now).tzinfo is not None
    assert duration("90s") == timedelta(seconds=90)
    for text in ("", "h", "-1h", "1y", "yesterday", "999999999w", "0001-01-01"):
        with pytest.raises(InvalidIdentifier):
            moment(text, now)


def test_the_schema_is_looked_at_and_upgraded_here(command: Command, host: Host) -> None:
    file = host.path.parent / "byline.db"
    none = command("db", "current", "--json")
    assert (none.code, none.json()[0]["revision"]) == (1, None)
    assert not file.exists(), "to look is not to make"
    assert command("db", "upgrade").code == 0
    current = command("db", "current", "--json")
    assert current.code == 0
    assert current.json()[0]["revision"] == current.json()[0]["wanted"]
    assert "already" in command("db", "upgrade").out
    with sqlite3.connect(file) as database:
        database.execute("update byline_revision set version_num = '9999'")
    assert command("db", "current").code == 1
    newer = command("db", "upgrade")
    assert newer.code == 3
    assert "it is newer" in newer.err
    assert command("doctor").code == 1


def test_the_doctor_says_what_needs_a_person_and_what_to_do(command: Command, host: Host) -> None:
    fresh = command("doctor")
    assert fresh.code == 0
    assert "there is no store yet" in fresh.out
    assert not (host.path.parent / "byline.db").exists()
    command("run", "editor", "See to page 42.")
    waits = command("doctor", "--json")
    found = {finding["subject"]: finding for finding in waits.json()}
    assert (waits.code, found["waiting"]["level"], found["uncertain"]["level"]) == (0, "note", "fine")
    assert found["agents"]["what"] == "editor"
    run = uncertain(host)
    sick = command("doctor", "--json")
    found = {finding["subject"]: finding for finding in sick.json()}
    assert (sick.code, found["uncertain"]["level"]) == (1, "person")
    assert str(run.run_id) in found["uncertain"]["what"]
    assert "byline reconcile" in found["uncertain"]["to_do"]
    (host.path.parent / "byline.db.key").unlink()
    keyless = command("doctor")
    assert keyless.code == 1
    assert "its key file" in keyless.out


def test_the_doctor_names_runs_of_agents_that_are_not_here(command: Command, tmp_path: Path) -> None:
    command("run", "editor", "See to page 42.")
    source = (
        f"from byline import AgentRuntime\nruntime = AgentRuntime(store='sqlite:///{tmp_path}/byline.db', agents=[])\n"
    )
    (tmp_path / "empty_application.py").write_text(source)
    looked = subprocess.run(
        [sys.executable, "-m", "byline", "--app", "empty_application:runtime", "doctor"],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{Path(__file__).resolve().parents[2] / 'src'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert looked.returncode == 0, looked.stderr
    assert "1 run of agent 'editor', which is not loaded here" in looked.stdout
