"""`byline purge`: what it deletes, what it says, and whom it asks."""

import pytest

from byline.cli.failing import ExitCode
from tests.cli.conftest import Command
from tests.cli.terminal import terminal
from tests.host import Host


@pytest.fixture
def ended(command: Command) -> str:
    """A run that has ended."""
    (run,) = command("run", "editor", "Describe page 42.", "--json").json()
    digest = run["pending"]["digest"]
    (run,) = command("approve", run["run_id"], "--yes", "--digest", digest, "--json").json()
    assert run["status"] == "completed"
    return str(run["run_id"])


@pytest.mark.promise("P23")
def test_it_deletes_traces_and_keeps_what_was_written(command: Command, ended: str) -> None:
    said = command("purge", "--older-than", "0s", "--yes", "--json")
    assert (said.code, said.json()) == (
        ExitCode.DONE,
        [{"outputs": 0, "runs": 1, "dead_letters": 0, "forgotten": 0}],
    )
    assert [step["kind"] for step in command("steps", ended, "--json").json()] == ["write"]
    assert "purged" in command("show", ended).out
    said = command("purge", "--older-than", "0s", "--provenance-older-than", "0s", "--yes")
    assert (said.code, "1" in said.out) == (ExitCode.DONE, True)
    assert command("show", ended).code == ExitCode.REFUSED


def test_what_is_young_stays(command: Command, ended: str) -> None:
    assert command("purge", "--older-than", "1d", "--yes", "--json").json()[0]["runs"] == 0
    assert len(command("steps", ended, "--json").json()) > 1


@pytest.mark.parametrize(
    "wrong",
    [
        ["--older-than", "0s"],  # nobody can be asked
        ["--older-than", "soon", "--yes"],
        ["--older-than", "2d", "--provenance-older-than", "1d", "--yes"],
        ["--yes"],
    ],
)
def test_what_makes_no_sense_deletes_nothing(command: Command, ended: str, wrong: list[str]) -> None:
    assert command("purge", *wrong).code == ExitCode.USAGE
    assert len(command("steps", ended, "--json").json()) > 1


@pytest.mark.parametrize("answer, code", [("y", ExitCode.DONE), ("", ExitCode.REFUSED), ("no", ExitCode.REFUSED)])
def test_on_a_terminal_it_asks(host: Host, command: Command, ended: str, answer: str, code: ExitCode) -> None:
    with terminal("purge", "--older-than", "0s", "--provenance-older-than", "0s") as person:
        person.read_until("nothing will be left")
        person.read_until("[y/N]")
        person.type(f"{answer}\n")
        assert person.end() == code
    assert command("show", ended).code == (ExitCode.REFUSED if answer == "y" else ExitCode.DONE)
