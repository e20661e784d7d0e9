import asyncio
import threading
from typing import Any, cast

import pytest

from byline.errors import ConfigurationError, InvalidArguments, ToolContractBroken
from byline.records import WriteKind
from byline.tools import (
    Landed,
    NotLanded,
    ToolContext,
    Verification,
)
from byline.tools.function import MAX_PREVIEW_ITEM_BYTES, MAX_PREVIEW_ITEMS
from byline.tools.result import TRUNCATED
from tests.unit.annotating import ARGUMENTS, CONTEXT, PAGE, SECRET, make


async def test_a_preview_may_be_sync_or_async() -> None:
    annotate, write = make(), make()

    @annotate.preview
    async def _(context: ToolContext, page_id: int, note: str) -> list[str]:
        return [f"{context.actor.id}: pages:{page_id}", note]

    @write.preview
    def _(context: ToolContext, page_id: int, note: str) -> list[str]:
        return [threading.current_thread().name[:11]]

    assert await annotate.make_preview(CONTEXT, ARGUMENTS) == ["7: pages:42", "new"]
    assert await write.make_preview(CONTEXT, ARGUMENTS) == ["byline-tool"]


async def test_a_tool_without_preview_and_verify_shows_and_knows_nothing() -> None:
    annotate = make()
    assert await annotate.make_preview(CONTEXT, ARGUMENTS) == []
    assert not annotate.verifies
    assert await annotate.check_landed(CONTEXT, ARGUMENTS) is None


async def test_a_preview_is_bounded_and_clean() -> None:
    annotate = make()
    shown = ["é" * MAX_PREVIEW_ITEM_BYTES, "\ud800", *map(str, range(MAX_PREVIEW_ITEMS - 2))]

    @annotate.preview
    def _(context: ToolContext, page_id: int, note: str) -> list[str]:
        return shown

    preview = await annotate.make_preview(CONTEXT, ARGUMENTS)
    assert len(preview[0].encode()) <= MAX_PREVIEW_ITEM_BYTES
    assert preview[0].endswith("é" + TRUNCATED)
    assert preview[1:] == ["\ufffd", *shown[2:]]
    shown += ["more", "and more"]
    preview = await annotate.make_preview(CONTEXT, ARGUMENTS)
    assert preview[-2:] == [str(MAX_PREVIEW_ITEMS - 4), "[3 more items left out by Byline]"]
    assert len(preview) == MAX_PREVIEW_ITEMS


@pytest.mark.parametrize(
    "shown, fault",
    [
        (None, "previewed a NoneType, not a list of str"),
        (SECRET, "previewed a str, not a list of str"),
        ((SECRET,), "previewed a tuple, not a list of str"),
        ([SECRET, 7], "previewed a list with a int, not a list of str"),
    ],
)
async def test_a_preview_that_is_no_list_of_texts_broke_the_contract(shown: object, fault: str) -> None:
    annotate = make()

    @annotate.preview
    def _(context: ToolContext, page_id: int, note: str) -> list[str]:
        return cast("list[str]", shown)

    with pytest.raises(ToolContractBroken) as caught:
        await annotate.make_preview(CONTEXT, ARGUMENTS)
    assert str(caught.value) == f"tool 'annotate' {fault}"


@pytest.mark.parametrize("found", [Landed(PAGE, WriteKind.UPDATED), NotLanded(), None])
async def test_verify_says_whether_a_call_landed(found: Verification) -> None:
    annotate, write = make(), make()

    @annotate.verify
    async def _(context: ToolContext, page_id: int, note: str) -> Verification:
        assert (page_id, note) == (42, "new")
        return found

    @write.verify
    def _(context: ToolContext, page_id: int, note: str) -> Verification:
        return found

    assert annotate.verifies
    assert await annotate.check_landed(CONTEXT, ARGUMENTS) == found
    assert await write.check_landed(CONTEXT, ARGUMENTS) == found


@pytest.mark.parametrize("found", [True, SECRET, Landed, PAGE])
async def test_verify_that_says_something_else_broke_the_contract(found: object) -> None:
    annotate = make()

    @annotate.verify
    def _(context: ToolContext, page_id: int, note: str) -> Verification:
        return cast("Verification", found)

    with pytest.raises(ToolContractBroken) as caught:
        await annotate.check_landed(CONTEXT, ARGUMENTS)
    assert str(caught.value).startswith(f"tool 'annotate' verified a {type(found).__name__}, not Landed")


def test_what_landed_is_a_record_and_a_kind() -> None:
    with pytest.raises(ToolContractBroken, match="RecordReference, not str"):
        Landed("pages:42", WriteKind.UPDATED)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ToolContractBroken, match="kind"):
        Landed(PAGE, "deleted")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.promise("P12")
async def test_only_normalised_arguments_are_shown_or_looked_for() -> None:
    annotate = make()

    @annotate.preview
    def _(context: ToolContext, page_id: int, note: str) -> list[str]:
        return ["shown"]

    @annotate.verify
    def _(context: ToolContext, page_id: int, note: str) -> Verification:
        return NotLanded()

    for arguments in ({"page_id": "42", "note": "new"}, {"page_id": 42}):
        with pytest.raises(InvalidArguments):
            await annotate.make_preview(CONTEXT, arguments)
        with pytest.raises(InvalidArguments):
            await annotate.check_landed(CONTEXT, arguments)


async def test_a_cancelled_preview_is_not_waited_for() -> None:
    annotate = make()
    begun, go = threading.Event(), threading.Event()

    @annotate.preview
    def _(context: ToolContext, page_id: int, note: str) -> list[str]:
        begun.set()
        assert go.wait(20)
        return []

    task = asyncio.create_task(annotate.make_preview(CONTEXT, ARGUMENTS))
    assert await asyncio.to_thread(begun.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()


def test_a_tool_has_one_preview_and_one_verify() -> None:
    annotate = make()

    def preview(context: ToolContext, page_id: int, note: str) -> list[str]:
        raise NotImplementedError

    def verify(context: ToolContext, page_id: int, note: str) -> Verification:
        raise NotImplementedError

    assert annotate.preview(preview) is preview
    assert annotate.verify(verify) is verify
    with pytest.raises(ConfigurationError, match="'annotate' has a preview already"):
        annotate.preview(preview)
    with pytest.raises(ConfigurationError, match="'annotate' has a verify already"):
        annotate.verify(verify)


def test_a_preview_and_a_verify_take_the_tool_s_parameters() -> None:
    annotate = make()

    def preview(context: ToolContext, page: int, note: str) -> list[str]:
        raise NotImplementedError

    def verify() -> Verification:
        raise NotImplementedError

    for register, function in ((annotate.preview, preview), (annotate.verify, verify)):
        with pytest.raises(ConfigurationError, match="take its own parameters, context, page_id, note"):
            cast("Any", register)(function)
    assert not annotate.verifies
