"""The story: somebody asks, the agent looks and wants to write, a person decides, the writes land and are announced."""

from dataclasses import dataclass
from datetime import UTC

from sqlalchemy import select

from byline import (
    AfterAiRecordWrittenEvent,
    AgentRuntime,
    AiActorContext,
    Approve,
    ChatModel,
    Decision,
    Deny,
    Grant,
    InvalidArguments,
    PendingCall,
    Run,
    RunStatus,
    ToolEffect,
)
from examples.newsroom.application import AGENT, make_runtime
from examples.newsroom.label import TransparencyLabel, labels_of
from examples.newsroom.model import PROMPT
from examples.newsroom.models import ContentElement, Page
from examples.newsroom.seed import APPROVER, EDITOR
from examples.newsroom.site import Site
from examples.newsroom.tools.writing import reference
from examples.newsroom.visitors import show
from examples.newsroom.web import label_lines, statement
from examples.quickstart.terminal import Terminal

LEASE = 3.0
"""Seconds. Short, so that a demo of a crash need not wait for long; 60, the default, suits real runs better."""
BEAT = 1.0
THE_APPROVER = AiActorContext.user(APPROVER, grants={Grant.APPROVE, Grant.RECONCILE})
"""Who sits at this terminal. In your application this comes from the session, never from the request."""

_EFFECTS = {
    ToolEffect.READ_ONLY: "writes nothing",
    ToolEffect.IDEMPOTENT_WRITE: "idempotent: twice is as good as once",
    ToolEffect.NON_IDEMPOTENT_WRITE: "not idempotent: twice would make two",
}
_MAY_BE_CHANGED = {
    "set_page_metadata": "description",
    "set_alternative_text": "alternative_text",
    "create_page_draft": "description",
    "create_content_element_draft": "body",
    "create_translation_draft": "description",
    "attach_file": "alternative_text",
}


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the story plays: the site, the terminal, and the model, or its name; None for the scripted one."""

    site: Site
    terminal: Terminal
    model: ChatModel | str | None = None

    def runtime(self) -> AgentRuntime:
        """Build the application's runtime with one listener more: it prints."""
        label = TransparencyLabel(self.site)
        return make_runtime(self.site, model=self.model, listeners=[label, print_announcement], lease=LEASE, beat=BEAT)


def print_announcement(event: AfterAiRecordWrittenEvent) -> None:
    """Print what every listener is told, all of it."""
    print(f"announced run={event.correlation_id} record={event.record} kind={event.kind}", flush=True)


def tell(stage: Stage) -> Run:
    """Tell the story from the prompt to the agent's last words."""
    runtime = stage.runtime()
    with runtime.sync:  # a terminal waits for its person: synchronous code; `async with runtime:` is the other way
        stage.terminal.heading(f"User {EDITOR} asks")
        stage.terminal.say(PROMPT)
        run = runtime.sync.run(AGENT, PROMPT, actor=AiActorContext.user(EDITOR))
        run = decide_all(runtime, run, stage.terminal)
        close(runtime, run, stage)
    return run


def decide_all(runtime: AgentRuntime, run: Run, terminal: Terminal) -> Run:
    """Ask the approver as long as something waits."""
    while run.status is RunStatus.AWAITING_APPROVAL:
        run = decide(runtime, run, terminal)
    return run


def decide(runtime: AgentRuntime, run: Run, terminal: Terminal) -> Run:
    """Show the approver the next call that waits, and take their decision on it."""
    pending = run.pending
    assert pending is not None
    call = next(call for call in pending.calls if call.id in pending.undecided)
    terminal.heading(f"The agent wants to write. Nothing is written before user {APPROVER} has decided.")
    terminal.say(f"{call.tool} ({_EFFECTS[call.effect]})")
    for shown in call.preview:
        terminal.diff(shown)
    decision = _asked(pending.digest, call, terminal)
    try:
        return runtime.sync.decide(run.run_id, decision, actor=THE_APPROVER)
    except InvalidArguments as error:
        terminal.say(f"That does not fit: {error}. Nothing was decided.")
        return run


def _asked(digest: str, call: PendingCall, terminal: Terminal) -> Decision:
    name = _MAY_BE_CHANGED.get(call.tool)
    changing = {} if name is None else {"e": f"change the {name.replace('_', ' ')}"}
    answer = terminal.ask("Write it?", {"y": "yes", "n": "no", **changing})
    if answer == "e" and name is not None:
        words = terminal.ask_words(f"The new {name.replace('_', ' ')}:")
        return Decision.change(digest, call.id, {**call.arguments, name: words})
    verdict = Deny(terminal.ask_words("Why not? The agent reads it:")) if answer == "n" else Approve()
    return Decision.per_call(digest, {call.id: verdict})


def close(runtime: AgentRuntime, run: Run, stage: Stage) -> None:
    """Show the agent's last words, what visitors see of it, what waits to be published, and the feed."""
    terminal = stage.terminal
    if run.status is RunStatus.DEAD_LETTER:
        terminal.heading(f"The run is {run.status}: {run.reason}")
        steps = runtime.sync.list_steps(run.run_id)
        terminal.say(next((step.detail for step in reversed(steps) if step.detail), "(no reason is stored)"))
    else:
        terminal.heading(f"The run is {run.status}. The agent says")
        terminal.say(run.output or run.problem or (f"(nothing: {run.reason})" if run.reason else "(nothing)"))
    facts = runtime.sync.writes()
    terminal.heading("What visitors get, where an AI had a part in it")
    terminal.say("\n".join(visible(stage.site)) or "(nothing)")
    for line in drafts(stage.site):
        terminal.say(f"(Not public before a person publishes it: {line})")
    terminal.heading("The feed: which records did an AI write? (times in UTC)")
    for fact in facts:
        terminal.say(f"{fact.at.astimezone(UTC):%H:%M:%S}  {fact.record!s:<19}  {fact.kind}  {fact.correlation_id}")
    if not facts:
        terminal.say("(none)")


def exit_code(run: Run) -> int:
    """Return 0 for a run that was completed."""
    return 0 if run.status is RunStatus.COMPLETED else 1


def visible(site: Site) -> list[str]:
    """Say of each labelled page what its visitors read, and what their machines do."""
    lines: list[str] = []
    with site.reading() as session:
        for page in session.scalars(select(Page).order_by(Page.id)):
            shown = show(session, page.address, page.language) if page.address else None
            if shown is not None and shown.labels:
                lines += [
                    f"/{shown.language}/{shown.slug}  {shown.title}",
                    f"  {shown.description or '(no description)'}",
                ]
                pictures = [picture for passage in (*shown.main, *shown.aside) for picture in passage.pictures]
                lines += [f"  [{picture.name}: {picture.text or 'no alternative text'}]" for picture in pictures]
                lines += [f"  * {line}" for line in label_lines(shown)]
                lines.append(f"  for machines: digitalSourceType {statement(shown)['digitalSourceType']}")
    return lines


def drafts(site: Site) -> list[str]:
    """Name each hidden record with its label."""
    lines: list[str] = []
    with site.reading() as session:
        pages = session.scalars(select(Page).where(Page.hidden).order_by(Page.id)).all()
        elements = session.scalars(
            select(ContentElement).where(ContentElement.hidden).order_by(ContentElement.id)
        ).all()
        named: list[tuple[Page | ContentElement, str]] = [(page, page.title) for page in pages]
        named += [(element, element.heading or "without a heading") for element in elements]
        for record, name in named:
            labels = labels_of(session, [reference(record)])
            lines.append(f"{reference(record)}, “{name}”, labelled {labels[0].kind if labels else 'by nobody'}")
    return lines
