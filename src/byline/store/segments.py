"""What a segment does to its run: create, claim, beat, advance."""

import logging
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID, uuid4

from pydantic import JsonValue
from sqlalchemy import Connection, bindparam, insert, null, or_, select, update

from byline.errors import DedupeConflict, StoreError
from byline.privacy import PrivacyLevel, strictest
from byline.runs.status import RunStatus, TerminationReason, UncertaintyReason
from byline.runs.steps import NewStep, StepKind
from byline.store.changes import TO_UNCERTAIN, Plan, milliseconds, refuse, stands
from byline.store.clock import now
from byline.store.endings import RunEnds
from byline.store.moves import RESTORED, THE_RUN, forget_details, forget_sealed, moving, settled_step, settling
from byline.store.protocol import Beat, BecomeUncertain, Change, Claim, Claimed, NewRun, Progress, StoredRun
from byline.store.rows import (
    AnyRow,
    Values,
    actor_values,
    fence_of,
    message_of,
    message_values,
    words_on_fence,
)
from byline.store.tables import MAX_REASON, TurnVerdict, message, run
from byline.store.uncertain import UncertainCalls
from byline.tools.effect import ToolEffect

_log = logging.getLogger(__name__)

_ADD_RUN = insert(run).values(created_at=now(), updated_at=now(), due_at=now() + bindparam("lease"))
_ADD_MESSAGE = insert(message)
_SAME_KEY = select(run.c.id, run.c.agent, run.c.actor_id, run.c.actor_scope).where(
    run.c.dedupe_key == bindparam("the_key")
)
_TRANSCRIPT = select(message).where(message.c.run_id == THE_RUN).order_by(message.c.seq)
_TOKEN = select(run.c.claim_token).where(run.c.id == THE_RUN)

_CLAIM: dict[str, Any] = {
    "claim": run.c.claim + 1,
    "claim_token": bindparam("token"),
    "revision": 0,
    "due_at": now() + bindparam("lease"),
    "privacy": bindparam("level"),
}
_DEFERRED = run.c.deferred_because.is_not(None)  # its lease had run out: nobody holds it until the next claim or beat
_DEFER = (
    update(run)
    .where(run.c.id == THE_RUN, run.c.due_at <= now())
    .where(run.c.status.in_((RunStatus.QUEUED.value, RunStatus.RUNNING.value)))
    .values(reason=null(), deferred_because=bindparam("because"), due_at=now() + bindparam("delay"))
)
_TAKE = moving(RunStatus.QUEUED, RunStatus.RUNNING).values(_CLAIM)
_TAKE_OVER = (
    update(run)
    .where(run.c.id == THE_RUN, run.c.status == RunStatus.RUNNING.value, or_(run.c.due_at <= now(), _DEFERRED))
    .values(_CLAIM | {"takeovers": run.c.takeovers + 1, "updated_at": now(), "deferred_because": null()})
)
_PUT_BACK = moving(RunStatus.RUNNING, RunStatus.QUEUED).where(run.c.fence_verdict.is_not(None))
_BEAT = (
    update(run)
    .where(run.c.id == THE_RUN, run.c.status == RunStatus.RUNNING.value, run.c.claim == bindparam("the_claim"))
    .values(due_at=now() + bindparam("lease"), deferred_because=null())
)
_HOLDERS = (
    select(run.c.id, run.c.claim, run.c.status, run.c.cancelled_by)
    .where(run.c.id.in_(bindparam("the_runs", expanding=True)))
    .with_for_update()
)


