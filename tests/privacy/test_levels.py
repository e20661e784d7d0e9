"""What a run leaves behind at each level; the strictest level wins; what no list names is not stored."""

import ast
import inspect
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

import byline
from byline import (
    Agent,
    AgentRuntime,
    ConfigurationError,
    Decision,
    ModelAnswer,
    ModelError,
    PrivacyLevel,
    Run,
    RunStatus,
    StepKind,
    ToolContext,
    ToolEffect,
    ToolResult,
    WriteKind,
    tool,
)
from byline.approval.decision import Verdict
from byline.models.scripted import Turn
from byline.privacy import strictest
from byline.runs.keeping import ALLOWED, kept
from byline.runs.steps import NewStep
from byline.testing import ScriptedModel, call
from byline.tools.result import WriteTarget
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import Clock, die_after_claim, store_of, waiting

NONE, METADATA, REDACTED, FULL = PrivacyLevel
WHO = "The night desk, night.desk@example.org"
SET = call("set_description", page_id=42, description=f"By {WHO}.")
ADD = call("add_element", page_id=42, text="Open on Monday.")
SCRIPT: list[Turn] = [
    ModelAnswer(f"I ask {WHO}.", calls=(call("read_page", page_id=42),)),
    [SET, ADD],
    f"Done by {WHO}.",
]
NEEDED = {
    StepKind.MODEL: set[str](),
    StepKind.SUSPENDED: {"digest", "by"},
    StepKind.TOOL: {"outcome", "by", "attempt"},
    StepKind.WRITE: set[str](),
    StepKind.SETTLED: {"status", "reason"},
}


async def played(runtime: AgentRuntime) -> Run:
    run = await runtime.run("editor", f"Greet {WHO}.", actor=ALICE)
    assert run.pending is not None
    first, second = run.pending.calls
    verdicts: dict[UUID, Verdict] = {first.id: byline.Approve(), second.id: byline.Deny(f"{WHO} said no.")}
    run = await runtime.decide(run.run_id, Decision.per_call(run.pending.digest, verdicts), actor=BOB)
    assert run.status is RunStatus.COMPLETED
    return run


def details(host: Host) -> int:
    with closing(sqlite3.connect(host.path.parent / "byline.db")) as database:
        return int(database.execute("select count(detail) from byline_step").fetchone()[0])


@pytest.mark.promise("P23")
async def test_none_keeps_what_promises_need_and_nothing_else(host: Host) -> None:
    async with host.runtime(SCRIPT, privacy=NONE) as runtime:
        run = await runtime.run("editor", "Greet.", actor=ALICE)
        assert (details(host), run.pending is not None) == (0, True)
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        steps = await runtime.list_steps(run.run_id)
        for step in steps:
            assert step.payload.keys() <= NEEDED[step.kind], step
            assert step.detail is None
        assert [step.kind for step in steps] == [
            StepKind.MODEL, StepKind.TOOL, StepKind.MODEL, StepKind.SUSPENDED, StepKind.TOOL, StepKind.WRITE,
            StepKind.TOOL, StepKind.WRITE, StepKind.MODEL, StepKind.SETTLED,
        ]  # fmt: skip
        ended = [(step.payload["outcome"], step.payload["by"]) for step in steps if step.kind is StepKind.TOOL]
        assert ended == [("succeeded", None), ("succeeded", BOB.id), ("succeeded", BOB.id)]
        assert [str(fact.record) for fact in await runtime.writes()] == ["pages:42", "elements:1"]
        assert (await runtime.get_run(run.run_id)).actor == ALICE


@pytest.mark.promise("P23")
async def test_none_keeps_no_words_of_an_error(host: Host) -> None:
    async with host.runtime([ModelError(f"{WHO} has no quota.")], agent={"privacy": NONE}) as runtime:
        run = await runtime.run("editor", "Greet.", actor=ALICE)
        assert run.status is RunStatus.DEAD_LETTER
        assert [(dict(step.payload), step.detail) for step in await runtime.list_steps(run.run_id)] == [
            ({}, None),
            ({"status": "dead_letter", "reason": "not_retryable"}, None),
        ]


@pytest.mark.promise("P23")
async def test_metadata_is_the_default_and_keeps_names_counts_and_outcomes(host: Host) -> None:
    assert inspect.signature(AgentRuntime).parameters["privacy"].default is METADATA
    async with host.runtime(SCRIPT) as runtime:
        run = await played(runtime)
        steps = await runtime.list_steps(run.run_id)
        assert [step.payload["tool"] for step in steps if step.kind is StepKind.TOOL] == [
            "read_page", "set_description", "add_element",
        ]  # fmt: skip
        assert "input_tokens" in steps[0].payload
        assert (details(host), WHO in repr(steps)) == (0, False)


