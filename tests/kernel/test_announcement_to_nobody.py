"""No listener ships: without one of the host's, nobody is told, by no way whatever (P4)."""

import logging
import sys
from pathlib import Path

import pytest

from byline import RunStatus, ToolEffect
from byline.testing import AllowAll, RecordingDispatcher, ScriptedModel, allow_all, memory_store
from tests.host import Host
from tests.kernel.entries import ENTRIES, Entry, executed
from tests.kernel.writers import TURNS, writer


@pytest.mark.promise("P4")
@pytest.mark.parametrize("entry", ENTRIES)
async def test_without_a_listener_nothing_is_told(
    host: Host, entry: Entry, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not in the log, at any level, and not on the terminal; the feed has the fact for whoever asks."""
    caplog.set_level(logging.DEBUG)
    tools = [writer(host, ToolEffect.IDEMPOTENT_WRITE)]
    async with executed(host, entry, TURNS, tools=tools, listeners=[]) as (runtime, run):
        assert run.status is RunStatus.COMPLETED
        assert len(await runtime.writes()) == 1
    assert "pages:42" not in caplog.text
    assert [record.name for record in caplog.records if record.name == "byline.announcing"] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.promise("P4")
async def test_no_listener_is_configured_from_outside(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed package that offers one, in whatever group, is not asked."""
    package = tmp_path / "site"
    info = package / "eager-1.0.dist-info"
    info.mkdir(parents=True)
    (package / "eager.py").write_text("def listen(event): raise SystemExit\n", "utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: eager\nVersion: 1.0\n", "utf-8")
    groups = ("byline", "byline.listeners", "byline_listeners")
    (info / "entry_points.txt").write_text("".join(f"[{group}]\nx = eager:listen\n" for group in groups), "utf-8")
    monkeypatch.setattr(sys, "path", [str(package), *sys.path])
    for name in ("BYLINE_LISTENERS", "BYLINE_LISTENER", "BYLINE_DISPATCHER"):
        monkeypatch.setenv(name, "eager:listen")

    async with executed(host, "inline", TURNS, tools=[writer(host, ToolEffect.IDEMPOTENT_WRITE)]) as (_, run):
        assert run.status is RunStatus.COMPLETED
    assert host.heard() == [("pages:42", "updated")]
    assert "eager" not in sys.modules


@pytest.mark.promise("P4")
def test_the_test_kit_has_a_recording_dispatcher_and_no_listener() -> None:
    kit = (RecordingDispatcher(), ScriptedModel([]), AllowAll(), allow_all, memory_store())
    assert [thing for thing in kit if callable(thing)] == []
