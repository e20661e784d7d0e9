"""The steps from one revision of the schema to the next, run by alembic."""

from importlib.resources import as_file, files

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection

from byline.errors import SchemaMismatch


def run_to_head(connection: Connection, revision: str | None) -> None:
    """Run every step behind `revision` in the connection's transaction.

    Raises:
        SchemaMismatch: the revision is none that this version knows.
    """
    with as_file(files(__name__)) as folder:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        try:
            ScriptDirectory.from_config(config).get_revision(revision or "base")
        except CommandError:
            raise SchemaMismatch(
                f"the schema is of revision {revision}, which this version of Byline does not know: "
                "it is newer, so install the version that wrote it, or a later one"
            ) from None
        command.upgrade(config, "head")
