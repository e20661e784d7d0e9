"""Keys are rotated by commands: beside a run that waits, and without a key in anything that is printed."""

import stat
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

from byline import AgentRuntime, KeyRing, RunStore
from byline.testing import allow_all
from tests.cli import program
from tests.cli.conftest import Command, Said
from tests.cli.terminal import terminal
from tests.host import Host

OLD, NEW = KeyRing({"old": b"1" * 32}, "old"), KeyRing({"new": b"2" * 32}, "new")
OTHER = KeyRing({"other": b"3" * 32}, "other")


class Recording:
    """Runs commands, and keeps what they wrote and each key that was in the key file."""

    def __init__(self, command: Command, file: Path) -> None:
        self._command = command
        self._file = file
        self.written = ""
        self.keys = {ring.format() for ring in (OLD, NEW, OTHER)}

    def __call__(self, *arguments: str) -> Said:
        said = self._command(*arguments)
        self.written += said.out + said.err
        if self._file.exists():
            self.keys |= set(self._file.read_text().strip().split(","))
        return said


@pytest.fixture
def recorded(command: Command, host: Host, caplog: pytest.LogCaptureFixture) -> Generator[Recording]:
    """Commands, and the end of each test: none of them has written or logged a key that the store has."""
    recording = Recording(command, key_file(host))
    yield recording
    for key in recording.keys:
        secret = key.partition(":")[2]
        assert secret not in recording.written
        assert secret not in caplog.text


def key_file(host: Host) -> Path:
    return host.path.parent / "byline.db.key"


def states(command: Recording) -> dict[str, str]:
    return {key["key_id"]: key["state"] for key in command("keys", "list", "--json").json()}


def needed(command: Recording) -> dict[str, int]:
    return {key["key_id"]: key["values"] for key in command("keys", "list", "--json").json()}


def begin(command: Recording) -> tuple[str, str]:
    """A run that waits: its id and its digest."""
    run = command("run", "editor", "See to page 42.", "--json").json()[0]
    assert run["status"] == "awaiting_approval"
    return run["run_id"], run["pending"]["digest"]


def approved(command: Recording, run_id: str, digest: str) -> str:
    status = command("approve", run_id, "--yes", "--digest", digest, "--json").json()[0]["status"]
    assert isinstance(status, str)
    return status


@pytest.mark.promise("P23")
def test_a_whole_rotation_beside_a_run_that_waits(recorded: Recording, host: Host) -> None:
    run_id, digest = begin(recorded)
    [old] = states(recorded)
    before = needed(recorded)[old]
    assert before > 0
    added = recorded("keys", "add")
    assert (added.code, added.err) == (0, "")
    [new] = states(recorded).keys() - {old}
    assert new in added.out
    assert str(key_file(host)) in added.out
    assert states(recorded) == {old: "active", new: "standby"}
    active = recorded("keys", "drop", old, "--yes")
    assert (active.code, "reseal, then drop it" in active.err) == (1, True)
    assert recorded("keys", "activate", new).code == 0
    refused = recorded("keys", "drop", old, "--yes")
    assert (refused.code, states(recorded)[old]) == (1, "standby")
    assert f"{before} values need the key {old!r}: reseal" in refused.err
    resealed = recorded("keys", "reseal")
    assert (resealed.code, resealed.err) == (0, ""), "progress is for terminals"
    assert f"{before} of {before}" in resealed.out
    assert needed(recorded) == {old: 0, new: before}
    assert recorded("keys", "drop", old).code == 2, "nobody was asked"
    dropped = recorded("keys", "drop", old, "--yes")
    assert (dropped.code, dropped.err) == (0, "")
    assert states(recorded) == {old: "closed", new: "active"}
    assert list(KeyRing.parse(key_file(host).read_text(), "file").keys) == [new]
    assert approved(recorded, run_id, digest) == "completed"
    assert (host.executions(), host.heard()) == (1, [("pages:42", "updated")])


@pytest.mark.promise("P23")
def test_programs_read_json_without_a_key(recorded: Recording, host: Host) -> None:
    begin(recorded)
    [old] = states(recorded)
    values = needed(recorded)[old]
    added = recorded("keys", "add", "--json").json()
    new = added[0]["key_id"]
    assert added == [{"key_id": new, "file": str(key_file(host))}]
    [row] = [key for key in recorded("keys", "list", "--json").json() if key["key_id"] == new]
    assert row == {"key_id": new, "state": "standby", "here": True, "values": 0}
    assert recorded("keys", "activate", new, "--json").json() == [{"key_id": new, "state": "active"}]
    resealed = recorded("keys", "reseal", "--json").json()
    assert resealed == [{"total": values, "done": values, "moved_on": 0, "unreadable": 0}]
    assert recorded("keys", "drop", old, "--yes", "--json").json() == [{"key_id": old, "state": "closed"}]
    table = recorded("keys", "list").out.splitlines()
    assert table[0].split() == ["KEY", "STATE", "HERE", "VALUES"]
    assert sorted(line.split() for line in table[1:]) == sorted(
        [[old, "closed", "no", "0"], [new, "active", "yes", str(values)]]
    )


