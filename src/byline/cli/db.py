"""`byline db`: the schema of the store. A server's database is upgraded here and nowhere else."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from byline.cli.application import Application, load
from byline.cli.as_json import print_json
from byline.cli.failing import ExitCode
from byline.cli.options import AsJson
from byline.cli.screen import Screen, Style
from byline.errors import StoreError
from byline.store.protocol import RunStore

if TYPE_CHECKING:
    from byline.store.sql import SqlStore

group = typer.Typer(help="Look at the store's schema, and upgrade it.", no_args_is_help=True, rich_markup_mode=None)


def current(context: typer.Context, as_json: AsJson = False) -> None:
    """Say of which revision the store's schema is. It ends with 1 if that is not this version's."""
    from byline.store.tables import REVISION

    found = revision_of(sql_store(load(context)))
    if as_json:
        print_json({"revision": found, "wanted": REVISION})
    else:
        Screen().fields([("revision", found or "none: there are no tables of Byline's yet"), ("wanted", REVISION)])
        if found != REVISION:
            Screen().say("Next: byline db upgrade")
    if found != REVISION:
        raise typer.Exit(ExitCode.REFUSED)


def upgrade(context: typer.Context, as_json: AsJson = False) -> None:
    """Bring the store's schema to this version's revision. Back the database up before."""
    store = sql_store(load(context))
    before = revision_of(store)
    store.upgrade()
    after = store.schema_revision()
    if as_json:
        print_json({"before": before, "revision": after})
    elif before == after:
        Screen().say(f"The schema is of revision {after} already.")
    else:
        Screen().say(f"The schema is of revision {after} now; before: {before or 'none'}.", style=Style.GOOD)


def sql_store(application: Application) -> "SqlStore":
    """Return the application's store, if it is one with a schema of Byline's.

    Raises:
        StoreError: it is another, or in memory.
    """
    store = as_sql(application.runtime.store)
    if store is None:
        raise StoreError("this application's store is one of its own: its schema is not Byline's")
    if is_in_memory(store):
        raise StoreError("this store is in memory, and made anew each time: there is no schema to look at")
    return store


def as_sql(store: RunStore) -> "SqlStore | None":
    """Return a store that is Byline's own; None if it is a host's."""
    from byline.store.sql import SqlStore

    return store if isinstance(store, SqlStore) else None


def is_in_memory(store: "SqlStore") -> bool:
    """Whether a store is gone when it is closed."""
    from byline.store.engines import is_in_memory

    return is_in_memory(store.engine.url)


def revision_of(store: "SqlStore") -> str | None:
    """Read the schema's revision; None of a database without tables, and of a file that is not there."""
    return store.schema_revision() if is_there(store) else None


def is_there(store: "SqlStore") -> bool:
    """Whether there is a database: to look at a file would make it."""
    url = store.engine.url
    return url.get_backend_name() != "sqlite" or url.database is None or Path(url.database).exists()
