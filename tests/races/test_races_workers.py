"""Workers side by side: each queued run is executed by one of them, once."""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import URL

from byline import RunStatus
from tests.cli.program import SCRIPTS
from tests.host import ALICE, Host
from tests.kernel.entries import until_left
from tests.store.servers import POSTGRESQL, database, upgraded
from tests.store.sqlite import KEYS

RUNS = int(os.environ.get("BYLINE_RUNS", "100"))
WORKERS = int(os.environ.get("BYLINE_WORKERS", "4"))
PATIENCE = 50 if RUNS <= 100 else 600


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("PROGRAM_HOST", str(tmp_path / "host.db"))
    monkeypatch.setenv("PROGRAM_SCRIPT", "read")
    monkeypatch.setenv("BYLINE_KEYS", KEYS.format())
    return Host(tmp_path / "host.db")


@contextmanager
def worker() -> Generator[None]:
    command = [sys.executable, "-m", "byline", "--app", "tests.cli.program:runtime", "worker", "--poll", "0.1"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


async def executed_once(host: Host) -> None:
    """Queue runs, let workers at them, and look who executed what."""
    async with host.runtime(SCRIPTS["read"], store=os.environ["PROGRAM_STORE"], execution="queued") as runtime:
        runs = [await runtime.enqueue("editor", "Read page 42.", actor=ALICE) for _ in range(RUNS)]
        with ExitStack() as workers:
            for _ in range(WORKERS):
                workers.enter_context(worker())
            async with asyncio.timeout(PATIENCE):
                for run in runs:
                    await until_left(runtime, run.run_id, RunStatus.QUEUED)
                    assert (await until_left(runtime, run.run_id, RunStatus.RUNNING)).output == "Read."
        claims: Counter[int] = Counter()
        for run in runs:
            stored = await asyncio.to_thread(runtime.store.get, run.run_id)
            claims[stored.claim] += 1
    assert claims == {1: RUNS}
    assert host.ask("select count(*), count(distinct call_id), max(attempt) from executed") == [(RUNS, RUNS, 1)]


@pytest.mark.promise("P17", "P18")
@pytest.mark.report(42)
async def test_on_sqlite(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROGRAM_STORE", f"sqlite:///{host.path.parent}/byline.db")
    await executed_once(host)


@pytest.mark.promise("P17", "P18")
@pytest.mark.report(42)
async def test_on_postgresql(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(POSTGRESQL, f"byline_workers_{os.getpid()}") as url:
        monkeypatch.setenv("PROGRAM_STORE", _text(upgraded(url)))
        await executed_once(host)


def _text(url: URL) -> str:
    return url.render_as_string(hide_password=False)
