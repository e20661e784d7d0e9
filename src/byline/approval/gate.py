"""Who may decide, and whether a released call may still run. The default is no."""

import copy
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from byline.actors import AiActorContext, Authority, Grant, ProposedCall, Scope
from byline.approval.turn import PendingCall, PendingTurn
from byline.errors import ConfigurationError, NotAllowed
from byline.hosted import goes_on, where_raised, within
from byline.threads import DaemonThreads

T = TypeVar("T")

_log = logging.getLogger(__name__)

AUTHORITY_TIMEOUT = 10.0
"""Seconds the host's authority may take for one answer; longer means no."""


class Gate:
    """Asks the host's authority, and lets nothing through that it did not clearly allow.

    An authority that raises, hangs or answers something that is not the type it should be means no;
    it is logged, so that an operator sees why.

    Raises:
        ConfigurationError: the authority lacks a method.
    """

    def __init__(self, authority: Authority | None) -> None:
        if isinstance(authority, type):
            raise ConfigurationError(
                f"authority is the class {authority.__name__}: give an object, {authority.__name__}()"
            )
        for method in ("load", "may_run"):
            if authority is not None and not callable(getattr(authority, method, None)):
                raise ConfigurationError(f"a {type(authority).__name__} is no authority: it has no {method}()")
        self._authority = authority
        self._threads = DaemonThreads("byline-authority")

    async def load(self, actor_id: str) -> AiActorContext | None:
        """Return the actor as the host knows them now, or None if they may do nothing."""
        authority = self._authority
        if authority is None:
            return None
        loaded = await self._ask("load", authority.load, actor_id)
        return loaded if isinstance(loaded, AiActorContext) and loaded.id == actor_id else None

    async def may_run(self, actor: AiActorContext, call: ProposedCall) -> bool:
        """Whether the actor may run this call with these arguments."""
        authority = self._authority
        return authority is not None and await self._ask("may_run", authority.may_run, actor, call) is True

    async def decider(self, actor: AiActorContext, *needed: Grant) -> AiActorContext:
        """Return the decider as the authority knows them, with the grants that session and authority both give.

        Raises:
            NotAllowed: the authority does not know them, or they lack every one of the needed grants.
        """
        if self._authority is None:
            raise NotAllowed("this runtime has no authority that could let anybody decide; nothing was executed")
        known = await self.load(actor.id)
        if known is None:
            why = "the authority does not know this actor, they are disabled, or it failed (then the log says how)"
            raise NotAllowed(f"{why}; nothing was executed")
        for who, grants in (
            ("the actor handed in", actor.grants),
            ("the actor that the authority loads", known.grants),
        ):
            if needed and grants.isdisjoint(needed):
                grant = " or ".join(needed)
                raise NotAllowed(f"{who} lacks the grant {grant}; both must hold it. Nothing was executed")
        return known.restricted_to(actor)

    async def check_release(
        self,
        actor: AiActorContext,
        call: PendingCall,
        turn: PendingTurn,
        initiator_id: str,
        *,
        second_approver: bool,
    ) -> None:
        """Refuse an actor who may not release this call (P14).

        Raises:
            NotAllowed: and why. Nothing was executed.
        """
        if actor.scope is not Scope.USER:
            raise NotAllowed("a service account cannot release a write; nothing was executed")
        if second_approver and actor.id == initiator_id:
            raise NotAllowed("this agent needs a second approver: who started the run cannot release its writes")
        if second_approver and actor.id in call.changers:
            raise NotAllowed("this agent needs a second approver: who changed the arguments cannot release them")
        if not await self.may_run(actor, propose(turn, call)):
            raise NotAllowed(f"the authority does not let this actor run {call.tool} with these arguments")

    async def refusal(
        self, initiator: AiActorContext, approver_id: str | None, call: PendingCall, turn: PendingTurn
    ) -> str | None:
        """Ask again before a released call runs (P15): does it stand that these people may run it?

        Returns:
            What the model is told if it does not, else None.
        """
        for actor_id, who, releases in (
            (initiator.id, "person this run acts for", False),
            (approver_id, "person who approved it", True),
        ):
            if actor_id is None:
                continue
            actor = await self.load(actor_id)
            if actor is not None and not releases:  # a token of a person's starts runs as what it is
                actor = actor.restricted_to(initiator)
            may = actor is not None and (not releases or _may_release(actor))
            if actor is None or not may or not await self.may_run(actor, propose(turn, call)):
                return f"Not executed: the {who} may not do this."
        return None

    async def _answer(self, ask: Callable[..., T | Awaitable[T]], *arguments: object) -> T:
        answer: T | Awaitable[T]
        if inspect.iscoroutinefunction(ask):
            answer = ask(*arguments)
        else:
            answer = await self._threads.submit(lambda: ask(*arguments))
        # What is no Awaitable[T] is a T, which basedpyright cannot see.
        return await answer if inspect.isawaitable(answer) else answer  # pyright: ignore[reportReturnType]

    async def _ask(self, question: str, ask: Callable[..., T | Awaitable[T]], *arguments: object) -> T | None:
        """Ask on a thread if the authority is sync: it may use a database; bounded in time."""
        try:
            return await within(AUTHORITY_TIMEOUT, self._answer(ask, *arguments))
        except BaseException as error:
            if goes_on(error):
                raise
            extra = {"action": "authority_failed", "question": question}
            _log.error("The authority's %s failed; that means no. %s", question, where_raised(error), extra=extra)
            return None


def _may_release(actor: AiActorContext) -> bool:
    return actor.scope is Scope.USER and Grant.APPROVE in actor.grants


def propose(turn: PendingTurn, call: PendingCall) -> ProposedCall:
    """Show a call to the authority: a copy, so that what it changes is not what runs (P12)."""
    return ProposedCall(
        run_id=turn.run_id,
        call_id=call.id,
        agent=turn.agent,
        tool=call.tool,
        writes=call.effect.writes,
        arguments=copy.deepcopy(call.arguments),
    )
