"""The feed and the lists, asked for what is none of theirs: a clear error, never an empty answer."""

from datetime import datetime
from typing import cast
from uuid import uuid4

import pytest

from byline import InvalidIdentifier, RecordReference, RunStatus
from byline.testing import ScriptedModel
from tests.host import Host
from tests.kernel.entries import start_and_approve
from tests.kernel.stopping import SET

CURSORS = [
    "", " ", "1", "x", "1-", "-1", "1--1", "1-x", "2-5", "1-05", "1-5 ", " 1-5", "1-5\n", "1-\u0665", "1-5;1-6",
    "1-" + "9" * 30, 5, b"1-5", ["1-5"], True,
]  # fmt: skip


@pytest.mark.promise("P8")
@pytest.mark.parametrize("cursor", CURSORS, ids=repr)
async def test_a_malformed_cursor(host: Host, cursor: object) -> None:
    async with host.runtime(ScriptedModel([])) as runtime:
        with pytest.raises(InvalidIdentifier):
            await runtime.writes(after=cast("str", cursor))


@pytest.mark.promise("P8")
async def test_the_first_cursor_and_one_behind_the_end(host: Host) -> None:
    async with host.runtime([[SET], "Done."]) as runtime:
        await start_and_approve(runtime)
        assert len(await runtime.writes(after="1-0")) == 1
        assert await runtime.writes(after="1-999999999999") == []


@pytest.mark.parametrize("since", [datetime(2026, 1, 1), "2026-01-01", 1_800_000_000, b""], ids=repr)  # noqa: DTZ001
async def test_a_time_without_a_time_zone(host: Host, since: object) -> None:
    async with host.runtime(ScriptedModel([])) as runtime:
        with pytest.raises(InvalidIdentifier, match="since"):
            await runtime.writes(since=cast("datetime", since))


@pytest.mark.parametrize("record", ["pages:42", ("pages", 42), None, 42], ids=repr)
async def test_a_record_that_is_none(host: Host, record: object) -> None:
    async with host.runtime(ScriptedModel([])) as runtime:
        with pytest.raises(InvalidIdentifier, match="RecordReference"):
            await runtime.writes_of(cast("RecordReference", record))


@pytest.mark.parametrize("table", [42, b"pages", ["pages"]], ids=repr)
async def test_a_table_that_is_no_text(host: Host, table: object) -> None:
    async with host.runtime(ScriptedModel([])) as runtime:
        with pytest.raises(InvalidIdentifier, match="table"):
            await runtime.writes(table=cast("str", table))


@pytest.mark.parametrize("position", [-1, True, "1", 1.5, None], ids=repr)
async def test_a_position_that_is_none(host: Host, position: object) -> None:
    async with host.runtime(["Done."]) as runtime:
        with pytest.raises(InvalidIdentifier, match="position"):
            await runtime.list_steps(uuid4(), after=cast("int", position))


@pytest.mark.parametrize("status", ["nonsense", "", 5], ids=repr)
async def test_a_status_that_is_none(host: Host, status: object) -> None:
    async with host.runtime(["Done."]) as runtime:
        with pytest.raises(InvalidIdentifier, match="status"):
            await runtime.list_runs(status=cast("RunStatus", status))
