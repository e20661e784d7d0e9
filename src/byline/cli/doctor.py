"""`byline doctor`: what is wrong, what waits, and what to do about it. It changes nothing."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import typer

from byline.cli.application import Application, ApplicationError, load
from byline.cli.as_json import print_json
from byline.cli.db import as_sql, is_in_memory, is_there
from byline.cli.describing import what_of
from byline.cli.failing import ExitCode
from byline.cli.options import AsJson
from byline.cli.screen import Screen, Style, Styled
from byline.errors import BylineError, StoreError
from byline.runs.run import Run
from byline.runs.status import RunStatus, TerminationReason
from byline.runtime.runtime import MAX_PAGE
from byline.runtime.sync import SyncRuntime


class Level(StrEnum):
    """How much a finding matters."""

    FINE = "fine"
    NOTE = "note"
    """Worth knowing; nobody has to do anything."""
    PERSON = "person"
    """Somebody has to do something: the command ends with 1."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what was found, and what to do about it."""

    level: Level
    subject: str
    what: str
    to_do: str = ""


_STYLES = {Level.FINE: Style.GOOD, Level.NOTE: Style.WAITS, Level.PERSON: Style.BAD}


def doctor(context: typer.Context, as_json: AsJson = False) -> None:
    """Look at the application, its store and its runs. It ends with 1 if something needs a person."""
    found = list(_examine(load(context)))
    if as_json:
        for finding in found:
            print_json(
                {"level": finding.level.value, "subject": finding.subject, "what": finding.what, "to_do": finding.to_do}
            )
    else:
        screen = Screen()
        for finding in found:
            screen.fields([(f"{finding.level.value:6} {finding.subject:12}", _words(finding))])
            if finding.to_do:
                screen.say(f"Next: {finding.to_do}", indent=21, style=Style.FAINT)
    if any(finding.level is Level.PERSON for finding in found):
        raise typer.Exit(ExitCode.REFUSED)


def _words(finding: Finding) -> Styled:
    return Styled(finding.what, _STYLES[finding.level])


def _examine(application: Application) -> Iterator[Finding]:
    yield _agents(application)
    yield _actor(application)
    schema = _schema(application)
    yield schema
    if schema.level is not Level.FINE:
        return
    try:
        with application.opened() as runtime:
            yield Finding(Level.FINE, "store", "it answers, and its keys are here")
            yield from _runs(application, runtime)
            yield _conflicts(runtime)
    except StoreError as error:
        yield Finding(Level.PERSON, "store", str(error), "mend that, then look again")


def _agents(application: Application) -> Finding:
    names = ", ".join(application.runtime.agents)
    if names:
        return Finding(Level.FINE, "agents", names)
    return Finding(
        Level.NOTE, "agents", "none is loaded", "without an agent, runs can be read, denied and cancelled only"
    )


def _actor(application: Application) -> Finding:
    try:
        actor = application.actor()
    except ApplicationError as error:
        return Finding(Level.NOTE, "actor", str(error), "until then, commands that start, decide or cancel refuse")
    except BylineError as error:
        return Finding(Level.PERSON, "actor", str(error), "mend cli_actor()")
    grants = ", ".join(sorted(actor.grants)) or "none"
    return Finding(Level.FINE, "actor", f"{actor.scope.value} {actor.id}; grants: {grants}")


def _schema(application: Application) -> Finding:
    """Look at the schema before the store is opened: that would upgrade an embedded file, or make it."""
    from byline.store.tables import REVISION

    store = as_sql(application.runtime.store)
    if store is None:
        return Finding(Level.FINE, "schema", "the application's own store")
    if is_in_memory(store):
        return Finding(Level.FINE, "schema", "in memory: gone when the process ends")
    if not is_there(store):
        return Finding(Level.NOTE, "schema", "there is no store yet", "the first run makes it")
    try:
        revision = store.schema_revision()
    except StoreError as error:
        return Finding(Level.PERSON, "schema", str(error), "mend that, then look again")
    if revision == REVISION:
        return Finding(Level.FINE, "schema", f"revision {revision}")
    return Finding(Level.PERSON, "schema", f"revision {revision or 'none'}, wanted: {REVISION}", "byline db upgrade")


