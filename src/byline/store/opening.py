"""Opening a database: whether it is one of ours, of which revision, and the upgrade of an embedded file."""

import os
from pathlib import Path

from sqlalchemy import Connection, String, column, inspect, select, table

from byline.errors import SchemaMismatch, StoreError
from byline.store.database import Database
from byline.store.tables import REVISION, REVISION_TABLE, message, metadata

_REVISION = select(column("version_num", String)).select_from(table(REVISION_TABLE))


def prepare(database: Database) -> None:
    """Make sure that the database has this version's schema.

    Raises:
        StoreError: it cannot be used. The message says what to do.
        SchemaMismatch: its schema is another, and is not this function's to change.
    """
    if database.in_memory:
        database.write(metadata.create_all)
        return
    if database.path is not None:
        _check_file(database.path)
    else:
        database.reach()
    revision = database.read(revision_of)
    if revision == REVISION:
        return
    if database.path is None:
        raise SchemaMismatch(f"the schema is {_named(revision)}, not {REVISION}: run `byline db upgrade`")
    database.write(upgrade)


def revision_of(connection: Connection) -> str | None:
    """Read the schema's revision; None of a database without a table of ours."""
    if not inspect(connection).has_table(REVISION_TABLE):
        return None
    return connection.execute(_REVISION).scalar()


def holds_sealed(connection: Connection) -> bool:
    """Whether something waits in the database that only its key can open."""
    return connection.execute(select(message.c.seq).limit(1)).first() is not None


def upgrade(connection: Connection) -> None:
    """Bring the schema to this version's revision, in the transaction of the connection."""
    revision = revision_of(connection)
    if revision == REVISION:  # another process was first
        return
    from byline.store.migrations import run_to_head  # alembic is costly, and rarely needed

    run_to_head(connection, revision)


def _named(revision: str | None) -> str:
    return "not there yet" if revision is None else f"of revision {revision}"


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise StoreError(f"{path} is a directory: name a file in it, such as sqlite:///{path}/byline.db")
    if not path.parent.is_dir():
        raise StoreError(f"the folder {path.parent} of the store's file does not exist: make it first")
    writable = os.access(path if path.exists() else path.parent, os.R_OK | os.W_OK)
    if not writable or not os.access(path.parent, os.W_OK):
        raise StoreError(f"{path} or its folder is read-only: give this process the right to write both")
