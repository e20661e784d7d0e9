"""The test kit: a model that plays a script, a dispatcher that records, a store in memory, an authority that allows.

Nothing here is for production, and nothing here listens (P4).
"""

from typing import TYPE_CHECKING

from byline.actors import AiActorContext, Grant, ProposedCall
from byline.announcing import AfterAiRecordWrittenEvent
from byline.models.scripted import ScriptedModel, call

if TYPE_CHECKING:
    from byline.store.sql import SqlStore

__all__ = ["AllowAll", "RecordingDispatcher", "ScriptedModel", "allow_all", "call", "memory_store"]


class RecordingDispatcher:
    """Keeps every event it is handed, in order."""

    def __init__(self) -> None:
        self.events: list[AfterAiRecordWrittenEvent] = []

    async def dispatch(self, event: AfterAiRecordWrittenEvent, /) -> None:
        """Keep the event."""
        self.events.append(event)


class AllowAll:
    """An authority that knows everybody as a person with every grant, and allows everything. For tests and demos."""

    def load(self, actor_id: str, /) -> AiActorContext | None:
        """Know anybody."""
        return AiActorContext.user(actor_id, grants=tuple(Grant))

    def may_run(self, actor: AiActorContext, call: ProposedCall, /) -> bool:
        """Allow anything."""
        return True


allow_all = AllowAll()
"""The one instance that tests and demos need."""


def memory_store() -> "SqlStore":
    """Make a store that lives in this process's memory, and keeps every promise but durability."""
    from byline.store.sql import SqlStore  # only a test that wants a store pays for SQLAlchemy

    return SqlStore("sqlite://")
