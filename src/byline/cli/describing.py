"""Runs, their waiting turns and their uncertain calls, in words for people."""

from collections.abc import Mapping
from uuid import UUID

from pydantic import JsonValue

from byline.approval.decision import CallVerdict, Deny
from byline.approval.turn import PendingCall
from byline.cli.screen import Column, Screen, Style, Styled, Words, local
from byline.cli.visible import visible_json
from byline.runs.run import Pending, Run, UncertainCall
from byline.runs.status import RunStatus
from byline.tools.effect import ToolEffect
from byline.tools.protocol import Landed

_STYLES = {
    RunStatus.COMPLETED: Style.GOOD,
    RunStatus.AWAITING_APPROVAL: Style.WAITS,
    RunStatus.AWAITING_INPUT: Style.WAITS,
    RunStatus.UNCERTAIN: Style.BAD,
    RunStatus.DEAD_LETTER: Style.BAD,
    RunStatus.FAILED: Style.BAD,
}
_EFFECTS = {
    ToolEffect.READ_ONLY: "reads only",
    ToolEffect.IDEMPOTENT_WRITE: "writes; twice is as good as once",
    ToolEffect.NON_IDEMPOTENT_WRITE: "writes; twice would write twice",
}


def status_words(status: RunStatus) -> Words:
    """Show a status."""
    return Styled(status.value, _STYLES.get(status, Style.PLAIN))


def what_of(run: Run) -> str:
    """Say in a few words what a run waits for, or why it stands where it stands."""
    if run.problem is not None:
        return run.problem if run.due_at is None else f"{run.problem}; due {local(run.due_at)}"
    if run.pending is not None:
        undecided = run.pending.undecided
        return "waits: " + ", ".join(call.tool for call in run.pending.calls if call.id in undecided)
    words = [] if run.reason is None else [run.reason.value]
    if run.uncertain is not None:
        words.append(run.uncertain.fence.tool)
    if run.cancel_requested and not run.status.is_terminal:
        words.append("to be cancelled")
    return ", ".join(words)


RUN_COLUMNS = (
    Column("RUN"),
    Column("STATUS"),
    Column("AGENT", flexible=True),
    Column("FOR", flexible=True),
    Column("CHANGED"),
    Column("WHAT", flexible=True),
)


def show_runs(screen: Screen, runs: list[Run]) -> None:
    """Show runs in a table. On a narrow screen their ids are shortened to what tells them apart in it."""
    digits = 36 if screen.width is None else _telling_apart([run.run_id for run in runs])
    rows = [
        (
            str(run.run_id)[:digits],
            status_words(run.status),
            run.agent,
            run.actor.id,
            local(run.updated_at)[:16],
            what_of(run),
        )
        for run in runs
    ]
    screen.table(RUN_COLUMNS, rows)


def _telling_apart(ids: list[UUID]) -> int:
    """How many characters of these ids are enough: their time to the millisecond, or all."""
    return 13 if len({str(run_id)[:13] for run_id in ids}) == len(ids) else 36


def show_run(screen: Screen, run: Run) -> None:
    """Show all of a run that this process can read."""
    screen.fields(
        [
            ("run", str(run.run_id)),
            ("agent", run.agent),
            ("status", status_words(run.status)),
            ("reason", "" if run.reason is None else run.reason.value),
            ("for", f"{run.actor.scope.value} {run.actor.id}"),
            ("started", local(run.created_at)),
            ("changed", local(run.updated_at)),
            ("cancel", "requested" if run.cancel_requested and not run.status.is_terminal else ""),
            ("problem", Styled(run.problem, Style.BAD) if run.problem else ""),
            ("due", "" if run.due_at is None else local(run.due_at)),
            ("purged", "" if run.purged_at is None else local(run.purged_at)),
        ]
    )
    if run.pending is not None:
        show_pending(screen, run.pending)
    if run.uncertain is not None:
        show_uncertain(screen, run.uncertain)
    if run.output is not None:
        screen.say()
        screen.say("The model's closing words", style=Style.BOLD)
        screen.say(run.output, indent=2)


def show_pending(screen: Screen, pending: Pending) -> None:
    """Show a waiting turn: all that its digest binds, and what the tools say they would do."""
    for number, call in enumerate(pending.calls, 1):
        _show_call(screen, f"call {number}", call, pending.decided)
    for rejected in pending.rejected:
        screen.say()
        screen.say(f"never runs: {rejected.tool}", style=Style.BOLD)
        screen.say(rejected.error, indent=2)
    screen.say()
    screen.fields(
        [
            ("expires", "" if pending.expires_at is None else local(pending.expires_at)),
            ("approver", "not who started the run" if pending.turn.second_approver else ""),
            ("digest", pending.digest),
        ]
    )


def _show_call(screen: Screen, title: str, call: PendingCall, decided: Mapping[UUID, CallVerdict]) -> None:
    screen.say()
    screen.say(f"{title}: {call.tool}", style=Style.BOLD)
    verdict = decided.get(call.id)
    screen.fields(
        [
            ("id", str(call.id)),
            ("effect", f"{call.effect.value} ({_EFFECTS[call.effect]})"),
            ("decision", _decision_words(verdict) if verdict or call.needs_decision else "needs none"),
            ("changed by", call.changed_by or ""),
        ],
        indent=2,
    )
    _show_arguments(screen, "arguments", call.arguments)
    if call.proposed is not None:
        _show_arguments(screen, "as the model proposed them", call.proposed)
    if call.preview:
        screen.say("preview", indent=2, style=Style.FAINT)
        for line in call.preview:
            _show_preview(screen, line)


def _show_arguments(screen: Screen, title: str, arguments: Mapping[str, JsonValue]) -> None:
    screen.say(title if arguments else f"{title}: none", indent=2, style=Style.FAINT)
    screen.fields([(name, visible_json(value)) for name, value in arguments.items()], indent=4)


def _show_preview(screen: Screen, line: str) -> None:
    style = {"+": Style.GOOD, "-": Style.BAD}.get(line[:1], Style.PLAIN)
    screen.say(line, indent=4, hang=2, style=style)


def _decision_words(decided: CallVerdict | None) -> Words:
    if decided is None:
        return Styled("waits", Style.WAITS)
    verdict = decided.verdict
    said = f"{'denied' if isinstance(verdict, Deny) else 'approved'} by {decided.actor_id}, {local(decided.at)}"
    return f"{said}: {verdict.reason}" if isinstance(verdict, Deny) and verdict.reason else said


def show_uncertain(screen: Screen, uncertain: UncertainCall) -> None:
    """Show a write that may have landed."""
    fence = uncertain.fence
    screen.say()
    screen.say(f"may have landed: {fence.tool}", style=Style.BOLD)
    screen.fields(
        [
            ("id", str(uncertain.call_id)),
            ("effect", f"{fence.effect.value} ({_EFFECTS[fence.effect]})"),
            ("attempt", str(fence.attempt)),
            ("why", uncertain.reason.value),
        ],
        indent=2,
    )
    if uncertain.call is not None:
        _show_arguments(screen, "arguments", uncertain.call.arguments)
        if uncertain.call.preview:
            screen.say("preview, as it was approved", indent=2, style=Style.FAINT)
            for line in uncertain.call.preview:
                _show_preview(screen, line)
    if isinstance(uncertain.found, Landed):
        screen.say(f"the tool finds: landed, {uncertain.found.record} {uncertain.found.kind.value}", indent=2)
    elif uncertain.found is not None:
        screen.say("the tool finds: not landed (it may still be on its way)", indent=2)
    screen.say()
    screen.fields([("digest", uncertain.digest)])
