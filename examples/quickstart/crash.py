"""The story with a crash: a process dies inside the write that must not be repeated, and another one takes over."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from byline import AgentRuntime, Reconciliation, RecordReference, Run, WriteKind
from examples.quickstart.application import LEASE
from examples.quickstart.seed import APPROVER
from examples.quickstart.site import Element, Site
from examples.quickstart.story import PAGE, THE_APPROVER, close, exit_code, open_runtime, tell
from examples.quickstart.terminal import Terminal, calmly, interrupts_left_to_the_child

_POLL = 0.2
"""Seconds between two looks for a run that nobody executes."""
_PATIENCE = 10 * LEASE
"""Seconds after which something is wrong."""


class DeadlySite(Site):
    """A site in a process that is killed as soon as a draft has been committed."""

    def add_element(self, page_id: int, heading: str, body: str, *, editor: str) -> Element:
        """Add the draft, and never return."""
        added = super().add_element(page_id, heading, body, editor=editor)
        os.kill(os.getpid(), signal.SIGKILL)
        return added


def tell_with_crash(site: Site, folder: Path, terminal: Terminal) -> int:
    """Tell the story in a process that dies, and its end in this one. Returns the exit code."""
    command = [sys.executable, "-m", __spec__.name, str(folder), *(["--yes"] if terminal.yes else [])]
    with interrupts_left_to_the_child():
        died = subprocess.run(command, check=False).returncode  # noqa: S603 - this very program
    if died != -signal.SIGKILL:
        return died  # the draft was denied, so that nothing crashed; or somebody stopped it
    terminal.heading("Killed (SIGKILL) inside add_content_element, behind the site's commit")
    terminal.say("No result was stored, nothing was announced. A new process starts.")
    runtime = open_runtime(site, folder)
    with runtime.sync:
        run = settle(runtime, site, take_over(runtime, terminal), terminal)
        close(runtime, site, run, terminal)
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


def settle(runtime: AgentRuntime, site: Site, run: Run, terminal: Terminal) -> Run:
    """Let a person look at the site, and say what became of the write."""
    uncertain = run.uncertain
    assert uncertain is not None
    assert uncertain.call is not None
    wanted = uncertain.call.arguments
    terminal.heading(f"The run is {run.status}: {uncertain.reason}")
    terminal.say(
        f"{uncertain.call.tool} had begun to write. Twice would make two drafts, so the machine does not run it again:"
        f" user {APPROVER} looks at the site."
    )
    same = _drafts(site, wanted)
    for element in same:
        terminal.say(f"There is a draft on page {PAGE}: {element.id}, “{element.heading}”, with the agent's words.")
    if not same:
        terminal.say(f"There is no such draft on page {PAGE}.")
    choices = {"n": "no, it did not (and leave it so)", "r": "no, it did not (and run it again)"}
    answer = terminal.ask("Did it land?", {"y": "yes, that is it", **choices} if same else choices)
    verdict = {"n": Reconciliation.leave_it(uncertain.digest), "r": Reconciliation.run_again(uncertain.digest)}
    if same:
        record = RecordReference("content_elements", same[-1].id)
        verdict["y"] = Reconciliation.landed(uncertain.digest, record, WriteKind.CREATED)
    run = runtime.sync.reconcile(run.run_id, verdict[answer], actor=THE_APPROVER)
    announced = [fact for fact in runtime.sync.writes(table="content_elements") if fact.correlation_id == run.run_id]
    drafts = _drafts(site, wanted)
    terminal.say(f"Drafts with these words on the site: {len(drafts)}. Announced: {len(announced)}.")
    for draft in drafts:
        if site.mark(f"content_elements:{draft.id}") is None:
            terminal.say(f"Draft {draft.id} stands unmarked: by what you said, it is not the agent's.")
    return run


def _drafts(site: Site, wanted: Mapping[str, object]) -> list[Element]:
    """Find the drafts that hold the words of the call."""
    elements = site.page(PAGE, reader=APPROVER).elements
    return [e for e in elements if not e.published and (e.heading, e.body) == (wanted["heading"], wanted["body"])]


def _die(folder: Path, terminal: Terminal) -> int:
    return exit_code(tell(DeadlySite(folder / "site.db"), folder, terminal))


if __name__ == "__main__":  # the process that dies; `tell_with_crash` starts it
    sys.exit(calmly(lambda: _die(Path(sys.argv[1]), Terminal(yes="--yes" in sys.argv))))
