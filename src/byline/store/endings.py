"""How a run ends, or begins anew, without a segment: cancel, expiry, retry."""

import logging
from collections.abc import Mapping, Sequence
from uuid import UUID

from sqlalchemy import Connection, bindparam, select, update

from byline.driving import CallOutcome
from byline.errors import KeyMissing, NotRetryable, RunFinished, SealBroken
from byline.models.messages import Message, ToolMessage
from byline.models.transcript import unanswered
from byline.privacy import PrivacyLevel
from byline.runs.status import RunStatus, TerminationReason
from byline.runs.steps import never_ran
from byline.store.changes import milliseconds
from byline.store.clock import now
from byline.store.moves import RESTORED, THE_RUN, forget_sealed, moving, settled_step, settling
from byline.store.part import SqlPart
from byline.store.rows import AnyRow, Unsealing, Values, message_of
from byline.store.tables import message, run

_log = logging.getLogger(__name__)

_ASK_TO_CANCEL = (
    update(run)
    .where(run.c.id == THE_RUN, run.c.cancelled_by.is_(None))
    .values(cancelled_by=bindparam("actor"), updated_at=now())
)
_STANDING = select(run.c.status, run.c.reason, run.c.cancelled_by).where(run.c.id == THE_RUN)
_EXPIRED = (
    select(run.c.id, run.c.privacy)
    .where(run.c.status == RunStatus.AWAITING_APPROVAL.value, run.c.due_at <= now())
    .order_by(run.c.due_at)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True)
)
_EXPIRED_OF_AGENT = (
    select(run.c.id, run.c.privacy)
    .where(
        run.c.status == RunStatus.AWAITING_APPROVAL.value,
        run.c.agent == bindparam("of"),
        run.c.updated_at + bindparam("ttl", type_=run.c.updated_at.type) <= now(),  # nothing updates a row that waits
    )
    .order_by(run.c.id)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True)
)
_TURN = select(run.c.turn).where(run.c.id == THE_RUN)
_LATEST_MESSAGES = select(message).where(message.c.run_id == THE_RUN).order_by(message.c.seq.desc())
_RETRY = moving(RunStatus.DEAD_LETTER, RunStatus.QUEUED).values(RESTORED)


class RunEnds(SqlPart):
    """The part of the store that ends a run which no segment holds."""

    def _end(
        self, connection: Connection, row: AnyRow, source: RunStatus, target: RunStatus, reason: TerminationReason
    ) -> None:
        """End the run of a row that names its id and its privacy level."""
        run_id, level = row.id, PrivacyLevel(row.privacy)
        the_run: Values = {"the_run": run_id}
        tools = self._tools_of_turn(connection, run_id)
        connection.execute(settling(source, target, reason), the_run)
        outcome = CallOutcome.EXPIRED if reason is TerminationReason.APPROVAL_EXPIRED else CallOutcome.CANCELLED
        left = never_ran(self._unanswered(connection, run_id).items(), outcome.value, tools)
        self._add_steps(connection, run_id, [*left, settled_step(target, reason)], level, ended=True)
        forget_sealed(connection, run_id, level)

    def _tools_of_turn(self, connection: Connection, run_id: UUID) -> frozenset[str]:
        """Read which tools the run's latest turn calls; none if it is sealed with a key that is not here."""
        sealed = connection.execute(_TURN, {"the_run": run_id}).scalar()
        turn = Unsealing(self._sealer, run_id, strict=False).turn(sealed)
        if turn is None:
            return frozenset()
        return frozenset(call.tool for call in turn.calls) | {call.tool for call in turn.rejected if call.offered}

    def _unanswered(self, connection: Connection, run_id: UUID) -> dict[UUID, str]:
        """Read the calls that this end leaves without a result; none if they are sealed with a key that is not here."""
        latest: list[Message] = []
        try:
            for row in connection.execute(_LATEST_MESSAGES, {"the_run": run_id}):
                latest.append(message_of(row, self._sealer))
                if not isinstance(latest[-1], ToolMessage):
                    return unanswered(latest[::-1])
        except (KeyMissing, SealBroken) as error:
            extra = {"action": "calls_not_read", "run_id": str(run_id)}
            _log.warning("The calls of run %s cannot be read: %s", run_id, error, extra=extra)
        return {}


class EndingWrites(RunEnds):
    """The part of the store that ends runs which no segment holds."""

    def cancel(self, run_id: UUID, actor_id: str) -> RunStatus:
        """Cancel a run that no segment holds; ask it of one that runs, or that is uncertain."""

        def work(connection: Connection) -> RunStatus:
            row = self._lock(connection, run_id)
            status = RunStatus(row.status)
            if status.is_terminal:
                raise RunFinished
            connection.execute(_ASK_TO_CANCEL, {"the_run": run_id, "actor": actor_id})
            # Past its lease, or deferred, nobody holds it, and nobody may ever take it over.
            is_held = status is RunStatus.RUNNING and row.due_at > row.now and row.deferred_because is None
            # A fence holds the run open: its call's result, or what is known of it, is stored first (P9).
            if is_held or row.fence_call is not None:
                return status
            self._end(connection, row, status, RunStatus.CANCELLED, TerminationReason.CANCELLED)
            return RunStatus.CANCELLED

        def stands(connection: Connection, status: RunStatus) -> bool:
            row = connection.execute(_STANDING, {"the_run": run_id}).one()
            return bool(row.cancelled_by == actor_id and row.status == status)

        return self._database.write(work, stands)

    def retry(self, run_id: UUID) -> None:
        """Queue a run that is in dead letter, with its budget restored."""

        def work(connection: Connection) -> None:
            self._lock(connection, run_id)
            if connection.execute(_RETRY, {"the_run": run_id}).rowcount != 1:
                raise NotRetryable

        def stands(connection: Connection, _: None) -> bool:
            row = connection.execute(_STANDING, {"the_run": run_id}).one()
            return RunStatus(row.status) is not RunStatus.DEAD_LETTER

        self._database.write(work, stands)

    def expire(self, limit: int, *, ttls: Mapping[str, float] | None = None) -> Sequence[UUID]:
        """Settle waiting runs whose approval has expired as FAILED (`APPROVAL_EXPIRED`)."""

        def work(connection: Connection) -> list[UUID]:
            expired: dict[UUID, AnyRow] = {row.id: row for row in connection.execute(_EXPIRED, {"at_most": limit})}
            for agent, ttl in (ttls or {}).items():
                of_agent = {"of": agent, "ttl": milliseconds(ttl), "at_most": limit}
                expired |= {row.id: row for row in connection.execute(_EXPIRED_OF_AGENT, of_agent)}
            ended = list(expired)[:limit]
            for run_id in ended:
                reason = TerminationReason.APPROVAL_EXPIRED
                self._end(connection, expired[run_id], RunStatus.AWAITING_APPROVAL, RunStatus.FAILED, reason)
            return ended

        def stands(connection: Connection, expired: list[UUID]) -> bool:
            # They end all or none: one tells for all.
            ended = [connection.execute(_STANDING, {"the_run": run_id}).one() for run_id in expired[:1]]
            return all(row.reason == TerminationReason.APPROVAL_EXPIRED for row in ended)

        return self._database.write(work, stands)