class SegmentWrites(UncertainCalls, RunEnds):
    """The part of the store that segments write through."""

    def create(self, new: NewRun, *, lease: float | None) -> Claim | StoredRun | None:
        """Create a run: claimed by the caller for `lease` seconds, or QUEUED with None."""
        claimed = lease is not None
        values: Values = {
            "id": new.run_id,
            "agent": new.agent,
            **actor_values(new.actor),
            "dedupe_key": new.dedupe_key,
            "privacy": new.privacy.value,
            "status": (RunStatus.RUNNING if claimed else RunStatus.QUEUED).value,
            "lease": milliseconds(lease or 0),
            "claim": int(claimed),
            "claim_token": uuid4() if claimed else None,
            "revision": 0,
            "suspension": 0,
            **RESTORED,
        }

        def work(connection: Connection) -> Claim | StoredRun | None:
            if new.dedupe_key is not None:
                same = connection.execute(_SAME_KEY, {"the_key": new.dedupe_key}).one_or_none()
                if same is not None:
                    if (same.agent, same.actor_id, same.actor_scope) != (
                        new.agent,
                        new.actor.id,
                        new.actor.scope,
                    ):
                        raise DedupeConflict
                    return self._read(connection, same.id)
            connection.execute(_ADD_RUN, values)
            if new.messages:
                connection.execute(_ADD_MESSAGE, message_values(new.run_id, new.messages, 0, self._sealing(connection)))
            return Claim(new.run_id, 1, new.privacy) if claimed else None

        def stands(connection: Connection, _: object) -> bool:
            return connection.execute(_TOKEN, {"the_run": new.run_id}).one_or_none() is not None

        return self._database.write(work, stands)

    def claim(
        self, run_id: UUID, *, lease: float, takeovers: int, privacy: PrivacyLevel = PrivacyLevel.METADATA
    ) -> Claimed | None:
        """Claim a QUEUED run, or a RUNNING one whose lease has expired, by compare-and-swap."""
        token = uuid4()

        def work(connection: Connection) -> Claimed | None:
            row = self._lock(connection, run_id)
            taken_over = row.status == RunStatus.RUNNING
            if not taken_over and row.status != RunStatus.QUEUED:
                return None
            if taken_over and row.due_at > row.now and row.deferred_because is None:
                return None
            if not taken_over and row.due_at > row.now and row.reason == TerminationReason.MODEL_FAILED:
                return None
            if taken_over and row.takeovers >= takeovers:
                self._give_up(connection, row)
                return None
            statement = _TAKE_OVER if taken_over else _TAKE
            before = PrivacyLevel(row.privacy)
            level = strictest(before, privacy)
            taken = {"the_run": run_id, "token": token, "lease": milliseconds(lease), "level": level.value}
            if connection.execute(statement, taken).rowcount != 1:
                return None
            if level is not before:
                forget_details(connection, run_id)
            # What cannot be unsealed raises here, and the claim is rolled back: the run stays.
            claimed = self._read(connection, run_id, strict=True)
            transcript = connection.execute(_TRANSCRIPT, {"the_run": run_id})
            said = self._decisions(connection, row)
            released = [verdict.at for verdict in said if verdict.verdict == TurnVerdict.APPROVE]
            known = [word.at for word in words_on_fence(row, said)] if row.fence_verdict is not None else []
            return Claimed(
                claim=Claim(run_id, claimed.claim, level),
                run=claimed,
                messages=tuple(message_of(line, self._sealer) for line in transcript),
                taken_over=taken_over,
                release_age=(row.now - max(released)) / 1000 if released else None,
                verdict_age=(row.now - known[-1]) / 1000 if known else None,
            )

        def stands(connection: Connection, claimed: Claimed | None) -> bool:
            return claimed is not None and connection.execute(_TOKEN, {"the_run": run_id}).scalar() == token

        return self._database.write(work, stands)

    def defer(self, run_id: UUID, because: str, *, delay: float) -> None:
        """Say why this process could not claim a run, and let it be due again only after a delay."""
        deferred: Values = {"the_run": run_id, "because": because[:MAX_REASON], "delay": milliseconds(delay)}

        def work(connection: Connection) -> None:
            connection.execute(_DEFER, deferred)

        self._database.write(work)

    def _give_up(self, connection: Connection, row: AnyRow) -> None:
        """End the take-overs of a run that made no progress in any of them."""
        fence, level = fence_of(row), PrivacyLevel(row.privacy)
        if fence is None and row.cancelled_by is not None:
            self._end(connection, row, RunStatus.RUNNING, RunStatus.CANCELLED, TerminationReason.CANCELLED)
            return
        if fence is None:
            reason = TerminationReason.RETRIES_EXHAUSTED
            connection.execute(settling(RunStatus.RUNNING, RunStatus.DEAD_LETTER, reason), {"the_run": row.id})
            self._add_steps(connection, row.id, [settled_step(RunStatus.DEAD_LETTER, reason)], level, ended=False)
            return
        if row.fence_verdict is not None and self._was_said_by_a_person(connection, row):
            # Nothing is executed before it is told, or before its next fence, which forgets it: so this can wait.
            extra = {"action": "given_up", "run_id": str(row.id)}
            _log.error("Run %s was taken over in vain; what somebody said of its write is kept", row.id, extra=extra)
            connection.execute(_PUT_BACK, {"the_run": row.id})
            return
        repeatable = fence.effect is not ToolEffect.NON_IDEMPOTENT_WRITE
        why = UncertaintyReason.NOT_REPEATABLE if repeatable else UncertaintyReason.INTERRUPTED
        # No change of the segment's own: if it comes back, it is told that its claim is lost.
        connection.execute(TO_UNCERTAIN, {"the_run": row.id, "why": why.value})
        unknown: dict[str, JsonValue] = {"tool": fence.tool, "attempt": fence.attempt, "reason": why.value}
        self._add_steps(connection, row.id, [NewStep(StepKind.UNCERTAIN, fence.call_id, unknown)], level, ended=False)
        self._settle_by_earlier_report(connection, row.id)

    def _was_said_by_a_person(self, connection: Connection, row: AnyRow) -> bool:
        """Whether the standing verdict on the fenced call is a person's. A fact can be found again, a word cannot."""
        *_, latest = words_on_fence(row, self._decisions(connection, row))
        return latest.actor_id is not None

    def beat(self, claims: Collection[Claim], *, lease: float) -> Mapping[Claim, Beat]:
        """Extend the leases of claims that are still held."""
        if not claims:
            return {}
        span = milliseconds(lease)

        def work(connection: Connection) -> Mapping[Claim, Beat]:
            rows = {row.id: row for row in connection.execute(_HOLDERS, {"the_runs": [c.run_id for c in claims]})}
            beats: dict[Claim, Beat] = {}
            for claim in claims:
                row = rows.get(claim.run_id)
                held = row is not None and row.claim == claim.number and row.status == RunStatus.RUNNING
                beats[claim] = Beat(held, row is not None and row.cancelled_by is not None)
            extended = [
                {"the_run": claim.run_id, "the_claim": claim.number, "lease": span}
                for claim, found in beats.items()
                if found.held
            ]
            if extended:
                connection.execute(_BEAT, extended)
            return beats

        return self._database.write(work)

    def advance(self, claim: Claim, change: Change, *, at: int, revision: int) -> bool:
        """Store what a segment did."""
        held: Values = {"the_run": claim.run_id, "the_claim": claim.number, "the_revision": revision}

        def work(connection: Connection) -> bool:
            sealing = self._sealing(connection)
            plan, cancel = Plan.of(change, claim, sealing), False
            if connection.execute(plan.statement.uncancelled, held | plan.values).rowcount != 1:
                row = self._lock(connection, claim.run_id)
                cancel = row.cancelled_by is not None
                if stands(row, claim, change, revision):
                    return cancel
                refuse(row, claim, change, revision)
                if isinstance(change, Progress) and change.clears != row.fence_call:
                    plan = plan.without_clearing()
                if connection.execute(plan.statement.anyway, held | plan.values).rowcount != 1:
                    raise StoreError(f"this change does not fit run {claim.run_id}; nothing was stored")
            if plan.messages:
                connection.execute(_ADD_MESSAGE, message_values(claim.run_id, plan.messages, at, sealing))
            self._add_steps(connection, claim.run_id, plan.steps, claim.privacy, ended=plan.ends)
            if plan.ends:
                forget_sealed(connection, claim.run_id, claim.privacy)
            if isinstance(change, BecomeUncertain):
                self._settle_by_earlier_report(connection, claim.run_id)
            return cancel

        def is_stored(connection: Connection, _: bool) -> bool:
            return stands(self._lock(connection, claim.run_id), claim, change, revision)

        return self._database.write(work, is_stored)
