"""Which keys may seal, and why a run could not be executed."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_DEFERRED = "deferred_because IS NULL OR status IN ('queued', 'running')"


def upgrade() -> None:
    """Make the table of keys; let a run say why it was deferred."""
    op.create_table(
        "byline_key",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("active", sa.Integer),
        sa.Column("closed_at", sa.BigInteger),
        sa.CheckConstraint("active = 1", name="byline_key_marked"),
        sa.CheckConstraint("closed_at IS NULL OR active IS NULL", name="byline_key_closed"),
        mariadb_engine="InnoDB",
        mariadb_charset="utf8mb4",
        mariadb_collate="utf8mb4_nopad_bin",  # equal byte for byte, as elsewhere
    )
    op.create_index("byline_key_active", "byline_key", ["active"], unique=True)
    if op.get_context().dialect.name == "sqlite":  # which adds a constraint only together with its column
        added = f"ADD COLUMN deferred_because VARCHAR(500) CONSTRAINT byline_run_deferred CHECK ({_DEFERRED})"
        op.execute(f"ALTER TABLE byline_run {added}")
    else:
        op.add_column("byline_run", sa.Column("deferred_because", sa.String(500)))
        op.create_check_constraint("byline_run_deferred", "byline_run", _DEFERRED)
