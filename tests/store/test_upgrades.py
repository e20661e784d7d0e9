"""A store of every earlier revision is upgraded, on every database, with runs that wait inside, and they go on."""

import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from importlib.resources import files

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from byline import Decision, ModelError, RunStatus, SchemaMismatch, TerminationReason
from byline.models.scripted import Turn
from byline.store import migrations
from byline.store.sql import SqlStore
from byline.store.tables import REVISION, metadata, run
from byline.testing import call
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import waiting
from tests.store.servers import MARIADB, POSTGRESQL, database
from tests.store.sqlite import KEYS

FOLDER = str(files(migrations))
SCRIPT: list[Turn] = [[call("set_description", page_id=42, description="We are open.")], "Done."]


def earlier() -> list[str]:
    config = Config()
    config.set_main_option("script_location", FOLDER)
    revisions = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    return sorted(set(revisions) - {REVISION})


@contextmanager
def empty(host: Host, kind: str) -> Generator[sa.URL]:
    """An empty database of a kind, gone afterwards."""
    if kind == "sqlite":
        yield sa.make_url(f"sqlite:///{host.path.parent / 'before.db'}")
        return
    server = POSTGRESQL if kind == "postgresql" else MARIADB
    with database(server, f"byline_before_{threading.get_native_id()}") as url:
        yield url


def store_at(url: sa.URL) -> SqlStore:
    return SqlStore(url.render_as_string(hide_password=False), keys=KEYS)


def copy(here: sa.URL, there: sa.URL, revision: str) -> None:
    """Make the tables of an earlier revision, and copy the rows into them, as far as there is room for them."""
    source, target = sa.create_engine(here), sa.create_engine(there)
    with source.connect() as new, target.begin() as old:
        config = Config(attributes={"connection": old})
        config.set_main_option("script_location", FOLDER)
        command.upgrade(config, revision)
        inspected = sa.inspect(old)
        for table in metadata.sorted_tables:
            if not inspected.has_table(table.name):
                continue
            room = {str(column["name"]) for column in inspected.get_columns(table.name)}
            rows = new.execute(sa.select(*(column for column in table.c if column.name in room))).mappings().all()
            old.execute(sa.delete(table))
            if rows:
                old.execute(sa.insert(table), [dict(row) for row in rows])
        # A model's failure of any kind had this reason, before there were two.
        old.execute(sa.update(run).where(run.c.status == RunStatus.DEAD_LETTER.value).values(reason="model_failed"))
        if there.get_backend_name() == "postgresql":  # which counts no row that came with its number
            counted = "SELECT setval(pg_get_serial_sequence('byline_step', 'id'), max(id)) FROM byline_step"
            old.execute(sa.text(counted))
    source.dispose()
    target.dispose()


@pytest.mark.promise("P19", "P21", "P23")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
@pytest.mark.parametrize("revision", earlier())
async def test_a_run_that_waited_through_the_upgrade_goes_on(host: Host, revision: str, kind: str) -> None:
    now = sa.make_url(f"sqlite:///{host.path.parent / 'byline.db'}")
    async with host.runtime(SCRIPT, store=store_at(now)) as runtime:
        run = await runtime.run("editor", "Describe page 42.", actor=ALICE)
        done = await runtime.run("editor", "Describe page 42.", actor=ALICE)
        await runtime.decide(done.run_id, Decision.approve(waiting(done)), actor=BOB)
    async with host.runtime([ModelError("no right")], store=store_at(now)) as runtime:
        dead = await runtime.run("editor", "Describe page 42.", actor=ALICE)

    with empty(host, kind) as before:
        copy(now, before, revision)
        with closing(store_at(before)) as store:
            if kind != "sqlite":
                with pytest.raises(SchemaMismatch, match="byline db upgrade"):
                    store.open()
                store.upgrade()
        async with host.runtime(SCRIPT, store=store_at(before)) as runtime:
            assert [str(fact.record) for fact in await runtime.writes()] == ["pages:42"]
            assert (await runtime.get_run(done.run_id)).output == "Done."
            digest = waiting(await runtime.get_run(run.run_id))
            assert digest == waiting(run)
            run = await runtime.decide(run.run_id, Decision.approve(digest), actor=BOB)
            assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
            assert len(await runtime.writes()) == 2
            dead = await runtime.get_run(dead.run_id)
            assert (dead.status, dead.reason) == (RunStatus.DEAD_LETTER, TerminationReason.MODEL_FAILED)
            assert runtime.store.get(dead.run_id).model_failures == 0
            waiting(await runtime.retry(dead.run_id))
    assert host.executions() == 2


def test_there_are_earlier_revisions() -> None:
    assert earlier()[0] == "0001"
    assert REVISION not in earlier()
