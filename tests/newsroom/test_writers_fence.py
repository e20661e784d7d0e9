"""What would end a run while the fence of one of the seven writers stands makes it uncertain (P9).

A writer can look whether its call landed. If it did, its word settles the call, and it is announced, whatever has
happened meanwhile; if not, or if the writer is gone, a person is asked.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from byline import AgentRuntime, NotLanded, Reconciliation, RecordReference, RunStatus, StepKind, TerminationReason
from examples.newsroom.seed import APPROVER, EDITOR
from examples.newsroom.tools import READING
from tests.crash.story import killed_at
from tests.crash.workers import Workers
from tests.host import Settings
from tests.newsroom.cases import EACH, Case
from tests.newsroom.place import Newsroom, assert_landed_once, assert_nothing_written
from tests.newsroom.stage import ASKS, DECIDES


async def _nothing(runtime: AgentRuntime, run_id: UUID) -> None: ...


async def _cancel(runtime: AgentRuntime, run_id: UUID) -> None:
    await runtime.cancel(run_id, actor=ASKS)


@dataclass(frozen=True, slots=True)
class Cause:
    """What happens between the death of the process and the next one's look."""

    meanwhile: Callable[[Newsroom], None] = lambda _newsroom: None
    ask: Callable[[AgentRuntime, UUID], Awaitable[None]] = _nothing
    settings: Settings = field(default_factory=Settings)
    ends: TerminationReason = TerminationReason.ANSWERED


CAUSES = {
    "cancel": Cause(ask=_cancel, ends=TerminationReason.CANCELLED),
    "spent budget": Cause(settings=Settings(max_takeovers=0)),
    "initiator's account closed": Cause(meanwhile=lambda newsroom: newsroom.close_account(EDITOR)),
    "approver's account closed": Cause(meanwhile=lambda newsroom: newsroom.close_account(APPROVER)),
    "right gone": Cause(meanwhile=lambda newsroom: newsroom.let(EDITOR, ())),
}
EACH_CAUSE = pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)


@EACH
@EACH_CAUSE
@pytest.mark.promise("P8", "P9")
async def test_what_landed_is_told_of_whatever_would_end_the_run(
    newsroom: Newsroom, workers: Workers, case: Case, cause: Cause
) -> None:
    run_id = await killed_at("host committed", newsroom, workers, newsroom.flavour(case))
    cause.meanwhile(newsroom)

    async with newsroom.opened(newsroom.turn(case), hours=2, **cause.settings) as runtime:
        await cause.ask(runtime, run_id)
        run = await runtime.execute(run_id)
        steps = [step.kind for step in await runtime.list_steps(run_id)]

    assert run.reason is cause.ends
    assert steps.index(StepKind.UNCERTAIN) < steps.index(StepKind.WRITE) < steps.index(StepKind.SETTLED)
    assert (len(newsroom.ran(case.writer.tool)), newsroom.verified()) == (1, 1)
    await assert_landed_once(newsroom, case)


@EACH
@EACH_CAUSE
@pytest.mark.promise("P9")
async def test_what_did_not_land_asks_a_person_whatever_would_end_the_run(
    newsroom: Newsroom, workers: Workers, case: Case, cause: Cause
) -> None:
    run_id = await killed_at("in execute", newsroom, workers, newsroom.flavour(case))
    cause.meanwhile(newsroom)

    async with newsroom.opened(newsroom.turn(case), hours=2, **cause.settings) as runtime:
        await cause.ask(runtime, run_id)
        run = await runtime.execute(run_id)
        assert run.status is RunStatus.UNCERTAIN
        assert newsroom.verified() == 1
        run = await runtime.verify(run_id)

    assert run.status is RunStatus.UNCERTAIN
    assert run.uncertain is not None
    assert run.uncertain.found == NotLanded()
    await assert_nothing_written(newsroom, case, executions=1)


@EACH
@pytest.mark.promise("P9")
async def test_a_writer_that_is_gone_leaves_the_word_to_a_person(
    newsroom: Newsroom, workers: Workers, case: Case
) -> None:
    run_id = await killed_at("host committed", newsroom, workers, newsroom.flavour(case))
    async with newsroom.opened(newsroom.turn(case), hours=2, tools=READING) as runtime:
        run = await runtime.execute(run_id)
        assert run.status is RunStatus.UNCERTAIN
        assert run.uncertain is not None
        assert newsroom.heard() == []
        [entry] = newsroom.stage.history()
        record = RecordReference(entry.record_table, entry.record_uid)
        landed = Reconciliation.landed(run.uncertain.digest, record, case.writer.kind)
        run = await runtime.reconcile(run_id, landed, actor=DECIDES)
    assert run.status is RunStatus.COMPLETED
    assert newsroom.verified() == 0
    await assert_landed_once(newsroom, case)
