"""The people of the gate's tests, as the host knows them."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import pytest

from byline import AgentRuntime, AiActorContext, Authority, Decision, Grant, NotAllowed, ProposedCall, Run
from tests.host import Host, People
from tests.kernel.gate_entries import pending

CAROL = AiActorContext.user("9", grants=tuple(Grant))
"""Somebody else who decides."""


@dataclass(slots=True)
class Granting(People):
    """People whose grants a test can change as well: everybody who is not named has every one."""

    granted: dict[str, Collection[Grant]] = field(default_factory=dict)

    def load(self, actor_id: str, /) -> AiActorContext | None:
        grants = self.granted.get(actor_id, tuple(Grant))
        return None if actor_id in self.disabled else AiActorContext.user(actor_id, grants=grants)


@dataclass(slots=True)
class Directory(Authority):
    """People as the host knows them."""

    known: dict[str, AiActorContext] = field(default_factory=dict)
    asked: list[tuple[AiActorContext, ProposedCall]] = field(default_factory=list)
    may: Callable[[AiActorContext, ProposedCall], bool] = lambda _actor, _call: True

    def load(self, actor_id: str, /) -> AiActorContext | None:
        return self.known.get(actor_id)

    def may_run(self, actor: AiActorContext, call: ProposedCall, /) -> bool:
        self.asked.append((actor, call))
        return self.may(actor, call)


def directory(*people: AiActorContext) -> Directory:
    return Directory({person.id: person for person in people})


async def refused(host: Host, runtime: AgentRuntime, run: Run, decision: Decision, actor: AiActorContext) -> str:
    """The decision is refused with a reason; nothing was executed or decided."""
    with pytest.raises(NotAllowed) as error:
        await runtime.decide(run.run_id, decision, actor=actor)
    after = await runtime.get_run(run.run_id)
    assert pending(after) == pending(run)
    assert (host.executions(), host.heard()) == (0, [])
    return str(error.value)
