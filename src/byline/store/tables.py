"""The tables, and the states that they make impossible.

`migrations/versions` builds the same schema step by step; a test proves that both are equal.
"""

from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Uuid,
    text,
)

from byline.approval.decision import ReconcileVerdict
from byline.privacy import PrivacyLevel
from byline.records import WriteKind
from byline.runs.status import TERMINAL, RunStatus
from byline.tools.effect import ToolEffect

REVISION = "0005"
"""The schema's revision that this version of Byline reads and writes."""
REVISION_TABLE = "byline_revision"
MAX_REASON = 500
"""Longest reason for which a run is deferred, in characters; the rest is cut off."""

metadata = MetaData()
# Names, keys and uids are equal byte for byte, as they are elsewhere: not but for case, accents, or blanks at the end.
_MARIADB: dict[str, Any] = {
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
}
_SEALED = LargeBinary(2**32 - 1)


class TurnVerdict(StrEnum):
    """What a decision's row says of a call of a waiting turn; of an uncertain one it is a `ReconcileVerdict`."""

    APPROVE = "approve"
    DENY = "deny"
    CHANGE = "change"


def _listed(values: "frozenset[RunStatus] | type[StrEnum]") -> str:
    return "(" + ", ".join(f"'{value}'" for value in sorted(values)) + ")"


def _together(*columns: str) -> str:
    """All of the columns are set, or none is."""
    none = " AND ".join(f"{column} IS NULL" for column in columns)
    every = " AND ".join(f"{column} IS NOT NULL" for column in columns)
    return f"({none}) OR ({every})"


def _check(name: str, condition: str) -> CheckConstraint:
    return CheckConstraint(condition, name=f"byline_{name}")


def _run_id(*, key: bool = False) -> Column[UUID]:
    return Column("run_id", Uuid, ForeignKey("byline_run.id"), nullable=False, primary_key=key)


run = Table(
    "byline_run",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("agent", String(255), nullable=False),
    Column("actor_id", String(255), nullable=False),
    Column("actor_scope", String(16), nullable=False),
    Column("actor_grants", String(255), nullable=False),  # separated by spaces
    Column("dedupe_key", String(255)),
    Column("status", String(32), nullable=False),
    Column("reason", String(32)),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("due_at", BigInteger),  # QUEUED: from when on; RUNNING: the lease's end; waiting: the approval's expiry
    Column("claim", Integer, nullable=False),
    Column("claim_token", Uuid),  # recognises a claim whose COMMIT lost its answer
    Column("revision", Integer, nullable=False),  # changes stored under this claim
    Column("takeovers", Integer, nullable=False),  # since the last progress
    Column("cancelled_by", String(255)),  # who asked for a cancel; the run may not be cancelled yet
    Column("suspension", Integer, nullable=False),
    Column("turn", _SEALED),
    Column("turn_digest", String(64)),
    Column("fence_call", Uuid),
    Column("fence_tool", String(255)),
    Column("fence_effect", String(32)),
    Column("fence_attempt", Integer),
    Column("fence_verdict", String(16)),  # its row in byline_decision says who and what
    Column("output", _SEALED),
    Column(  # why whoever tried to execute it last could not, until somebody claims it
        "deferred_because",
        String(MAX_REASON),
        _check("run_deferred", "deferred_because IS NULL OR status IN ('queued', 'running')"),
    ),
    # The strictest under which it was created or claimed: whoever ends it need not know its agent (ADR 0005).
    Column(
        "privacy",
        String(16),
        _check("run_privacy", f"privacy IN {_listed(PrivacyLevel)}"),
        nullable=False,
        server_default=PrivacyLevel.METADATA.value,
    ),
    Column(
        "purged_at",  # when its content and trace were purged
        BigInteger,
        _check("run_purged", f"purged_at IS NULL OR (status IN {_listed(TERMINAL)} AND output IS NULL)"),
    ),
    Column(  # since the last progress
        "model_failures",
        Integer,
        _check("run_model_failures", "model_failures >= 0"),
        nullable=False,
        server_default="0",
    ),
    _check("run_status", f"status IN {_listed(RunStatus)}"),
    _check("run_fence_whole", _together("fence_call", "fence_tool", "fence_effect", "fence_attempt")),
    # P9: what has ended, waits or is to be handed out has no write in flight, unless its outcome is known.
    _check(
        "run_fence_stands",
        "fence_call IS NULL OR status IN ('running', 'uncertain') OR (status = 'queued' AND fence_verdict IS NOT NULL)",
    ),
    _check(
        "run_fence_effect",
        f"fence_effect IN ('{ToolEffect.IDEMPOTENT_WRITE}', '{ToolEffect.NON_IDEMPOTENT_WRITE}')",
    ),
    _check("run_fence_verdict", f"fence_verdict IN {_listed(ReconcileVerdict)}"),
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
    _check("run_ended", f"status NOT IN {_listed(TERMINAL)} OR (reason IS NOT NULL AND turn IS NULL)"),
    _check("run_output", "output IS NULL OR status = 'completed'"),
    _check(
        "run_counts",
        "claim >= 0 AND revision >= 0 AND takeovers >= 0 AND suspension >= 0 AND fence_attempt >= 1",
    ),
    **_MARIADB,
)
Index("byline_run_dedupe", run.c.dedupe_key, unique=True)
Index("byline_run_due", run.c.status, run.c.due_at)
Index("byline_run_due_of_agent", run.c.agent, run.c.status, run.c.due_at, run.c.id)
Index("byline_run_of_status", run.c.status, run.c.id)
Index("byline_run_of_agent", run.c.agent, run.c.id)
Index("byline_run_of_agent_and_status", run.c.agent, run.c.status, run.c.id)
# What retention looks for. Partial where the database can: a run that is under way then costs them nothing.
RETAINED = text(f"purged_at IS NULL AND status IN {_listed(TERMINAL | {RunStatus.DEAD_LETTER})}")
PURGED = text("purged_at IS NOT NULL")
ANSWERED = text("output IS NOT NULL")
for _name, _which in {"retained": RETAINED, "purged": PURGED, "answered": ANSWERED}.items():
    Index(f"byline_run_{_name}", run.c.updated_at, sqlite_where=_which, postgresql_where=_which)