@pytest.mark.promise("P23")
def test_keys_from_elsewhere_are_rotated_through_a_new_file(
    recorded: Recording, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYLINE_KEYS", OLD.format())
    run_id, digest = begin(recorded)
    refused = recorded("keys", "add")
    assert (refused.code, refused.out) == (2, "")
    assert "--to FILE" in refused.err
    assert "--show-key" in refused.err
    file = host.path.parent / "new.key"
    added = recorded("keys", "add", "--to", str(file))
    assert (added.code, str(file) in added.out, "BYLINE_KEYS" in added.out) == (0, True, True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    secret = file.read_text().strip()
    again = recorded("keys", "add", "--to", str(file))
    assert (again.code, file.read_text().strip()) == (2, secret)
    assert "already" in again.err
    new = KeyRing.parse(secret, "file").active
    too_early = recorded("keys", "activate", new)
    assert (too_early.code, "is not here" in too_early.err) == (3, True)
    monkeypatch.setenv("BYLINE_KEYS", f"{OLD.format()},{secret}")
    assert recorded("keys", "activate", new).code == 0
    assert recorded("keys", "reseal").code == 0
    assert "Take it out of BYLINE_KEYS" in recorded("keys", "drop", "old", "--yes").out
    monkeypatch.setenv("BYLINE_KEYS", secret)
    assert approved(recorded, run_id, digest) == "completed"
    assert secret.partition(":")[2] not in recorded.written
    assert not key_file(host).exists()


@pytest.mark.promise("P23")
def test_a_key_is_printed_only_when_asked_for(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYLINE_KEYS", OLD.format())
    monkeypatch.setenv("COLUMNS", "40")
    said = command("keys", "add", "--show-key")
    ring = KeyRing.parse(said.out, "stdout")
    assert (said.code, said.out) == (0, ring.format() + "\n"), "the key, whole and alone"
    assert ring.active in said.err
    assert ring.format().partition(":")[2] not in said.err
    [shown] = command("keys", "add", "--show-key", "--json").json()
    assert KeyRing.parse(shown["key"], "stdout").active == shown["key_id"]


def test_a_key_of_ones_own_is_read_from_a_file(
    recorded: Recording, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    [first] = states(recorded)
    file = host.path.parent / "own.key"
    assert recorded("keys", "add", "--from", str(file)).code == 2
    file.write_text(NEW.format())
    file.chmod(0o644)
    open_to_all = recorded("keys", "add", "--from", str(file))
    assert (open_to_all.code, "chmod 600" in open_to_all.err) == (3, True)
    file.chmod(0o600)
    assert recorded("keys", "add", "--from", str(file), "--json").json()[0]["key_id"] == "new"
    assert states(recorded) == {first: "active", "new": "standby"}
    assert NEW.format() in key_file(host).read_text()
    file.write_text(f"{OLD.format()},{OTHER.format()}")
    two = recorded("keys", "add", "--from", str(file))
    assert (two.code, "one at a time" in two.err) == (2, True)
    for options in (["--show-key"], ["--to", "elsewhere.key"], ["--from", str(file), "--show-key"]):
        assert recorded("keys", "add", *options).code == 2
    assert states(recorded) == {first: "active", "new": "standby"}
    monkeypatch.setenv("BYLINE_KEYS", key_file(host).read_text().strip())
    file.write_text(OTHER.format())
    added = recorded("keys", "add", "--from", str(file))
    assert (added.code, "other can be added" in added.out, "BYLINE_KEYS" in added.out) == (0, True, True)


def test_a_value_that_cannot_be_read_needs_a_person(recorded: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYLINE_KEYS", OLD.format())
    begin(recorded)
    monkeypatch.setenv("BYLINE_KEYS", f"{OLD.format()},{NEW.format()}")
    assert recorded("keys", "activate", "new").code == 0
    monkeypatch.setenv("BYLINE_KEYS", NEW.format())
    resealed = recorded("keys", "reseal")
    assert (resealed.code, "their key is not here" in resealed.out) == (4, True)
    assert recorded("keys", "drop", "old", "--yes").code == 1
    assert "no" in recorded("keys", "list").out.split()


def test_a_wrong_id_is_refused(recorded: Recording) -> None:
    before = states(recorded)
    dropped = recorded("keys", "drop", "nothing", "--yes")
    assert dropped.code == 1
    assert "there is no key 'nothing'" in dropped.err
    assert "byline keys list" in dropped.err
    activated = recorded("keys", "activate", "nothing")
    assert (activated.code, "is not here" in activated.err) == (3, True)
    assert states(recorded) == before


def test_a_store_whose_keys_are_not_bylines_is_refused(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = (["list"], ["add"], ["activate", "x"], ["reseal"], ["drop", "x", "--yes"])
    monkeypatch.setenv("PROGRAM_STORE", "sqlite://")
    for arguments in everything:
        said = command("keys", *arguments)
        assert (said.code, said.out, "in memory" in said.err) == (3, "", True)
    monkeypatch.setattr(
        program, "runtime", lambda: AgentRuntime(store=cast("RunStore", object()), agents=[], authority=allow_all)
    )
    for arguments in everything:
        said = command("keys", *arguments)
        assert (said.code, said.out, "one of its own" in said.err) == (3, "", True)


def test_at_a_terminal_it_asks_and_shows_how_far_it_is(recorded: Recording) -> None:
    begin(recorded)
    [old] = states(recorded)
    new = recorded("keys", "add", "--json").json()[0]["key_id"]
    recorded("keys", "activate", new)
    with terminal("keys", "reseal", "--json") as person:
        assert person.end() == 0
        assert "sealed anew: " in person.shown
        recorded.written += person.shown
    with terminal("keys", "drop", old) as person:
        assert "A backup" in person.read_until(f"Drop the key {old}? [y/N]")
        person.type("n\n")
        assert person.end() == 1
        assert "Nothing was dropped." in person.shown
    assert states(recorded)[old] == "standby"
    with terminal("keys", "drop", old) as person:
        person.read_until("[y/N]")
        person.type("y\n")
        assert person.end() == 0
        recorded.written += person.shown
    assert states(recorded)[old] == "closed"
