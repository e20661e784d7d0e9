"""Whose right each writer's call needs, on every record it touches: asked at the decision, and again when it runs."""

from typing import Literal

import pytest

from byline import AiActorContext, Decision, Grant, NotAllowed, Run, RunStatus
from byline.testing import allow_all
from examples.newsroom.seed import APPROVER, EDITOR, FORMER_EDITOR, TRANSLATOR
from examples.newsroom.tools.desk import REFUSAL
from tests.crash.story import approved, queued, suspended
from tests.newsroom.cases import CASES, EACH, EACH_NEED, GERMAN_MUSEUM, MUSEUM, Case, Need
from tests.newsroom.place import Newsroom, assert_completed, assert_landed_once, assert_nothing_written
from tests.newsroom.stage import approval

Who = Literal["initiator", "approver"]
PEOPLE: dict[Who, tuple[str, str]] = {
    "initiator": (EDITOR, "Not executed: the person this run acts for may not do this."),
    "approver": (APPROVER, "Not executed: the person who approved it may not do this."),
}
"""Who they are, and what the model is told once they may not do what was approved."""
EITHER = pytest.mark.parametrize("who", PEOPLE)


def without(case: Case, need: Need) -> list[Need]:
    return [other for other in case.needs if other is not need]


async def refused(newsroom: Newsroom, run: Run, decider: AiActorContext) -> None:
    """They may not approve it, and it waits as before."""
    assert run.pending is not None
    async with newsroom.opened() as runtime:
        with pytest.raises(NotAllowed):
            await runtime.decide(run.run_id, approval(run), actor=decider)
        still = await runtime.get_run(run.run_id)
    assert still.status is RunStatus.AWAITING_APPROVAL
    assert still.pending is not None
    assert (still.pending.digest, still.pending.decided) == (run.pending.digest, {})


@EACH
@pytest.mark.promise("P14", "P15")
async def test_these_rights_are_enough(newsroom: Newsroom, case: Case) -> None:
    for user in (EDITOR, APPROVER):
        newsroom.let(user, case.needs)
    run = await suspended(newsroom, newsroom.turn(case))
    run = await approved(newsroom, run, newsroom.turn(case))
    assert_completed(run)
    await assert_landed_once(newsroom, case)


@EACH_NEED
@pytest.mark.promise("P14")
async def test_an_approver_who_lacks_one_releases_nothing(newsroom: Newsroom, case: Case, need: Need) -> None:
    newsroom.let(APPROVER, without(case, need))
    run = await suspended(newsroom, newsroom.turn(case))
    await refused(newsroom, run, AiActorContext.user(APPROVER, grants=tuple(Grant)))
    await assert_nothing_written(newsroom, case, executions=0)

    newsroom.let(APPROVER, case.needs)
    run = await approved(newsroom, run, newsroom.turn(case))
    assert_completed(run)
    await assert_landed_once(newsroom, case)


@EACH
@pytest.mark.promise("P14")
async def test_who_decides_nothing_on_the_site_releases_nothing(newsroom: Newsroom, case: Case) -> None:
    """Whatever the actor handed in says: somebody with every right but that one, and two with accounts of no use."""
    newsroom.let(TRANSLATOR, case.needs)
    newsroom.let(FORMER_EDITOR, case.needs)
    run = await suspended(newsroom, newsroom.turn(case))
    for user in (EDITOR, TRANSLATOR, FORMER_EDITOR, "nobody"):
        await refused(newsroom, run, AiActorContext.user(user, grants=tuple(Grant)))
    await refused(newsroom, run, AiActorContext.service(APPROVER, grants=tuple(Grant)))
    await assert_nothing_written(newsroom, case, executions=0)


@EACH_NEED
@pytest.mark.promise("P15")
async def test_an_initiator_who_lacks_one_is_shown_nothing_and_writes_nothing(
    newsroom: Newsroom, case: Case, need: Need
) -> None:
    newsroom.let(EDITOR, without(case, need))
    run = await suspended(newsroom, newsroom.turn(case))
    assert run.pending is not None
    assert run.pending.calls[0].preview == (REFUSAL,)
    run = await approved(newsroom, run, newsroom.turn(case))
    assert_completed(run)
    assert newsroom.told() == PEOPLE["initiator"][1]
    await assert_nothing_written(newsroom, case, executions=0)