def _runs(application: Application, runtime: SyncRuntime) -> Iterator[Finding]:
    standing = {
        status: list(runtime.list_runs(status=status, limit=MAX_PAGE)) for status in RunStatus if not status.is_terminal
    }
    every = [run for runs in standing.values() for run in runs]
    due = application.runtime.store.claimable(MAX_PAGE, agents={run.agent for run in every})
    stale = {run_id for _, run_id in due} & {run.run_id for run in standing[RunStatus.RUNNING]}
    yield _counted(
        "waiting", standing[RunStatus.AWAITING_APPROVAL], Level.NOTE, "byline runs --status awaiting_approval"
    )
    yield _counted(
        "queued", standing[RunStatus.QUEUED], Level.NOTE, "a worker takes them up; without one, byline recover does"
    )
    running = [run for run in standing[RunStatus.RUNNING] if run.run_id not in stale]
    yield _counted("running", running, Level.NOTE, "")
    left = [run for run in standing[RunStatus.RUNNING] if run.run_id in stale]
    yield _counted("stale", left, Level.PERSON, "their process is dead: byline recover goes on with them")
    yield _counted(
        "uncertain",
        standing[RunStatus.UNCERTAIN],
        Level.PERSON,
        "byline runs --status uncertain; look at the record, then byline reconcile RUN",
    )
    yield _counted(
        "dead letter",
        standing[RunStatus.DEAD_LETTER],
        Level.PERSON,
        "byline runs --status dead_letter; byline retry RUN, or byline cancel RUN",
    )
    yield from _problems(application, every)


def _counted(subject: str, runs: list[Run], level: Level, to_do: str) -> Finding:
    if not runs:
        return Finding(Level.FINE, subject, "none")
    more = " or more" if len(runs) == MAX_PAGE else ""
    return Finding(level, subject, f"{len(runs)}{more}, the oldest: {runs[-1].run_id}", to_do)


def _problems(application: Application, runs: list[Run]) -> Iterator[Finding]:
    """Runs that this process cannot read or execute."""
    elsewhere = Counter(run.agent for run in runs if run.agent not in application.runtime.agents)
    for agent, count in elsewhere.items():
        yield Finding(
            Level.NOTE,
            "other agent",
            f"{count} run{'s' if count > 1 else ''} of agent {agent!r}, which is not loaded here",
            "a process that has it goes on with them; from here they can be read, denied and cancelled",
        )
    again = [run for run in runs if _is_asked_again(run)]
    if again:
        first = min(again, key=lambda run: run.due_at or run.updated_at)
        what = f"{len(again)} run{'s' if len(again) > 1 else ''} whose model failed; the first that is asked again: "
        yield Finding(Level.NOTE, "model", f"{what}{first.run_id}, {what_of(first)}", "byline steps RUN says more")
    for run in runs:
        if run.problem is not None and run.agent in application.runtime.agents and not _is_asked_again(run):
            yield Finding(Level.PERSON, "unreadable", run.problem, f"byline show {run.run_id}")


def _is_asked_again(run: Run) -> bool:
    """Whether a run waits for its model, which failed. A dead letter of an earlier version may have the same reason."""
    return run.status is RunStatus.QUEUED and run.reason is TerminationReason.MODEL_FAILED


def _conflicts(runtime: SyncRuntime) -> Finding:
    found = runtime.late_reports(conflicts_only=True, limit=MAX_PAGE)
    if not found:
        return Finding(Level.FINE, "conflicts", "none")
    what = ", ".join(f"{report.target.record} in run {report.claim.run_id}" for report in found[:5])
    return Finding(
        Level.PERSON,
        "conflicts",
        f"{len(found)} write{'s' if len(found) > 1 else ''} landed though decided otherwise: {what}",
        "look at these records; byline steps RUN says what was decided",
    )
