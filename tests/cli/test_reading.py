"""Commands that read: what they show, and that they execute nothing."""

import pytest

from tests.cli.conftest import Command
from tests.cli.program import SCRIPTS
from tests.host import ALICE, Host


def test_a_waiting_run_is_listed_and_shown(command: Command, host: Host) -> None:
    with host.runtime(SCRIPTS["two"]).sync as runtime:
        run = runtime.run("editor", "See to page 42.", actor=ALICE)
    assert run.pending is not None
    listed = command("runs")
    assert (listed.code, listed.err) == (0, "")
    assert str(run.run_id) in listed.out
    assert "waits: set_description, add_element" in listed.out
    shown = command("show", str(run.run_id)[:20])
    assert shown.code == 0
    for part in ("awaiting_approval", run.pending.digest, "We are open.", "non_idempotent_write", "+ We are open."):
        assert part in shown.out
    [as_json] = command("show", str(run.run_id), "--json").json()
    assert as_json["pending"]["digest"] == run.pending.digest
    assert [shown["arguments"] for shown in as_json["pending"]["calls"]] == [
        call.arguments for call in run.pending.calls
    ]


@pytest.mark.promise("P17")
def test_commands_that_read_execute_nothing_and_never_recover(
    command: Command, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the application itself says `recover=True`."""
    with host.runtime(SCRIPTS["set"]).sync as runtime:
        run = runtime.enqueue("editor", "See to page 42.", actor=ALICE)
    monkeypatch.setenv("PROGRAM_RECOVERS", "1")
    reading = (
        ["runs"],
        ["show", str(run.run_id)],
        ["steps", str(run.run_id)],
        ["writes"],
        ["doctor"],
        ["db", "current"],
    )
    for arguments in reading:
        assert command(*arguments).code == 0
        assert command(*arguments, "--json").code == 0
    with host.runtime(SCRIPTS["set"]).sync as runtime:
        after = runtime.get_run(run.run_id)
        assert (after.status, after.updated_at) == (run.status, run.updated_at)
        assert runtime.list_steps(run.run_id) == []
