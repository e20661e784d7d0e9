"""Annotations that are strings, as `from __future__ import annotations` makes them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

from byline.errors import ConfigurationError
from byline.tools import ToolEffect, tool

if TYPE_CHECKING:
    from datetime import date

    from byline.tools import ToolContext, ToolResult

reading = tool(effect=ToolEffect.READ_ONLY)


def test_types_defined_beside_the_function_are_found() -> None:
    class Page(BaseModel):
        uid: int

    @reading
    def read(context: ToolContext, page: Page, pages: list[Page]) -> ToolResult:
        raise NotImplementedError

    assert read.validate('{"page": {"uid": "1"}, "pages": []}') == {"page": {"uid": 1}, "pages": []}


def test_a_type_imported_for_types_only_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"tool 'read': .*name 'date' is not defined.*at run time"):

        @reading
        def read(context: ToolContext, day: date) -> ToolResult:
            raise NotImplementedError
