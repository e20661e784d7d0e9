"""Workers that PostgreSQL wakes: a run is taken up because somebody said so, and not because it was looked for."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL

from byline import ConfigurationError, Decision, RunStatus
from byline.queue.postgresql import PostgresqlWakeup
from byline.store.sql import SqlStore
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import until_left, waiting
from tests.kernel.stopping import ADD
from tests.kernel.test_work import NEVER, working
from tests.store.servers import POSTGRESQL, cut_connections, database, upgraded
from tests.store.sqlite import KEYS


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host.db")


@pytest.fixture(scope="module")
def url() -> Iterator[URL]:
    with database(POSTGRESQL) as url:
        yield upgraded(url)


def _text(url: URL) -> str:
    return url.render_as_string(hide_password=False)


@pytest.mark.promise("P17")
@pytest.mark.parametrize("cut", [False, True], ids=["heard", "heard again after its connection was cut"])
async def test_a_worker_hears_of_what_is_queued_elsewhere(host: Host, url: URL, cut: bool) -> None:
    web, at_work = (SqlStore(_text(url), keys=KEYS) for _ in range(2))
    wakeup = PostgresqlWakeup(_text(url))
    async with (
        host.runtime([[ADD], "Done."], store=web, execution="queued", wakeup=wakeup) as runtime,
        host.runtime([[ADD], "Done."], store=at_work, wakeup=PostgresqlWakeup(_text(url))) as worker,
        working(worker, poll=NEVER),
        asyncio.timeout(20),
    ):
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        await until_left(runtime, run.run_id, RunStatus.QUEUED)
        run = await until_left(runtime, run.run_id, RunStatus.RUNNING)
        if cut:
            await asyncio.to_thread(cut_connections, url)
        await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        await until_left(runtime, run.run_id, RunStatus.QUEUED)
        run = await until_left(runtime, run.run_id, RunStatus.RUNNING)
        assert (run.output, host.executions()) == ("Done.", 1)


@pytest.mark.parametrize("wrong", ["sqlite://", "mariadb://root:s3cret-word@127.0.0.1/x", "s3cret-word"])
def test_another_database_does_not_notify(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match="PostgreSQL") as caught:
        PostgresqlWakeup(wrong)
    assert "s3cret-word" not in str(caught.value)


def test_it_shows_no_password() -> None:
    assert "s3cret-word" not in repr(PostgresqlWakeup("postgresql+psycopg://me:s3cret-word@127.0.0.1/x"))
