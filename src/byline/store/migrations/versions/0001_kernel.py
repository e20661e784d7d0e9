"""Runs, messages, steps, decisions and late reports."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SEALED = sa.LargeBinary(2**32 - 1)
_RECORD = (
    "(record_table IS NULL AND record_uid IS NULL AND write_kind IS NULL) "
    "OR (record_table IS NOT NULL AND record_uid IS NOT NULL AND write_kind IS NOT NULL)"
)
_WRITE_KIND = "write_kind IN ('created', 'updated')"


def upgrade() -> None:
    """Make the tables."""
    _run()
    _message()
    _step()
    _decision()
    _late_report()


def _create_table(name: str, *parts: sa.schema.SchemaItem, sqlite_autoincrement: bool = False) -> None:
    op.create_table(
        name,
        *parts,
        sqlite_autoincrement=sqlite_autoincrement,
        mariadb_engine="InnoDB",
        mariadb_charset="utf8mb4",
        mariadb_collate="utf8mb4_nopad_bin",  # equal byte for byte, as elsewhere
    )


def _check(name: str, condition: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(condition, name=f"byline_{name}")


def _run() -> None:
    _create_table(
        "byline_run",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("agent", sa.String(255), nullable=False),
        sa.Column("actor_id", sa.String(255), nullable=False),
        sa.Column("actor_scope", sa.String(16), nullable=False),
        sa.Column("actor_grants", sa.String(255), nullable=False),
        sa.Column("dedupe_key", sa.String(255)),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("reason", sa.String(32)),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("due_at", sa.BigInteger),
        sa.Column("claim", sa.Integer, nullable=False),
        sa.Column("claim_token", sa.Uuid),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("takeovers", sa.Integer, nullable=False),
        sa.Column("cancelled_by", sa.String(255)),
        sa.Column("suspension", sa.Integer, nullable=False),
        sa.Column("turn", _SEALED),
        sa.Column("turn_digest", sa.String(64)),
        sa.Column("fence_call", sa.Uuid),
        sa.Column("fence_tool", sa.String(255)),
        sa.Column("fence_effect", sa.String(32)),
        sa.Column("fence_attempt", sa.Integer),
        sa.Column("fence_verdict", sa.String(16)),
        sa.Column("output", _SEALED),
        _check(
            "run_status",
            "status IN ('awaiting_approval', 'awaiting_input', 'cancelled', 'completed', 'dead_letter', "
            "'failed', 'queued', 'running', 'uncertain')",
        ),
        _check(
            "run_fence_whole",
            "(fence_call IS NULL AND fence_tool IS NULL AND fence_effect IS NULL AND fence_attempt IS NULL) "
            "OR (fence_call IS NOT NULL AND fence_tool IS NOT NULL AND fence_effect IS NOT NULL "
            "AND fence_attempt IS NOT NULL)",
        ),
        _check(
            "run_fence_stands",
            "fence_call IS NULL OR status IN ('running', 'uncertain') "
            "OR (status = 'queued' AND fence_verdict IS NOT NULL)",
        ),
        _check("run_fence_effect", "fence_effect IN ('idempotent_write', 'non_idempotent_write')"),
        _check("run_fence_verdict", "fence_verdict IN ('landed', 'leave_it', 'run_again')"),
        _check("run_verdict_of_fence", "fence_verdict IS NULL OR fence_call IS NOT NULL"),
        _check(
            "run_uncertain",
            "status <> 'uncertain' OR (fence_call IS NOT NULL AND fence_verdict IS NULL AND reason IS NOT NULL)",
        ),
        _check(
            "run_claimed",
            "(status = 'running' AND claim_token IS NOT NULL) OR (status <> 'running' AND claim_token IS NULL)",
        ),
        _check(
            "run_due",
            "(status IN ('queued', 'running') AND due_at IS NOT NULL) "
            "OR status IN ('awaiting_approval', 'awaiting_input') "
            "OR (status NOT IN ('queued', 'running') AND due_at IS NULL)",
        ),
        _check("run_waits_for", "status <> 'awaiting_approval' OR (turn IS NOT NULL AND turn_digest IS NOT NULL)"),
        _check(
            "run_ended",
            "status NOT IN ('cancelled', 'completed', 'failed') OR (reason IS NOT NULL AND turn IS NULL)",
        ),
        _check("run_output", "output IS NULL OR status = 'completed'"),
        _check(
            "run_counts",
            "claim >= 0 AND revision >= 0 AND takeovers >= 0 AND suspension >= 0 AND fence_attempt >= 1",
        ),
    )
    op.create_index("byline_run_dedupe", "byline_run", ["dedupe_key"], unique=True)
    op.create_index("byline_run_due", "byline_run", ["status", "due_at"])
    op.create_index("byline_run_due_of_agent", "byline_run", ["agent", "status", "due_at", "id"])
    op.create_index("byline_run_of_status", "byline_run", ["status", "id"])
    op.create_index("byline_run_of_agent", "byline_run", ["agent", "id"])
    op.create_index("byline_run_of_agent_and_status", "byline_run", ["agent", "status", "id"])


def _message() -> None:
    _create_table(
        "byline_message",
        sa.Column("run_id", sa.Uuid, sa.ForeignKey("byline_run.id"), primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("body", _SEALED, nullable=False),
    )


def _step() -> None:
    _create_table(
        "byline_step",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("run_id", sa.Uuid, sa.ForeignKey("byline_run.id"), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("call_id", sa.Uuid),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("record_table", sa.String(255)),
        sa.Column("record_uid", sa.String(255)),
        sa.Column("write_kind", sa.String(16)),
        sa.Column("detail", _SEALED),
        _check("step_record", _RECORD),
        _check(
            "step_write",
            "(kind = 'write' AND write_kind IS NOT NULL) OR (kind <> 'write' AND write_kind IS NULL)",
        ),
        _check("step_write_kind", _WRITE_KIND),
        sqlite_autoincrement=True,
    )
    op.create_index("byline_step_of_run", "byline_step", ["run_id", "id"])
    writes = sa.text("write_kind IS NOT NULL")
    for name, columns in {
        "feed": ["kind", "id"],
        "since": ["kind", "at", "id"],
        "of_table": ["record_table", "id"],
        "of_record": ["record_table", "record_uid", "id"],
    }.items():
        op.create_index(f"byline_write_{name}", "byline_step", columns, sqlite_where=writes, postgresql_where=writes)


def _decision() -> None:
    _create_table(
        "byline_decision",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("call_id", sa.Uuid, primary_key=True),
        sa.Column("run_id", sa.Uuid, sa.ForeignKey("byline_run.id"), nullable=False),
        sa.Column("suspension", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("claim", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("actor_id", sa.String(255)),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("reason", _SEALED),
        sa.Column("denied", sa.JSON, nullable=False),
        sa.Column("record_table", sa.String(255)),
        sa.Column("record_uid", sa.String(255)),
        sa.Column("write_kind", sa.String(16)),
        _check("decision_record", _RECORD),
        _check("decision_write_kind", _WRITE_KIND),
        _check(
            "decision_verdict",
            "(attempt = 0 AND verdict IN ('approve', 'change', 'deny')) "
            "OR (attempt > 0 AND verdict IN ('landed', 'leave_it', 'run_again'))",
        ),
        _check(
            "decision_landed",
            "(verdict = 'landed' AND write_kind IS NOT NULL) OR (verdict <> 'landed' AND write_kind IS NULL)",
        ),
        _check("decision_actor", "actor_id IS NOT NULL OR verdict = 'landed'"),
    )
    op.create_index(
        "byline_decision_once",
        "byline_decision",
        ["run_id", "suspension", "call_id", "attempt", "claim"],
        unique=True,
    )


def _late_report() -> None:
    _create_table(
        "byline_late_report",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("run_id", sa.Uuid, sa.ForeignKey("byline_run.id"), nullable=False),
        sa.Column("claim", sa.Integer, nullable=False),
        sa.Column("call_id", sa.Uuid, nullable=False),
        sa.Column("tool", sa.String(255), nullable=False),
        sa.Column("effect", sa.String(32), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("record_table", sa.String(255), nullable=False),
        sa.Column("record_uid", sa.String(255), nullable=False),
        sa.Column("write_kind", sa.String(16), nullable=False),
        sa.Column("settled", sa.Boolean, nullable=False),
        sa.Column("conflict", sa.Boolean, nullable=False),
        _check("late_report_write_kind", _WRITE_KIND),
        _check("late_report_outcome", "NOT (settled AND conflict)"),
    )
    op.create_index("byline_late_report_once", "byline_late_report", ["run_id", "call_id", "claim"], unique=True)
    op.create_index("byline_late_report_conflict", "byline_late_report", ["conflict", "id"])
