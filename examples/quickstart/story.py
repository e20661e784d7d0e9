"""The story: somebody asks, the agent wants to write, a person decides, the write lands and is announced."""

import html
from datetime import UTC
from pathlib import Path

from byline import (
    AfterAiRecordWrittenEvent,
    AgentRuntime,
    AiActorContext,
    Decision,
    Grant,
    InvalidArguments,
    PendingCall,
    Run,
    RunStatus,
    ToolEffect,
)
from examples.quickstart.application import build_runtime
from examples.quickstart.model import PROMPT
from examples.quickstart.seed import APPROVER, EDITOR
from examples.quickstart.site import Site
from examples.quickstart.terminal import Terminal

PAGE = 42
THE_APPROVER = AiActorContext.user(APPROVER, grants={Grant.APPROVE, Grant.RECONCILE})
"""Who sits at this terminal. In your application this comes from the session, never from the request."""

_EFFECTS = {
    ToolEffect.IDEMPOTENT_WRITE: "idempotent: twice is as good as once",
    ToolEffect.NON_IDEMPOTENT_WRITE: "not idempotent: twice would make two",
}
_MAY_BE_CHANGED = {"update_page_metadata": "description", "add_content_element": "body"}


def print_announcement(event: AfterAiRecordWrittenEvent) -> None:
    """Print what every listener is told, all of it."""
    print(f"announced run={event.correlation_id} record={event.record} kind={event.kind}", flush=True)


def open_runtime(site: Site, folder: Path) -> AgentRuntime:
    """Build the application's runtime with one listener more: it prints."""
    return build_runtime(site, folder, listeners=[print_announcement])


def tell(site: Site, folder: Path, terminal: Terminal) -> Run:
    """Tell the story from the prompt to the agent's last words."""
    runtime = open_runtime(site, folder)
    with runtime.sync:  # a terminal waits for its person: synchronous code; `async with runtime:` is the other way
        terminal.heading(f"User {EDITOR} asks")
        terminal.say(PROMPT)
        run = runtime.sync.run("editor", PROMPT, actor=AiActorContext.user(EDITOR))
        while run.status is RunStatus.AWAITING_APPROVAL:
            run = decide(runtime, run, terminal)
        close(runtime, site, run, terminal)
    return run


def decide(runtime: AgentRuntime, run: Run, terminal: Terminal) -> Run:
    """Show the approver what waits, and take their decision."""
    assert run.pending is not None
    call = run.pending.calls[0]  # the script makes one call at a time; a turn may hold more
    terminal.heading(f"The agent wants to write. Nothing is written before user {APPROVER} has decided.")
    terminal.say(f"{call.tool} ({_EFFECTS[call.effect]})")
    for shown in call.preview:
        terminal.diff(shown)
    decision = _asked(run.pending.digest, call, terminal)
    try:
        return runtime.sync.decide(run.run_id, decision, actor=THE_APPROVER)
    except InvalidArguments as error:
        terminal.say(f"That does not fit: {error}. Nothing was decided.")
        return run


def _asked(digest: str, call: PendingCall, terminal: Terminal) -> Decision:
    name = _MAY_BE_CHANGED[call.tool]
    answer = terminal.ask("Write it?", {"y": "yes", "n": "no", "e": f"change the {name}"})
    if answer == "n":
        return Decision.deny(digest, terminal.ask_words("Why not? The agent reads it:"))
    if answer == "e":
        words = terminal.ask_words(f"The new {name}:")
        return Decision.change(digest, call.id, {**call.arguments, name: words})
    return Decision.approve(digest)


def close(runtime: AgentRuntime, site: Site, run: Run, terminal: Terminal) -> None:
    """Show the agent's last words, the page with its mark, and the feed."""
    terminal.heading(f"The run is {run.status}. The agent says")
    terminal.say(run.output or "(nothing)")
    terminal.heading("The page as visitors get it")
    terminal.say(as_html(site, PAGE))
    drafts = [e for e in site.page(PAGE, reader=APPROVER).elements if not e.published]
    for draft in drafts:
        mark = site.mark(f"content_elements:{draft.id}")
        terminal.say(
            f"(Not public yet: draft {draft.id}, “{draft.heading}”. Its mark: {mark.words if mark else 'none'})"
        )
    terminal.heading("The feed: which records did an AI write? (times in UTC)")
    for fact in runtime.sync.writes():
        terminal.say(f"{fact.at.astimezone(UTC):%H:%M:%S}  {fact.record!s:<18}  {fact.kind}  {fact.correlation_id}")
    if not runtime.sync.writes(limit=1):
        terminal.say("(none)")


def exit_code(run: Run) -> int:
    """Return 0 for a run that was completed."""
    return 0 if run.status is RunStatus.COMPLETED else 1


def as_html(site: Site, page_id: int) -> str:
    """Render a page for visitors, with its mark for them and for their machines."""
    page, mark = site.visible(page_id), site.mark(f"pages:{page_id}")
    lines = ["<article>" if mark is None else f'<article data-digital-source-type="{mark.source}">']
    lines += [f"  <h1>{html.escape(page.title)}</h1>", f"  <p>{html.escape(page.description)}</p>"]
    if mark is not None:
        lines.append(f'  <p class="ai-mark">{mark.words}</p>')
    lines += [f"  <h2>{html.escape(element.heading)}</h2> …" for element in page.elements]
    return "\n".join([*lines, "</article>"])
