"""The story with a crash: a process dies inside a write that must not be repeated, and another one takes over.

Killed before the site's commit, nothing has landed; only a person may say so, since a write may still be on its way.
Killed behind it, the site's history holds the key of the call: the tool's `verify` says that it landed, and no person
is needed.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

from byline import AgentRuntime, Reconciliation, Run, RunStatus
from examples.newsroom.crash import Moment, die, on_commit
from examples.newsroom.models import HistoryEntry
from examples.newsroom.seed import APPROVER
from examples.newsroom.site import Site
from examples.newsroom.story import LEASE, THE_APPROVER, Stage, close, decide_all, exit_code, tell
from examples.quickstart.terminal import Terminal, calmly, interrupts_left_to_the_child

_POLL = 0.2
"""Seconds between two looks for a run that nobody executes."""
_PATIENCE = 10 * LEASE
"""Seconds after which something is wrong."""
_WHERE = {Moment.BEFORE: "just before the site's commit", Moment.AFTER: "just behind the site's commit"}


def tell_with_crash(stage: Stage, moment: Moment) -> int:
    """Tell the story in a process that dies, and its end in this one. Returns the exit code."""
    terminal = stage.terminal
    options = [str(stage.site.path), moment.value, str(int(terminal.yes)), str(stage.model or "")]
    with interrupts_left_to_the_child():
        command = [sys.executable, "-m", __spec__.name, *options]
        died = subprocess.run(command, check=False).returncode  # noqa: S603 - this very program
    if died != -signal.SIGKILL:
        return died  # no draft was approved, so that nothing crashed; or somebody stopped it
    terminal.heading(f"Killed (SIGKILL) inside a write that makes a new record, {_WHERE[moment]}")
    terminal.say("No result was stored, nothing was announced. A new process starts.")
    runtime = stage.runtime()
    with runtime.sync:
        run = settle(runtime, take_over(runtime, terminal), stage)
        run = decide_all(runtime, run, terminal)
        close(runtime, run, stage)
    return exit_code(run)


def take_over(runtime: AgentRuntime, terminal: Terminal) -> Run:
    """Recover the run of the dead process, as soon as its lease has run out."""
    terminal.say(f"The dead one had a lease of {LEASE:g} s on the run (60 s by default), and beats no more …")
    give_up = time.monotonic() + _PATIENCE
    while not (taken := runtime.sync.recover().executed):
        if time.monotonic() > give_up:
            raise TimeoutError("the lease of the dead process did not run out")
        time.sleep(_POLL)
    return runtime.sync.get_run(taken[0])


def settle(runtime: AgentRuntime, run: Run, stage: Stage) -> Run:
    """Say how the write was settled; let a person do it if the site's history has no word on it."""
    terminal = stage.terminal
    uncertain = run.uncertain
    if run.status is not RunStatus.UNCERTAIN or uncertain is None or uncertain.call is None:
        terminal.heading("The write has landed: the site's history holds the key of this very call")
        terminal.say("So it was announced, and the run went on. Nobody had to look, and nothing was written twice.")
        return run
    tool = uncertain.call.tool
    terminal.heading(f"The run is {run.status}: {uncertain.reason}")
    terminal.say(
        f"{tool} had begun to write. Twice would make two records, so the machine does not run it again. It has"
        " asked the tool, which looked in the site's history: this call has not landed so far. That is no proof, since"
        f" a write may still be on its way. User {APPROVER} knows that the process is dead, and says what is to be"
        " done."
    )
    answer = terminal.ask("It did not land.", {"r": "run it again", "n": "leave it so"})
    verdicts = {"r": Reconciliation.run_again(uncertain.digest), "n": Reconciliation.leave_it(uncertain.digest)}
    run = runtime.sync.reconcile(run.run_id, verdicts[answer], actor=THE_APPROVER)
    terminal.say(f"Writes of {tool} in the site's history: {_landed(stage.site, str(uncertain.call_id))}.")
    return run


def _landed(site: Site, call: str) -> int:
    with site.reading() as session:
        return session.query(HistoryEntry).filter(HistoryEntry.call == call).count()


def _die(path: Path, moment: Moment, terminal: Terminal, model: str | None) -> int:
    site = Site(path)

    def die_creating(entry: HistoryEntry) -> None:
        if entry.before is None:
            die(entry)

    on_commit(site, moment, die_creating)
    return exit_code(tell(Stage(site, terminal, model)))


if __name__ == "__main__":  # the process that dies; `tell_with_crash` starts it
    _file, _moment, _yes, _model = sys.argv[1:]
    sys.exit(calmly(lambda: _die(Path(_file), Moment(_moment), Terminal(yes=_yes == "1"), _model or None)))
