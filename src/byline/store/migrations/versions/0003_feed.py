"""The row that writers of the feed hold, one behind the other."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table, and its row."""
    feed = op.create_table(
        "byline_feed",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.CheckConstraint("id = 1", name="byline_feed_one"),
        mariadb_engine="InnoDB",
        mariadb_charset="utf8mb4",
        mariadb_collate="utf8mb4_nopad_bin",
    )
    op.bulk_insert(feed, [{"id": 1}])