@EACH_NEED
@EITHER
@pytest.mark.promise("P15")
async def test_a_right_withdrawn_after_the_approval_stops_the_call(
    newsroom: Newsroom, case: Case, need: Need, who: Who
) -> None:
    run = await queued(newsroom, newsroom.turn(case))
    user, sentence = PEOPLE[who]
    newsroom.let(user, without(case, need))
    async with newsroom.opened(newsroom.turn(case)) as runtime:
        run = await runtime.execute(run.run_id)
    assert_completed(run)
    assert newsroom.told() == sentence
    await assert_nothing_written(newsroom, case, executions=0)


@EACH
@EITHER
@pytest.mark.promise("P15")
async def test_an_account_closed_after_the_approval_stops_the_call(newsroom: Newsroom, case: Case, who: Who) -> None:
    run = await queued(newsroom, newsroom.turn(case))
    user, sentence = PEOPLE[who]
    newsroom.close_account(user)
    async with newsroom.opened(newsroom.turn(case)) as runtime:
        run = await runtime.execute(run.run_id)
    assert_completed(run)
    assert newsroom.told() == sentence
    await assert_nothing_written(newsroom, case, executions=0)


@EACH
@pytest.mark.promise("P15")
async def test_a_denied_call_is_not_run(newsroom: Newsroom, case: Case) -> None:
    run = await suspended(newsroom, newsroom.turn(case))
    assert run.pending is not None
    newsroom.let(APPROVER, [])  # what nobody may release, somebody may still deny
    async with newsroom.opened(newsroom.turn(case)) as runtime:
        denial = Decision.deny(run.pending.digest, reason="Not now.")
        run = await runtime.decide(run.run_id, denial, actor=AiActorContext.user(APPROVER, grants={Grant.APPROVE}))
    assert_completed(run)
    assert "Not now." in newsroom.told()
    await assert_nothing_written(newsroom, case, executions=0)


@EACH_NEED
async def test_the_tool_itself_refuses_who_lacks_one(newsroom: Newsroom, case: Case, need: Need) -> None:
    """Whatever the authority allowed: the tool stands next to the record."""
    run = await queued(newsroom, newsroom.turn(case))
    newsroom.let(EDITOR, without(case, need))
    async with newsroom.opened(newsroom.turn(case), authority=allow_all) as runtime:
        run = await runtime.execute(run.run_id)
    assert_completed(run)
    assert newsroom.told() == REFUSAL
    await assert_nothing_written(newsroom, case, executions=1)


@EACH
async def test_the_tool_itself_refuses_a_closed_account(newsroom: Newsroom, case: Case) -> None:
    run = await queued(newsroom, newsroom.turn(case))
    newsroom.close_account(EDITOR)
    async with newsroom.opened(newsroom.turn(case), authority=allow_all) as runtime:
        run = await runtime.execute(run.run_id)
    assert_completed(run)
    assert newsroom.told() == REFUSAL
    await assert_nothing_written(newsroom, case, executions=1)


@pytest.mark.promise("P15")
async def test_a_hidden_page_is_translated_only_by_who_may_read_it(newsroom: Newsroom) -> None:
    [case] = [case for case in CASES if case.writer.tool == "create_translation_draft"]
    newsroom.hide_museum()
    turn = newsroom.turn(case, expected_version=2)
    newsroom.let(EDITOR, [GERMAN_MUSEUM])
    run = await suspended(newsroom, turn)
    run = await approved(newsroom, run, turn)
    assert newsroom.told() == PEOPLE["initiator"][1]
    await assert_nothing_written(newsroom, case, executions=0)

    newsroom.let(EDITOR, [GERMAN_MUSEUM, MUSEUM])
    run = await suspended(newsroom, turn)
    run = await approved(newsroom, run, turn)
    assert_completed(run)
    await assert_landed_once(newsroom, case)