@pytest.mark.promise("P23")
@pytest.mark.parametrize("level", [REDACTED, FULL])
async def test_content_stays_at_the_levels_that_keep_it(host: Host, level: PrivacyLevel) -> None:
    async with host.runtime(SCRIPT, privacy=level) as runtime:
        run = await played(runtime)
        by_kind: dict[StepKind, list[str]] = {}
        for step in await runtime.list_steps(run.run_id):
            by_kind.setdefault(step.kind, []).append(step.detail or "")
    told = WHO if level is FULL else "The night desk, [email]"
    asked, turn, done = by_kind[StepKind.MODEL]
    assert asked == f'I ask {told}.\nread_page {{"page_id": 42}}'
    assert told in turn
    assert "set_description" in turn
    assert done == f"Done by {told}."
    assert f"+ By {told}." in by_kind[StepKind.SUSPENDED][0]  # its preview
    read, written, denied = by_kind[StepKind.TOOL]
    assert (read, written) == ("About us: ", "Set.")
    assert told in denied
    files = [path.read_bytes() for path in host.path.parent.glob("byline.db*")]
    assert not any(b"The night desk" in data for data in files), "content is sealed at every level"


@pytest.mark.promise("P23")
@pytest.mark.parametrize("first", PrivacyLevel)
@pytest.mark.parametrize("second", PrivacyLevel)
async def test_the_strictest_of_runtime_and_agent_wins(host: Host, first: PrivacyLevel, second: PrivacyLevel) -> None:
    async with host.runtime([ModelAnswer(f"{WHO}.")], privacy=first, agent={"privacy": second}) as runtime:
        run = await runtime.run("editor", "Greet.", actor=ALICE)
        step, _ = await runtime.list_steps(run.run_id)
    expected = strictest(first, second)
    assert expected == min(first, second, key=list(PrivacyLevel).index)
    assert step.detail == {FULL: f"{WHO}.", REDACTED: "The night desk, [email]."}.get(expected)
    assert ("calls" in step.payload) is (expected is not NONE)


@pytest.mark.promise("P23")
@pytest.mark.parametrize("stricter", [NONE, METADATA, REDACTED])
async def test_a_stricter_worker_wins(host: Host, stricter: PrivacyLevel) -> None:
    """What was written before it came goes as well, whatever the one that ends the run would have kept."""
    async with host.runtime(SCRIPT, privacy=FULL) as runtime:
        run = await runtime.run("editor", "Greet.", actor=ALICE)
        assert details(host) > 0
    async with host.runtime(ScriptedModel(SCRIPT), privacy=stricter, execution="queued") as runtime:
        await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        run = await runtime.execute(run.run_id)
        assert run.status is RunStatus.COMPLETED
        steps = await runtime.list_steps(run.run_id)
    assert [step.detail for step in steps[:4]] == [None] * 4
    later = [step.detail for step in steps[4:] if step.detail]
    assert later == (["Set.", "Added.", "Done by The night desk, [email]."] if stricter is REDACTED else [])


@pytest.mark.promise("P23")
async def test_a_laxer_worker_loosens_nothing(host: Host) -> None:
    clock = Clock()
    async with host.runtime(SCRIPT, store=store_of(host, clock), privacy=NONE, execution="queued") as runtime:
        run = await runtime.enqueue("editor", "Greet.", actor=ALICE)
    die_after_claim(host, run.run_id, clock)
    async with host.runtime(SCRIPT, store=store_of(host, clock), privacy=FULL, execution="queued") as runtime:
        run = await runtime.execute(run.run_id)
        assert run.status is RunStatus.AWAITING_APPROVAL
        run = await runtime.cancel(run.run_id, actor=ALICE)
        for step in await runtime.list_steps(run.run_id):
            assert (step.payload.keys() <= NEEDED[step.kind], step.detail) == (True, None)


