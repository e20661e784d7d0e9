"""Watching a run that other processes execute, one after the other: no step is missed, and none told twice."""

import asyncio
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from byline import AgentRuntime, AiActorContext, RunStatus, Step, StepKind
from tests.store.servers import MARIADB, POSTGRESQL, cut_connections, database, upgraded
from tests.store.sqlite import KEYS
from tests.watching.program import HELD, PAGES, made

ALICE = AiActorContext.user("7")
PATIENCE = 30.0
SERVERS = {"postgresql": POSTGRESQL, "mariadb": MARIADB}


@pytest.fixture(params=["sqlite", *SERVERS])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty store, known to the workers."""
    monkeypatch.setenv("BYLINE_APP", "tests.watching.program:runtime")
    monkeypatch.setenv("BYLINE_KEYS", KEYS.format())
    monkeypatch.setenv("WATCHED_FOLDER", str(tmp_path))
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'byline.db'}"
        monkeypatch.setenv("WATCHED_STORE", url)
        yield url
        return
    with database(SERVERS[request.param]) as server:
        url = upgraded(server).render_as_string(hide_password=False)
        monkeypatch.setenv("WATCHED_STORE", url)
        yield url


@contextmanager
def worker() -> Generator["subprocess.Popen[str]"]:
    """A worker, which does not outlive the test."""
    command = [sys.executable, "-m", "byline", "worker", "--poll", "0.05"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        try:
            assert "at work" in process.stderr.readline()
            yield process
        finally:
            process.kill()


async def reached(place: Path) -> None:
    """Wait until a worker is held there."""
    async with asyncio.timeout(PATIENCE):
        while not place.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)


@pytest.mark.promise("P19", "P21")
async def test_a_worker_is_killed_and_another_takes_over(store: str, tmp_path: Path) -> None:
    told: dict[int, list[Step]] = {}

    async def watch(runtime: AgentRuntime, number: int, run: str) -> None:
        async with asyncio.timeout(PATIENCE):
            async for step in runtime.watch(run, poll=0.02):
                told.setdefault(number, []).append(step)
                if number:  # one of them is slow
                    await asyncio.sleep(0.03)

    async with made(store) as runtime:
        run_id = (await runtime.enqueue("reader", "Read them all.", actor=ALICE)).run_id
        watchers = [asyncio.create_task(watch(runtime, number, str(run_id))) for number in range(2)]
        with worker() as first:
            await reached(tmp_path / "held-1")
            first.kill()
            first.wait(PATIENCE)
        before = await runtime.list_steps(run_id)
        assert [step.kind for step in before].count(StepKind.TOOL) == HELD
        (tmp_path / "go").touch()
        with worker():
            await asyncio.gather(*watchers)
        steps = await runtime.list_steps(run_id)
        assert (await runtime.get_run(run_id)).status is RunStatus.COMPLETED
        assert [step.kind for step in steps].count(StepKind.TOOL) == PAGES
        assert [step.position for step in steps] == sorted({step.position for step in steps})
        assert told == {0: steps, 1: steps}
        assert steps[: len(before)] == before


@pytest.mark.promise("P19", "P21")
@pytest.mark.parametrize("store", [*SERVERS], indirect=True)
async def test_a_server_that_cuts_the_connections_breaks_no_watch(store: str, tmp_path: Path) -> None:
    async with made(store) as runtime:
        run_id = (await runtime.enqueue("reader", "Read them all.", actor=ALICE)).run_id
        told: list[Step] = []
        with worker():
            async with asyncio.timeout(PATIENCE):
                async for step in runtime.watch(run_id, poll=0.02):
                    told.append(step)
                    if len(told) == HELD:
                        await reached(tmp_path / "held-1")
                        await asyncio.to_thread(cut_connections, make_url(store))
                        (tmp_path / "go").touch()
        assert told == await runtime.list_steps(run_id)
        assert (await runtime.get_run(run_id)).status is RunStatus.COMPLETED
