"""How often the model of a run has failed since its last progress."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_COUNTED = "model_failures >= 0"


def upgrade() -> None:
    """Add the column. No run that is there has failed and goes on: it went to dead letter."""
    # SQLite adds a constraint only together with its column; MariaDB names no constraint of a column.
    together = op.get_bind().dialect.name == "sqlite"
    check = [sa.CheckConstraint(_COUNTED, name="byline_run_model_failures")] if together else []
    op.add_column("byline_run", sa.Column("model_failures", sa.Integer, *check, nullable=False, server_default="0"))
    if not together:
        op.create_check_constraint("byline_run_model_failures", "byline_run", _COUNTED)