@pytest.mark.promise("P23")
@pytest.mark.parametrize("level", PrivacyLevel)
@pytest.mark.parametrize("kind", StepKind)
def test_what_no_list_names_is_not_stored(kind: StepKind, level: PrivacyLevel) -> None:
    target = None
    if kind is StepKind.WRITE:
        target = WriteTarget(byline.RecordReference("pages", 42), WriteKind.UPDATED)
    allowed = ALLOWED[level][kind]
    step = NewStep(kind, uuid7(), {**dict.fromkeys(allowed, 1), "prompt": WHO, "arguments_": WHO}, target, "d", "c")
    stored = kept(step, level)
    assert stored.payload.keys() == allowed
    assert (stored.kind, stored.call_id, stored.target, stored.content) == (kind, step.call_id, target, None)


def produced() -> Iterator[tuple[str, str, str]]:
    """Every literal payload key in the package, with the kind of the step that it is put into."""
    for path in sorted(Path(byline.__file__).parent.rglob("*.py")):
        if "testing" in path.parts:
            continue
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            payloads = {
                node.target.id
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
                else "": node.value
                for node in ast.walk(function)
                if isinstance(node, ast.AnnAssign)
            }
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "NewStep":
                    kind = node.args[0]
                    assert isinstance(kind, ast.Attribute), f"{path.name}: a step names its kind"
                    named = {keyword.arg: keyword.value for keyword in node.keywords}
                    payload = named.get("payload", node.args[2] if len(node.args) > 2 else None)
                    if isinstance(payload, ast.Name):
                        payload = payloads[payload.id]
                    if payload is None:
                        continue
                    assert isinstance(payload, ast.Dict), f"{path.name}: a payload is written out where it is made"
                    for key in payload.keys:
                        assert isinstance(key, ast.Constant), f"{path.name}: a payload's keys are written out"
                        yield path.name, kind.attr, str(key.value)


@pytest.mark.promise("P23")
def test_every_producer_is_on_the_list_and_every_key_has_one() -> None:
    found = list(produced())
    for path, kind, key in found:
        assert key in ALLOWED[METADATA][StepKind[kind]], f"{path}: {kind} puts {key!r} into its payload"
    made = {(StepKind[kind], key) for _, kind, key in found}
    listed = {(kind, key) for kind, keys in ALLOWED[FULL].items() for key in keys}
    assert listed - made == set(), "these keys are allowed, and nothing writes them"


def test_the_lists_grow_from_level_to_level_and_name_every_kind() -> None:
    assert set(ALLOWED) == set(PrivacyLevel)
    for stricter, laxer in ((NONE, METADATA), (METADATA, REDACTED), (REDACTED, FULL)):
        assert set(ALLOWED[stricter]) == set(StepKind)
        assert all(ALLOWED[stricter][kind] <= ALLOWED[laxer][kind] for kind in StepKind)


@pytest.mark.promise("P23")
@pytest.mark.parametrize("value", ["everything", "", None, True, 3, "FULL"])
def test_what_is_no_level_is_refused(host: Host, value: object) -> None:
    with pytest.raises(ConfigurationError, match="none, metadata, redacted, full"):
        host.runtime([], privacy=value)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    model = ScriptedModel([])
    with pytest.raises(ConfigurationError, match="agent editor"):
        Agent(name="editor", model=model, privacy=value)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_a_level_may_be_named_by_its_text(host: Host) -> None:
    level: PrivacyLevel = "none"  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    async with host.runtime(["Done."], privacy=level) as runtime:
        run = await runtime.run("editor", "Greet.", actor=ALICE)
        first, _ = await runtime.list_steps(run.run_id)
        assert dict(first.payload) == {}


@pytest.mark.promise("P23")
@pytest.mark.parametrize("level", PrivacyLevel)
async def test_a_run_that_lied_or_was_denied_ends_the_same_at_every_level(host: Host, level: PrivacyLevel) -> None:
    @tool(effect=ToolEffect.READ_ONLY)
    def read_page(context: ToolContext, page_id: int) -> ToolResult:
        """Read a page, and write it."""
        return ToolResult.text(WHO).with_write_target(byline.RecordReference("pages", page_id), WriteKind.UPDATED)

    async with host.runtime([[call("read_page", page_id=42)]], tools=[read_page], privacy=level) as runtime:
        run = await runtime.run("editor", "Greet.", actor=ALICE)
        assert (run.status, str(run.reason)) == (RunStatus.FAILED, "read_only_tool_wrote")
        assert [str(fact.record) for fact in await runtime.writes()] == ["pages:42"]
        lied = next(step for step in await runtime.list_steps(run.run_id) if step.kind is StepKind.TOOL)
        assert lied.payload["outcome"] == "succeeded"
        assert lied.detail == {FULL: WHO, REDACTED: "The night desk, [email]"}.get(level)
