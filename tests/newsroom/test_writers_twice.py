"""Each writer when its approved call is delivered more than once: by the queue, by processes at once, by the model."""

import asyncio

import pytest

from tests.crash.story import queued
from tests.newsroom.cases import EACH, Case
from tests.newsroom.place import Newsroom, assert_completed, assert_landed_once


@EACH
@pytest.mark.promise("P8", "P17", "P20")
async def test_delivered_twice_and_to_two_at_once_it_is_executed_once(newsroom: Newsroom, case: Case) -> None:
    run = await queued(newsroom, newsroom.turn(case))
    turn = newsroom.turn(case)
    async with newsroom.opened(turn) as first, newsroom.opened(turn) as second:
        await asyncio.gather(*(each.execute(run.run_id) for each in (first, second) for _ in range(2)))
        run = await first.execute(run.run_id)
    assert_completed(run)
    assert len(newsroom.ran(case.writer.tool)) == 1
    await assert_landed_once(newsroom, case)
