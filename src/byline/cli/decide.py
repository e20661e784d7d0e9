"""`byline approve` and `byline deny`: decide on a waiting turn, exactly as it was read."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer

from byline.approval.decision import Approve, Decision, Deny
from byline.cli.application import load
from byline.cli.asking import Digest, Yes, check_asking, confirm, shown_on
from byline.cli.describing import show_run
from byline.cli.options import AsJson, RunArgument, find_run
from byline.cli.outcome import tell
from byline.cli.progress import following
from byline.errors import StaleDecision, UnknownCall
from byline.runs.run import Pending

Calls = Annotated[
    list[str] | None,
    typer.Option("--call", metavar="CALL", help="Only this call: its id or its number as shown. May be repeated."),
]


def approve(
    context: typer.Context,
    run: RunArgument,
    call: Calls = None,
    yes: Yes = False,
    digest: Digest = None,
    as_json: AsJson = False,
) -> None:
    """Show the turn that waits, ask, and release its calls exactly as shown. Then the run goes on."""
    _decide(context, run, Approve(), call or [], yes=yes, digest=digest, as_json=as_json)


def deny(
    context: typer.Context,
    run: RunArgument,
    reason: Annotated[str, typer.Option(help="Why not; the model reads it as a person's words.")] = "",
    call: Calls = None,
    yes: Yes = False,
    digest: Digest = None,
    as_json: AsJson = False,
) -> None:
    """Show the turn that waits, ask, and refuse its calls. Then the run goes on without them."""
    _decide(context, run, Deny(reason), call or [], yes=yes, digest=digest, as_json=as_json)


def _decide(
    context: typer.Context,
    text: str,
    verdict: Approve | Deny,
    only: Sequence[str],
    *,
    yes: bool,
    digest: str | None,
    as_json: bool,
) -> None:
    screen = shown_on(as_json=as_json)
    check_asking(screen, yes=yes, digest=digest)
    application = load(context)
    actor = application.actor()
    with application.opened() as runtime:
        run = runtime.get_run(find_run(runtime, text))
        pending = run.pending
        # What is decided on is what is shown here, or what was read before and is named by its digest. It is never read
        # anew behind the question: a turn that has changed meanwhile is refused (P13).
        read = digest if digest is not None or pending is None else pending.digest
        if pending is not None and not yes:
            if read != pending.digest:
                raise StaleDecision
            show_run(screen, run)
            confirm(screen, _question(verdict, pending, only))
        decision = _decision(read or "", verdict, pending, only)
        with following(runtime, run.run_id):
            run = runtime.decide(run.run_id, decision, actor=actor)
    tell(run, as_json=as_json)


def _decision(digest: str, verdict: Approve | Deny, pending: Pending | None, only: Sequence[str]) -> Decision:
    if not only:  # without a pending turn it is refused, with the reason
        return Decision(digest, for_all=verdict)
    chosen = [] if pending is None else [_call(pending, named) for named in only]
    return Decision.per_call(digest, dict.fromkeys(chosen, verdict))


def _call(pending: Pending, named: str) -> UUID:
    """Find a call of the turn by its id or by its number in it; the digest binds their order."""
    if named.isdecimal() and 0 < int(named) <= len(pending.calls):
        return pending.calls[int(named) - 1].id
    for call in pending.calls:
        if str(call.id) == named.lower():
            return call.id
    raise UnknownCall(f"the turn has no call {named}; nothing was decided")


def _question(verdict: Approve | Deny, pending: Pending, only: Sequence[str]) -> str:
    chosen = {_call(pending, named) for named in only} if only else set(pending.undecided)
    tools = ", ".join(call.tool for call in pending.calls if call.id in chosen)
    if isinstance(verdict, Approve):
        return f"Approve {tools}, exactly as shown?"
    return f"Deny {tools}?"
