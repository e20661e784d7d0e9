"""Run by alembic. The connection, and the transaction it is in, belong to whoever asked for the upgrade."""

from alembic import context

from byline.store.tables import REVISION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=REVISION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
