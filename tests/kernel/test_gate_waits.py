"""A write waits for a person, and the whole turn waits with it."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pytest
from pydantic import JsonValue

from byline import (
    Agent,
    AgentRuntime,
    AiActorContext,
    ConfigurationError,
    Decision,
    Grant,
    ModelCall,
    RecordReference,
    RunStatus,
    StepKind,
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    ToolSpec,
    WriteKind,
    tool,
)
from byline.testing import ScriptedModel, allow_all, call
from byline.tools.protocol import Verification
from tests.host import ALICE, BOB, Host
from tests.kernel.gate_entries import ADD, ALIVE, READ, SET, Entry, digest, entered, pending

WRITES = {"idempotent": (SET, "pages:42", "updated"), "non-idempotent": (ADD, "elements:1", "created")}


@pytest.mark.promise("P11", "P12")
@pytest.mark.parametrize("entry", Entry)
@pytest.mark.parametrize("write", WRITES)
async def test_a_write_runs_only_once_a_person_has_approved_it(host: Host, entry: Entry, write: str) -> None:
    asked_for, record, kind = WRITES[write]
    async with entered(host, entry, [[asked_for], "Done."]) as play:
        run = await play.ask()
        assert [waiting.tool for waiting in pending(run).calls] == [asked_for.name]
        assert (host.executions(), host.heard()) == (0, [])

        run = await play.decide(run, Decision.approve(digest(run)))

        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
        assert (host.executions(asked_for.name), host.heard()) == (1, [(record, kind)])


@pytest.mark.promise("P11")
@pytest.mark.report(1)
@pytest.mark.parametrize("entry", Entry)
@pytest.mark.parametrize("write", WRITES)
async def test_a_denied_write_never_runs(host: Host, entry: Entry, write: str) -> None:
    asked_for, _, _ = WRITES[write]
    async with entered(host, entry, [[asked_for], "As you wish."]) as play:
        run = await play.ask()
        run = await play.decide(run, Decision.deny(digest(run), "The page is under review."))

        assert (run.status, run.output) == (RunStatus.COMPLETED, "As you wish.")
        assert (host.executions(), host.heard(), host.description(), host.elements()) == (0, [], "", [])
        (step,) = await play.steps(run)
        assert (step.payload["outcome"], step.payload["by"]) == ("denied", BOB.id)
        assert await play.steps(run, StepKind.WRITE) == []


@pytest.mark.promise("P12")
@pytest.mark.report(4)
@pytest.mark.parametrize("entry", Entry)
@pytest.mark.parametrize(
    "turn",
    [[SET, READ], [READ, ADD, READ], [ADD, SET, READ]],
    ids=lambda turn: "-".join(one.name for one in cast("Sequence[ModelCall]", turn)),
)
async def test_nothing_of_a_turn_runs_before_its_decision(host: Host, entry: Entry, turn: Sequence[ModelCall]) -> None:
    async with entered(host, entry, [turn, "Done."]) as play:
        run = await play.ask()
        assert [waiting.tool for waiting in pending(run).calls] == [one.name for one in turn]
        assert host.executions() == 0
        assert await play.steps(run) == []

        run = await play.decide(run, Decision.approve(digest(run)))

        assert run.status is RunStatus.COMPLETED
        assert [name for name, _ in await play.outcomes(run)] == [one.name for one in turn]
        for write in ("set_description", "add_element"):  # a read may run again after a crash
            assert host.executions(write) == sum(one.name == write for one in turn)
        assert host.executions("read_page") >= sum(one.name == "read_page" for one in turn)
        assert len(play.told()) == len(turn)


@pytest.mark.promise("P12")
@pytest.mark.parametrize("entry", Entry)
async def test_a_read_beside_a_denied_write_runs_after_the_decision(host: Host, entry: Entry) -> None:
    async with entered(host, entry, [[READ, SET], "Done."]) as play:
        run = await play.ask()
        assert host.executions() == 0
        run = await play.decide(run, Decision.deny(digest(run)))
        assert sorted(await play.outcomes(run)) == [("read_page", "succeeded"), ("set_description", "denied")]
        assert host.executions("read_page") >= 1
        assert host.executions("set_description") == 0


@pytest.mark.promise("P11")
async def test_a_read_waits_for_nobody(host: Host) -> None:
    async with entered(host, Entry.DIRECT, [[READ], "Done."]) as play:
        run = await play.ask()
        assert (run.status, host.executions("read_page")) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P11")
@pytest.mark.parametrize("entry", ALIVE)
async def test_any_tool_may_ask_for_approval(host: Host, entry: Entry) -> None:
    @tool(effect=ToolEffect.READ_ONLY, approval=True)
    def read_page(context: ToolContext, page_id: int) -> ToolResult:
        """Read a page that not everybody may read."""
        host.count(context, "read_page")
        return ToolResult.text("Secret.")

    async with entered(host, entry, [[READ], "Done."], tools=[read_page]) as play:
        run = await play.ask()
        assert (pending(run).calls[0].needs_decision, host.executions()) == (True, 0)
        run = await play.decide(run, Decision.approve(digest(run)))
        assert (run.status, host.executions("read_page")) == (RunStatus.COMPLETED, 1)


# -- no setting switches the gate off


@dataclass(frozen=True, slots=True)
class HandMade:
    """A tool that no `@tool` made, and that says it needs nobody."""

    host: Host
    spec: ToolSpec = ToolSpec(  # noqa: RUF009 - frozen
        name="touch",
        description="Touch a page.",
        parameters={"type": "object", "properties": {}, "additionalProperties": False},
        effect=ToolEffect.IDEMPOTENT_WRITE,
        asks_approval=False,
    )
    verifies: bool = False

    def validate(self, arguments: str) -> dict[str, JsonValue]:
        return {}

    async def execute(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> ToolResult:
        self.host.count(context, "touch")
        return ToolResult.text("Touched.").with_write_target(RecordReference("pages", 42), WriteKind.UPDATED)

    async def make_preview(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> list[str]:
        return []

    async def check_landed(self, context: ToolContext, arguments: Mapping[str, JsonValue]) -> Verification:
        return None


ASKERS = {
    "a person": ALICE,
    "an approver": AiActorContext.user("8", grants=tuple(Grant)),
    "a service account": AiActorContext.service("nightly", grants=tuple(Grant)),
}


@pytest.mark.promise("P11")
@pytest.mark.report(2)
@pytest.mark.parametrize("asker", ASKERS)
@pytest.mark.parametrize("made", ["by-function", "by-hand"])
async def test_whoever_asks_and_whatever_is_set_a_write_waits(host: Host, asker: str, made: str) -> None:
    @tool(effect=ToolEffect.IDEMPOTENT_WRITE, approval=False)
    def touch(context: ToolContext) -> ToolResult:
        """Touch a page."""
        host.count(context, "touch")
        return ToolResult.text("Touched.").with_write_target(RecordReference("pages", 42), WriteKind.UPDATED)

    by_hand: Tool = HandMade(host)
    async with host.runtime(
        [[call("touch")], "Done."],
        tools=[touch if made == "by-function" else by_hand],
        agent={"second_approver": False, "max_rounds": 1},
        authority=allow_all,
        release_ttl=1e9,
        recover=True,
    ) as runtime:
        run = await runtime.run("editor", "Touch it.", actor=ASKERS[asker])
        assert pending(run).calls[0].needs_decision
        assert host.executions() == 0
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, host.executions("touch")) == (RunStatus.COMPLETED, 1)


@pytest.mark.promise("P11")
def test_nothing_that_is_set_is_about_skipping_approval() -> None:
    """Who adds a setting that speaks of approval decides here whether it can switch the gate off."""
    spoken_of = {
        f"{made.__name__}({name})"
        for made in (Agent, AgentRuntime, ToolSpec, tool)
        for name in inspect.signature(made).parameters
        if any(word in name for word in ("appro", "auto", "gate", "trust", "confirm", "skip", "policy", "decid"))
    }
    assert spoken_of == {
        "Agent(second_approver)", "Agent(approval_ttl)", "ToolSpec(asks_approval)", "tool(approval)",
    }  # fmt: skip


# -- a wrong setting fails at construction


def runtime_with(host: Host, **setting: object) -> AgentRuntime:
    """As an untyped caller would."""
    agent = Agent(name="editor", model=ScriptedModel([]), tools=host.tools())
    settings: dict[str, object] = {"store": "sqlite://", "agents": [agent], "authority": allow_all}
    return AgentRuntime(**(settings | setting))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


WRONG: dict[str, dict[str, object]] = {
    "no authority": {"authority": None},
    "an authority that is none": {"authority": "allow_all"},
    "an authority with a misspelt method": {"authority": SimpleNamespace(load=print, may_Run=print)},
    "an authority whose answer is no method": {"authority": SimpleNamespace(load=print, may_run=True)},
    "an execution that is none": {"execution": "inlin"},
    "a release that holds for ever": {"release_ttl": float("inf")},
    "a release that never holds": {"release_ttl": 0},
    "a release in words": {"release_ttl": "24h"},
    "a release that is a flag": {"release_ttl": True},
    "a release that is no number": {"release_ttl": float("nan")},
    "a listener that is no callable": {"listeners": ["label"]},
    "a dispatcher that is none": {"dispatcher": print},
    "an agent that is none": {"agents": ["editor"]},
}  # fmt: skip


@pytest.mark.promise("P11")
@pytest.mark.report(2)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_setting_of_a_runtime_fails_at_construction(host: Host, wrong: str) -> None:
    with pytest.raises(ConfigurationError):
        runtime_with(host, **WRONG[wrong])


@pytest.mark.promise("P11")
@pytest.mark.report(2)
def test_a_misspelt_setting_is_no_setting(host: Host) -> None:
    with pytest.raises(TypeError, match="second_aprover"):
        Agent(name="editor", model=ScriptedModel([]), second_aprover=True)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="realease_ttl"):
        runtime_with(host, realease_ttl=1.0)


@pytest.mark.promise("P11")
@pytest.mark.report(2)
@pytest.mark.parametrize(
    "wrong",
    [
        {"second_approver": "yes"}, {"second_approver": 1}, {"second_approver": None},
        {"approval_ttl": "1h"}, {"approval_ttl": 0}, {"approval_ttl": -1.0}, {"approval_ttl": True},
        {"approval_ttl": float("nan")}, {"approval_ttl": float("inf")},
        {"max_rounds": 0}, {"max_rounds": "20"}, {"max_rounds": True},
    ],
    ids=repr,
)  # fmt: skip
def test_a_wrong_setting_of_an_agent_fails_at_construction(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        Agent(name="editor", model=ScriptedModel([]), **wrong)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


# -- no tool without an effect


@pytest.mark.promise("P11")
@pytest.mark.report(2)
@pytest.mark.parametrize("effect", [None, "read_only", "READ_ONLY", "write", 0, True], ids=repr)
def test_a_tool_without_a_declared_effect_is_refused(effect: object) -> None:
    with pytest.raises(ConfigurationError, match="effect"):
        ToolSpec("touch", "Touch a page.", {"type": "object"}, effect)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="effect"):
        tool(effect=effect)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]


@pytest.mark.promise("P11")
async def test_a_hand_made_tool_without_a_declared_effect_is_refused(host: Host) -> None:
    spec = SimpleNamespace(name="touch", description="", parameters={"type": "object"}, asks_approval=False)
    methods = dict.fromkeys(("validate", "execute", "make_preview", "check_landed"), print)
    without = cast("Tool", cast("object", SimpleNamespace(spec=spec, verifies=False, **methods)))
    with pytest.raises(ConfigurationError, match="touch"):
        host.runtime(["Done."], tools=[without])


@pytest.mark.promise("P11")
def test_asking_for_approval_is_yes_or_no() -> None:
    for wrong in ("always", 1, None):
        with pytest.raises(ConfigurationError):
            ToolSpec("touch", "", {"type": "object"}, ToolEffect.READ_ONLY, asks_approval=wrong)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