message = Table(
    "byline_message",
    metadata,
    _run_id(key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("body", _SEALED, nullable=False),
    **_MARIADB,
)

step = Table(
    "byline_step",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    _run_id(),
    Column("kind", String(32), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("call_id", Uuid),
    Column("payload", JSON, nullable=False),
    Column("record_table", String(255)),
    Column("record_uid", String(255)),
    Column("write_kind", String(16)),
    Column("detail", _SEALED),
    _check("step_record", _together("record_table", "record_uid", "write_kind")),
    _check(
        "step_write",
        "(kind = 'write' AND write_kind IS NOT NULL) OR (kind <> 'write' AND write_kind IS NULL)",
    ),
    _check("step_write_kind", f"write_kind IN {_listed(WriteKind)}"),
    sqlite_autoincrement=True,  # a position is never given twice: it is the feed's cursor
    **_MARIADB,
)
Index("byline_step_of_run", step.c.run_id, step.c.id)
for _name, _columns in {
    "feed": (step.c.kind, step.c.id),
    "since": (step.c.kind, step.c.at, step.c.id),
    "of_table": (step.c.record_table, step.c.id),
    "of_record": (step.c.record_table, step.c.record_uid, step.c.id),
}.items():
    Index(
        f"byline_write_{_name}",
        *_columns,
        sqlite_where=step.c.write_kind.is_not(None),
        postgresql_where=step.c.write_kind.is_not(None),
    )

decision = Table(
    "byline_decision",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("call_id", Uuid, primary_key=True),
    _run_id(),
    Column("suspension", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),  # of the uncertain call; 0 in a waiting turn
    Column("claim", Integer, nullable=False),  # under which the call became uncertain; 0 in a waiting turn
    Column("digest", String(64), nullable=False),  # of what was read
    Column("verdict", String(16), nullable=False),
    Column("actor_id", String(255)),  # NULL: a fact says so
    Column("at", BigInteger, nullable=False),
    Column("reason", _SEALED),
    Column("denied", JSON, nullable=False),  # ids of other calls of the turn, denied in the same breath
    Column("record_table", String(255)),
    Column("record_uid", String(255)),
    Column("write_kind", String(16)),
    _check("decision_record", _together("record_table", "record_uid", "write_kind")),
    _check("decision_write_kind", f"write_kind IN {_listed(WriteKind)}"),
    _check(
        "decision_verdict",
        f"(attempt = 0 AND verdict IN {_listed(TurnVerdict)}) "
        f"OR (attempt > 0 AND verdict IN {_listed(ReconcileVerdict)})",
    ),
    _check(
        "decision_landed",
        "(verdict = 'landed' AND write_kind IS NOT NULL) OR (verdict <> 'landed' AND write_kind IS NULL)",
    ),
    _check("decision_actor", "actor_id IS NOT NULL OR verdict = 'landed'"),
    **_MARIADB,
)
# One verdict a call: the last guard behind the comparison in the transaction (P13).
Index(
    "byline_decision_once",
    decision.c.run_id,
    decision.c.suspension,
    decision.c.call_id,
    decision.c.attempt,
    decision.c.claim,
    unique=True,
)

late_report = Table(
    "byline_late_report",
    metadata,
    Column("id", Uuid, primary_key=True),
    _run_id(),
    Column("claim", Integer, nullable=False),
    Column("call_id", Uuid, nullable=False),
    Column("tool", String(255), nullable=False),
    Column("effect", String(32), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("record_table", String(255), nullable=False),
    Column("record_uid", String(255), nullable=False),
    Column("write_kind", String(16), nullable=False),
    Column("settled", Boolean, nullable=False),
    Column("conflict", Boolean, nullable=False),
    _check("late_report_write_kind", f"write_kind IN {_listed(WriteKind)}"),
    _check("late_report_outcome", "NOT (settled AND conflict)"),
    **_MARIADB,
)
Index("byline_late_report_once", late_report.c.run_id, late_report.c.call_id, late_report.c.claim, unique=True)
Index("byline_late_report_conflict", late_report.c.conflict, late_report.c.id)

# Ids of keys, never a key. Whoever seals holds its row until the transaction ends, so nothing is sealed once it closes.
key = Table(
    "byline_key",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("active", Integer),  # 1 or NULL, and unique: one seals at most
    Column("closed_at", BigInteger),  # since when nothing may be sealed with it; it stays known for ever
    _check("key_marked", "active = 1"),
    _check("key_closed", "closed_at IS NULL OR active IS NULL"),
    **_MARIADB,
)
Index("byline_key_active", key.c.active, unique=True)

# One row, held from the insert of a WRITE step to its COMMIT: so the feed's positions are in the order of the commits.
feed = Table(
    "byline_feed",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    _check("feed_one", "id = 1"),
    **_MARIADB,
)
