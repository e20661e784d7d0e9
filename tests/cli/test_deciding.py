"""`approve` and `deny`: exactly what was shown, by who the application says is there (P13, P14)."""

from typing import Any

import pytest

from byline import AiActorContext, Change, Decision, Grant, Run, RunStatus
from tests.cli import program
from tests.cli.conftest import Command
from tests.cli.terminal import terminal
from tests.host import ALICE, BOB, Host


def waiting(host: Host, script: str = "set") -> Run:
    with host.runtime(program.SCRIPTS[script]).sync as runtime:
        run = runtime.run("editor", "See to page 42.", actor=ALICE)
    assert run.pending is not None
    return run


def read(host: Host, run: Run) -> Run:
    with host.runtime(program.SCRIPTS["set"]).sync as runtime:
        return runtime.get_run(run.run_id)


def digest(run: Run) -> str:
    assert run.pending is not None
    return run.pending.digest


@pytest.mark.promise("P13")
def test_at_a_terminal_the_turn_is_shown_and_a_yes_releases_it(host: Host) -> None:
    run = waiting(host)
    with terminal("approve", str(run.run_id)) as person:
        shown = person.read_until("[y/N]")
        for part in ("set_description", "idempotent_write", '"We are open."', "+ We are open.", digest(run)):
            assert part in shown
        assert host.executions() == 0
        person.type("y\n")
        assert person.end() == 0
    assert "completed" in person.shown
    assert "write pages:42 updated" in person.shown, "the steps are shown as they come"
    assert (host.description(), host.heard()) == ("We are open.", [("pages:42", "updated")])


@pytest.mark.parametrize("answer", ["\n", "n\n", "\x04"])
def test_anything_but_yes_decides_nothing(host: Host, answer: str) -> None:
    run = waiting(host)
    with terminal("approve", str(run.run_id)) as person:
        person.read_until("[y/N]")
        person.type(answer)
        assert person.end() == 1
    assert "Nothing was decided." in person.shown
    assert digest(read(host, run)) == digest(run)


def test_ctrl_c_at_the_question_decides_nothing(host: Host) -> None:
    run = waiting(host)
    with terminal("approve", str(run.run_id)) as person:
        person.read_until("[y/N]")
        person.interrupt()
        assert person.end() == 130
    assert digest(read(host, run)) == digest(run)


@pytest.mark.promise("P13")
def test_a_turn_that_changed_behind_the_question_is_not_released(host: Host) -> None:
    """The digest is that of what was shown, not of what stands there when the answer comes."""
    run = waiting(host)
    assert run.pending is not None
    with terminal("approve", str(run.run_id)) as person:
        person.read_until("[y/N]")
        with host.runtime(program.SCRIPTS["set"]).sync as runtime:
            other = {run.pending.calls[0].id: Change({"page_id": 42, "description": "We are closed."})}
            changed = runtime.decide(run.run_id, Decision.per_call(digest(run), other), actor=BOB)
        person.type("y\n")
        assert person.end() == 1
    assert "the turn changed since it was read" in person.shown
    assert host.executions() == 0
    assert digest(read(host, run)) == digest(changed)


@pytest.mark.promise("P13")
def test_without_a_terminal_it_takes_yes_and_the_digest_of_what_was_read(command: Command, host: Host) -> None:
    run = waiting(host)
    asked = command("approve", str(run.run_id))
    assert (asked.code, asked.out) == (2, "")
    assert "there is no terminal" in asked.err
    unread = command("approve", str(run.run_id), "--yes")
    assert unread.code == 2
    assert "--digest" in unread.err
    wrong = command("approve", str(run.run_id), "--yes", "--digest", "0" * 64)
    assert wrong.code == 1
    assert "what to do: read it again: byline show RUN" in wrong.err
    assert (host.executions(), digest(read(host, run))) == (0, digest(run))
    done = command("approve", str(run.run_id), "--yes", "--digest", digest(run), "--json")
    assert (done.code, done.err) == (0, "")
    [said] = done.json()
    assert (said["status"], said["output"]) == ("completed", "Done.")
    again = command("approve", str(run.run_id), "--yes", "--digest", digest(run))
    assert again.code == 1
    assert host.executions() == 1


def test_calls_are_decided_one_by_one(command: Command, host: Host) -> None:
    run = waiting(host, "two")
    assert run.pending is not None
    one = command("deny", str(run.run_id), "--call", "1", "--reason", "No.", "--yes", "--digest", digest(run), "--json")
    [said] = one.json()
    assert [call["decided"] and call["decided"]["verdict"] for call in said["pending"]["calls"]] == ["deny", None]
    assert said["pending"]["calls"][0]["decided"]["reason"] == "No."
    assert "denied by 8" in command("show", str(run.run_id)).out
    unknown = command("approve", str(run.run_id), "--call", "3", "--yes", "--digest", digest(run))
    assert (unknown.code, host.executions()) == (1, 0)
    named = str(run.pending.calls[1].id)
    other = command("approve", str(run.run_id), "--call", named, "--yes", "--digest", digest(run), "--json")
    assert other.json()[0]["status"] == "completed"
    assert (host.description(), host.elements()) == ("", ["Come in."])


@pytest.mark.promise("P14")
def test_who_decides_is_who_the_application_says(command: Command, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an option nor the environment names somebody else, and nobody is assumed."""
    run = waiting(host)
    arguments = ["approve", str(run.run_id), "--yes", "--digest", digest(run)]
    assert command(*arguments, "--actor", "8").code == 2
    monkeypatch.setattr(program, "cli_actor", lambda: AiActorContext.user("9"))  # may approve nothing
    refused = command(*arguments)
    assert refused.code == 1
    assert "cli_actor()" in refused.err
    monkeypatch.setattr(program, "cli_actor", lambda: AiActorContext.service("8", grants={Grant.APPROVE}))
    assert command(*arguments).code == 1
    monkeypatch.setattr(program, "cli_actor", lambda: "8")
    assert command(*arguments).code == 2
    monkeypatch.delattr(program, "cli_actor")
    nobody = command(*arguments)
    assert nobody.code == 2
    assert "define `def cli_actor() -> AiActorContext:`" in nobody.err
    assert (host.executions(), digest(read(host, run))) == (0, digest(run))
    assert command("show", str(run.run_id)).code == 0, "who only reads need not say who they are"


@pytest.mark.promise("P14")
def test_nobody_cancels_in_the_name_of_who_started_the_run(
    command: Command, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = waiting(host)
    monkeypatch.setattr(program, "cli_actor", lambda: AiActorContext.user("9"))
    assert command("cancel", str(run.run_id)).code == 1
    assert read(host, run).status is RunStatus.AWAITING_APPROVAL
    monkeypatch.setattr(program, "cli_actor", lambda: ALICE)
    cancelled = command("cancel", str(run.run_id), "--json")
    assert (cancelled.code, cancelled.json()[0]["status"]) == (0, "cancelled")


@pytest.mark.promise("P14")
def test_runs_act_for_who_the_application_says(command: Command, host: Host) -> None:
    said: dict[str, Any] = command("run", "editor", "See to page 42.", "--json").json()[0]
    assert (said["status"], said["actor"]) == ("awaiting_approval", {"id": "8", "scope": "user"})
