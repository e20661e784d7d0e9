"""An administrator who is killed with SIGKILL at every moment of every step: what is asked again goes on from there."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from byline import Decision, RunStatus
from byline.store.keys import KeyState
from tests.host import ALICE, BOB, Host
from tests.keys.program import SCRIPT, Administrator, Step, store_of

RUNS = 3
STEPS: tuple[Step, ...] = ("add", "activate", "reseal", "drop")


class Site:
    """A store in which runs wait, made once and copied; and the ids of its keys."""

    def __init__(self, template: Path, folder: Path) -> None:
        shutil.copytree(template, folder)
        self.folder = folder
        self.store = store_of(folder)
        self.store.open()
        [self.old] = [key.key_id for key in self.store.keys.list()]

    def key_of(self, step: Step) -> str:
        """The key that a step is about."""
        if step == "drop":
            return self.old
        return next((key.key_id for key in self.store.keys.list() if key.key_id != self.old), "")

    def do(self, step: Step) -> None:
        """Do a step, unless it shows that it has been done."""
        if step == "add":
            if all(key.state is not KeyState.STANDBY for key in self.store.keys.list()):
                self.store.keys.add()
        elif step == "reseal":
            self.store.keys.reseal()
        else:
            act: Callable[[str], None] = getattr(self.store.keys, step)
            act(self.key_of(step))


@pytest.mark.promise("P23")
@pytest.mark.parametrize("step", STEPS)
async def test_a_step_that_was_killed_anywhere_goes_on(host: Host, tmp_path: Path, step: Step) -> None:
    async with host.runtime(SCRIPT) as runtime:
        for _ in range(RUNS):
            run = await runtime.run("editor", "See to page 42.", actor=ALICE)
    template = tmp_path / "template"
    template.mkdir()
    for name in ("byline.db", "byline.db.key"):
        shutil.copy(tmp_path / name, template)

    def before(name: str) -> Site:
        site = Site(template, tmp_path / name)
        for earlier in STEPS[: STEPS.index(step)]:
            site.do(earlier)
        return site

    counted = before("counted")
    moments = Administrator(counted.folder, step, counted.key_of(step)).moments()
    counted.store.close()
    assert moments >= 4
    for moment in range(1, moments + 1, 1 if moments < 30 else 2):
        site = before(f"killed-{moment}")
        killed = Administrator(site.folder, step, site.key_of(step), die_at=moment)
        assert killed.ended() == -signal.SIGKILL
        for stored in site.store.list_runs(status=None, agent=None, after=None, limit=100):
            assert stored.problem is None  # beside it, everything stays readable all the time
        for again in STEPS[STEPS.index(step) :]:
            site.do(again)
        site.store.close()
        keys = (site.folder / "byline.db.key").read_text()
        assert site.old not in keys
        assert sorted(path.name for path in site.folder.iterdir() if ".key" in path.name) == ["byline.db.key"]
        fresh = store_of(site.folder)
        fresh.open()
        needed = {key.key_id: key.values for key in fresh.keys.list()}
        assert needed.pop(site.old) == 0
        assert sum(needed.values()) >= 3 * RUNS
        fresh.close()
        async with host.runtime(SCRIPT, store=fresh) as runtime:
            run = (await runtime.list_runs())[0]
            assert run.pending is not None
            run = await runtime.decide(run.run_id, Decision.approve(run.pending.digest), actor=BOB)
            assert run.status is RunStatus.COMPLETED
        shutil.rmtree(site.folder)
