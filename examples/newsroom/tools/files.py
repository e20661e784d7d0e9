"""Writing files: the alternative text of one."""

from sqlalchemy.exc import IntegrityError

from byline import Landed, NotLanded, ToolContext, ToolEffect, ToolResult, tool
from examples.newsroom.models import File
from examples.newsroom.tools.desk import Desk
from examples.newsroom.tools.texts import AlternativeText, Id, Version
from examples.newsroom.tools.writing import TIMEOUT, Update, diff, landed, show, write


@tool(effect=ToolEffect.IDEMPOTENT_WRITE, timeout=TIMEOUT, not_written=(IntegrityError,))
def set_alternative_text(
    context: ToolContext, file_id: Id, expected_version: Version, alternative_text: AlternativeText
) -> ToolResult:
    """Set what a file says to those who do not see it, in English, wherever it is shown.

    Args:
        file_id: The file.
        expected_version: The file's version as you read it.
        alternative_text: What the picture shows, at most 250 characters.
    """
    return write(context, lambda desk: _text(desk, file_id, expected_version, alternative_text))


@set_alternative_text.preview
def _(context: ToolContext, file_id: int, expected_version: int, alternative_text: str) -> list[str]:
    return show(context, lambda desk: _text(desk, file_id, expected_version, alternative_text))


@set_alternative_text.verify
def _(context: ToolContext, file_id: int, expected_version: int, alternative_text: str) -> Landed | NotLanded:
    return landed(context)


def _text(desk: Desk, file_id: int, expected_version: int, alternative_text: str) -> Update:
    file = desk.to_edit(File, file_id)
    before = [file.alternative_text] if file.alternative_text else []
    shown = diff(f"files:{file.id} “{file.name}” alternative text", before, [alternative_text])
    return Update(file, {"alternative_text": alternative_text}, expected_version, [shown])
