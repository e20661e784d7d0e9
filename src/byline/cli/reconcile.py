"""`byline reconcile`: say what became of a write that nobody knows the outcome of."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer

from byline.approval.decision import ReconcileVerdict, Reconciliation
from byline.cli.application import load
from byline.cli.asking import Digest, Yes, check_asking, confirm, shown_on
from byline.cli.describing import show_run
from byline.cli.failing import ExitCode, UsageRefused
from byline.cli.options import AsJson, RunArgument, find_run
from byline.cli.outcome import tell
from byline.cli.progress import following
from byline.cli.screen import Screen
from byline.errors import InvalidIdentifier, StaleDecision
from byline.records import RecordReference, WriteKind
from byline.tools.result import WriteTarget

_QUESTION = (
    "What became of it?\n"
    "  landed RECORD KIND  it landed, as in: landed pages:42 updated\n"
    "  again               it did not land, and is to run again\n"
    "  leave               it did not land, and is to be left so\n"
    "  (nothing)           say nothing now"
)


def reconcile(
    context: typer.Context,
    run: RunArgument,
    landed: Annotated[
        str | None, typer.Option(metavar="RECORD", help="It landed, and wrote this record, such as pages:42.")
    ] = None,
    kind: Annotated[WriteKind | None, typer.Option(help="With --landed: what happened to the record.")] = None,
    run_again: Annotated[bool, typer.Option("--run-again", help="It did not land; run it again.")] = False,
    leave_it: Annotated[bool, typer.Option("--leave-it", help="It did not land; leave it so.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Ask the tool first whether it landed. What landed is settled by that.")
    ] = False,
    deny: Annotated[
        list[str] | None, typer.Option(metavar="CALL", help="Another call of the turn that is not to run: its id.")
    ] = None,
    yes: Yes = False,
    digest: Digest = None,
    as_json: AsJson = False,
) -> None:
    """Show the write that may have landed, and say what became of it. Without an option, it asks."""
    screen = shown_on(as_json=as_json)
    said = _said(landed, kind, run_again=run_again, leave_it=leave_it)
    if said is None and yes:
        raise UsageRefused("say what became of it: --landed RECORD --kind KIND, --run-again or --leave-it")
    if said is not None or not verify:
        check_asking(screen, yes=yes, digest=digest)
    denied = [_call_id(named) for named in deny or []]
    application = load(context)
    actor = application.actor()
    with application.opened() as runtime:
        run_id = find_run(runtime, run)
        found = runtime.verify(run_id) if verify else runtime.get_run(run_id)
        uncertain = found.uncertain
        if uncertain is not None and (said is not None or screen.can_ask):
            read = uncertain.digest if digest is None else digest
            if not yes:
                if read != uncertain.digest:
                    raise StaleDecision
                show_run(screen, found)
                said = _confirmed(screen, said)
            verdict = _verdict(read, said, denied)
            with following(runtime, run_id):
                found = runtime.reconcile(run_id, verdict, actor=actor)
        elif not verify:  # it is refused, with the reason
            found = runtime.reconcile(run_id, _verdict(digest or "", said, denied), actor=actor)
    tell(found, as_json=as_json)


Outcome = WriteTarget | ReconcileVerdict


def _said(landed: str | None, kind: WriteKind | None, *, run_again: bool, leave_it: bool) -> Outcome | None:
    if (landed is not None) + run_again + leave_it > 1:
        raise UsageRefused("one of --landed, --run-again and --leave-it, not several")
    if (landed is None) != (kind is None):
        raise UsageRefused("--landed RECORD goes with --kind created or --kind updated")
    if landed is not None and kind is not None:
        return WriteTarget(RecordReference.parse(landed), kind)
    if run_again:
        return ReconcileVerdict.RUN_AGAIN
    return ReconcileVerdict.LEAVE_IT if leave_it else None


def _confirmed(screen: Screen, said: Outcome | None) -> Outcome:
    if said is None:
        return _ask(screen)
    match said:
        case WriteTarget(record=record, kind=kind):
            question = f"It landed: {record} {kind.value}. It will be announced. Is that so?"
        case ReconcileVerdict.RUN_AGAIN:
            question = "It did not land, and is to run again. Is that so?"
        case _:
            question = "It did not land, and is to be left so. Is that so?"
    confirm(screen, question)
    return said


def _ask(screen: Screen) -> Outcome:
    screen.say()
    screen.say(_QUESTION)
    while True:
        match screen.ask("Answer:").split():
            case []:
                screen.say("Nothing was said.")
                raise typer.Exit(ExitCode.REFUSED)
            case ["landed", record, ("created" | "updated") as kind]:
                try:
                    return WriteTarget(RecordReference.parse(record), WriteKind(kind))
                except InvalidIdentifier as error:
                    screen.say(str(error))
            case ["again"]:
                return ReconcileVerdict.RUN_AGAIN
            case ["leave"]:
                return ReconcileVerdict.LEAVE_IT
            case _:
                screen.say("Please answer landed RECORD created, landed RECORD updated, again, leave, or nothing.")


def _verdict(digest: str, said: Outcome | None, deny: Sequence[UUID]) -> Reconciliation:
    match said:
        case WriteTarget(record=record, kind=kind):
            return Reconciliation.landed(digest, record, kind, deny=deny)
        case ReconcileVerdict.RUN_AGAIN:
            return Reconciliation.run_again(digest, deny=deny)
        case _:
            return Reconciliation.leave_it(digest, deny=deny)


def _call_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidIdentifier(f"{text!r} is no call's id, a UUID") from None
