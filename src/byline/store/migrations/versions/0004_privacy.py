"""The privacy level of a run, and when it was purged."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_LEVELS = "privacy IN ('full', 'metadata', 'none', 'redacted')"
_PURGED = "purged_at IS NULL OR (status IN ('cancelled', 'completed', 'failed') AND output IS NULL)"
_INDEXES = {
    "retained": "purged_at IS NULL AND status IN ('cancelled', 'completed', 'dead_letter', 'failed')",
    "purged": "purged_at IS NOT NULL",
    "answered": "output IS NOT NULL",
}


def upgrade() -> None:
    """Add the columns. Runs that are there have been kept at the default level."""
    # SQLite adds a constraint only together with its column; MariaDB names no constraint of a column.
    together = op.get_bind().dialect.name == "sqlite"
    level, purged = (
        [sa.CheckConstraint(condition, name=f"byline_run_{name}")] if together else []
        for name, condition in (("privacy", _LEVELS), ("purged", _PURGED))
    )
    op.add_column("byline_run", sa.Column("privacy", sa.String(16), *level, nullable=False, server_default="metadata"))
    op.add_column("byline_run", sa.Column("purged_at", sa.BigInteger, *purged))
    if not together:
        op.create_check_constraint("byline_run_privacy", "byline_run", _LEVELS)
        op.create_check_constraint("byline_run_purged", "byline_run", _PURGED)
    for name, condition in _INDEXES.items():
        where = sa.text(condition)
        op.create_index(f"byline_run_{name}", "byline_run", ["updated_at"], sqlite_where=where, postgresql_where=where)
