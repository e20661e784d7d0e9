"""What each writer does when a record is not as it was when the model read it, or is not there (any more)."""

import pytest

from byline import Decision, NotAllowed, Run
from byline.testing import allow_all
from examples.newsroom.seed import APPROVER, EDITOR
from examples.newsroom.tools.desk import REFUSAL
from examples.newsroom.tools.writing import CHANGED, SAME
from tests.crash.story import approved, queued, suspended
from tests.newsroom.cases import CASES, EACH_END, IDEMPOTENT, Case, End
from tests.newsroom.place import Newsroom, assert_completed, assert_landed_once, assert_nothing_written
from tests.newsroom.stage import DECIDES, MISSING

VERSIONED = pytest.mark.parametrize("case", [case for case in CASES if case.writer.versioned], ids=str)


async def executed(newsroom: Newsroom, run: Run, case: Case) -> Run:
    async with newsroom.opened(newsroom.turn(case)) as runtime:
        return await runtime.execute(run.run_id)


@EACH_END
@pytest.mark.promise("P14", "P15")
async def test_no_such_record_and_no_right_are_the_same_to_everybody(newsroom: Newsroom, case: Case, end: End) -> None:
    """In the preview, to the approver, and to the model."""
    missing = newsroom.turn(case, **{end.argument: MISSING})
    run = await suspended(newsroom, missing)
    assert run.pending is not None
    said = [run.pending.calls[0].preview]
    approve = Decision.approve(run.pending.digest)
    async with newsroom.opened(missing) as runtime:
        with pytest.raises(NotAllowed) as about_missing:
            await runtime.decide(run.run_id, approve, actor=DECIDES)

    newsroom.let(EDITOR, [])
    newsroom.let(APPROVER, [])
    run = await suspended(newsroom, newsroom.turn(case))
    assert run.pending is not None
    said.append(run.pending.calls[0].preview)
    approve = Decision.approve(run.pending.digest)
    async with newsroom.opened(newsroom.turn(case)) as runtime:
        with pytest.raises(NotAllowed) as about_right:
            await runtime.decide(run.run_id, approve, actor=DECIDES)

    assert said == [(REFUSAL,), (REFUSAL,)]
    assert str(about_missing.value) == str(about_right.value)
    await assert_nothing_written(newsroom, case, executions=0)


@EACH_END
@pytest.mark.promise("P15")
async def test_a_record_gone_after_the_approval_stops_the_call_as_a_right_that_is_gone_does(
    newsroom: Newsroom, case: Case, end: End
) -> None:
    first, second = [await queued(newsroom, newsroom.turn(case)) for _ in range(2)]
    newsroom.close_account(EDITOR)
    assert_completed(await executed(newsroom, first, case))
    about_right = newsroom.told()
    newsroom.close_account(EDITOR, closed=False)
    newsroom.remove(end)
    before = newsroom.stage.rows()

    assert_completed(await executed(newsroom, second, case))

    assert newsroom.told() == about_right
    assert newsroom.stage.rows() == before
    assert (newsroom.landed(), newsroom.heard(), newsroom.ran(case.writer.tool)) == ([], [], [])


@EACH_END
@pytest.mark.promise("P10")
async def test_a_record_gone_after_the_authority_was_asked_is_refused_by_the_tool(
    newsroom: Newsroom, case: Case, end: End
) -> None:
    run = await queued(newsroom, newsroom.turn(case))
    newsroom.remove(end)
    before = newsroom.stage.rows()
    async with newsroom.opened(newsroom.turn(case), authority=allow_all) as runtime:
        run = await runtime.execute(run.run_id)
        assert await runtime.writes() == []
    assert_completed(run)
    assert newsroom.told() == REFUSAL
    assert newsroom.stage.rows() == before
    assert (newsroom.landed(), newsroom.heard(), len(newsroom.ran(case.writer.tool))) == ([], [], 1)


@VERSIONED
@pytest.mark.promise("P10")
async def test_a_record_changed_after_the_approval_is_not_overwritten(newsroom: Newsroom, case: Case) -> None:
    run = await queued(newsroom, newsroom.turn(case))
    newsroom.stage.change(case.writer)
    before = newsroom.stage.rows()
    assert_completed(await executed(newsroom, run, case))
    assert newsroom.told() == CHANGED
    assert newsroom.stage.rows() == before
    assert (newsroom.landed(), newsroom.heard()) == ([], [])


@VERSIONED
@pytest.mark.promise("P10")
async def test_a_record_changed_there_and_back_has_changed(newsroom: Newsroom, case: Case) -> None:
    """The colleague who took a change back has read more than the model has."""
    run = await queued(newsroom, newsroom.turn(case))
    newsroom.change_there_and_back(case)
    before = newsroom.stage.rows()
    assert_completed(await executed(newsroom, run, case))
    assert newsroom.told() == CHANGED
    assert newsroom.stage.rows() == before
    assert (newsroom.landed(), newsroom.heard()) == ([], [])


@pytest.mark.parametrize("case", [case for case in CASES if not case.writer.versioned], ids=str)
@pytest.mark.promise("P10")
async def test_what_replaces_nothing_lands_beside_a_colleagues_change(newsroom: Newsroom, case: Case) -> None:
    run = await queued(newsroom, newsroom.turn(case))
    newsroom.stage.change(case.writer)
    before = newsroom.stage.rows()
    assert_completed(await executed(newsroom, run, case))
    await assert_landed_once(newsroom, case)
    after = newsroom.stage.rows()
    assert {name: after[name] for name in before} == before, "the colleague's change stands"


@pytest.mark.parametrize("case", IDEMPOTENT, ids=str)
@pytest.mark.promise("P10")
async def test_a_wish_that_a_colleague_fulfilled_is_no_write(newsroom: Newsroom, case: Case) -> None:
    run = await queued(newsroom, newsroom.turn(case))
    first = await newsroom.stage.execute(case.writer, newsroom.stage.context(APPROVER))  # by the colleague's own agent
    assert first.changed
    before, history = newsroom.stage.rows(), newsroom.landed()
    assert_completed(await executed(newsroom, run, case))
    assert newsroom.told() == SAME
    assert (newsroom.stage.rows(), newsroom.landed()) == (before, history)
    assert newsroom.heard() == []


@VERSIONED
async def test_a_change_seen_in_time_stands_in_the_preview(newsroom: Newsroom, case: Case) -> None:
    newsroom.stage.change(case.writer)
    run = await suspended(newsroom, newsroom.turn(case))
    assert run.pending is not None
    assert run.pending.calls[0].preview == (CHANGED,)
    assert_completed(await approved(newsroom, run, newsroom.turn(case)))
    assert newsroom.told() == CHANGED
    assert (newsroom.landed(), newsroom.heard()) == ([], [])
