"""What was released is gated again when it runs: what may not run any more does not, and the model is told."""

import asyncio
from collections.abc import Callable

import pytest

from byline import (
    AiActorContext,
    Authority,
    Decision,
    Grant,
    ModelCall,
    ProposedCall,
    RecordReference,
    RunStatus,
    StepKind,
    Tool,
    ToolContext,
    ToolEffect,
    ToolResult,
    WriteKind,
    tool,
)
from byline.testing import call
from tests.host import ALICE, BOB, AgentFacts, Host, People
from tests.kernel.gate_entries import ADD, READ, SET, Entry, Play, digest, entered
from tests.kernel.gate_people import Granting


class Failing(Granting):
    """People whose directory fails once it is told to."""

    failure: Callable[[], object] | None = None

    async def load(self, actor_id: str, /) -> AiActorContext | None:  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]
        if self.failure is not None:
            answer = self.failure()
            if asyncio.iscoroutine(answer):
                await answer
            return None
        return super().load(actor_id)


def _raise(error: BaseException) -> object:
    raise error


Loss = Callable[[Failing], None]


def _forbid(actor_id: str) -> Loss:
    def lose(people: Failing) -> None:
        people.forbidden = lambda actor, proposed: actor.id == actor_id and proposed.arguments["page_id"] == 42

    return lose


def _disable(actor_id: str) -> Loss:
    return lambda people: people.disabled.add(actor_id)


def _fail(failure: Callable[[], object]) -> Loss:
    def lose(people: Failing) -> None:
        people.failure = failure

    return lose


def _revoke(people: Failing) -> None:
    people.granted[BOB.id] = {Grant.RECONCILE}


LOSSES: dict[str, tuple[Loss, str]] = {
    "the initiator is disabled": (_disable(ALICE.id), "person this run acts for"),
    "the approver is disabled": (_disable(BOB.id), "person who approved it"),
    "the initiator may not any more": (_forbid(ALICE.id), "person this run acts for"),
    "the approver may not any more": (_forbid(BOB.id), "person who approved it"),
    "the approver approves nothing any more": (_revoke, "person who approved it"),
    "the authority raises": (_fail(lambda: _raise(RuntimeError("gone"))), "person this run acts for"),
    "the authority ends the process": (_fail(lambda: _raise(SystemExit(1))), "person this run acts for"),
    "the authority cancels itself": (_fail(lambda: _raise(asyncio.CancelledError())), "person this run acts for"),
    "the authority hangs": (_fail(lambda: asyncio.Event().wait()), "person this run acts for"),
}


async def not_executed(play: Play, *, tool: str, why: str) -> None:
    """Nothing was executed or announced, and a step and the model's next request say why."""
    host = play.host
    assert (host.executions(tool), host.heard()) == (0, [])
    (told,) = [said for said in play.told() if said.tool == tool]
    assert told.is_error
    assert told.text.startswith("Not executed: ")
    assert why in told.text


@pytest.mark.promise("P15")
@pytest.mark.report(10)
@pytest.mark.parametrize("entry", Entry)
@pytest.mark.parametrize(
    "lost, asked",
    [
        ("the initiator is disabled", ADD),
        ("the approver is disabled", SET),
        ("the initiator may not any more", ADD),
    ],
    ids=["initiator", "approver", "permission"],
)
async def test_what_is_lost_before_it_runs_is_not_run(host: Host, entry: Entry, lost: str, asked: ModelCall) -> None:
    lose, why = LOSSES[lost]
    host.people = people = Failing()
    async with entered(host, entry, [[asked], "I see."]) as play:
        run = await play.ask()
        play.meanwhile = lambda: lose(people)
        run = await play.decide(run, Decision.approve(digest(run)))

        assert (run.status, run.output) == (RunStatus.COMPLETED, "I see.")
        await not_executed(play, tool=asked.name, why=why)
        assert await play.outcomes(run) == [(asked.name, "refused")]
        assert await play.steps(run, StepKind.WRITE) == []


@pytest.mark.promise("P15")
@pytest.mark.parametrize("lost", LOSSES)
async def test_whatever_is_lost_the_step_says_so_until_the_run_settles(
    host: Host, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byline.approval.gate.AUTHORITY_TIMEOUT", 0.1)
    lose, why = LOSSES[lost]
    host.people = people = Failing()
    async with entered(host, Entry.DIRECT, [[SET], [ADD], "I see."]) as play:
        run = await play.ask()
        play.meanwhile = lambda: lose(people)
        run = await play.decide(run, Decision.approve(digest(run)))

        assert run.status is RunStatus.AWAITING_APPROVAL  # the model went on, and asks for another write
        await not_executed(play, tool="set_description", why=why)
        (step,) = await play.steps(run)
        assert step.payload["outcome"] == "refused"
        assert step.detail is not None
        assert why in step.detail


@pytest.mark.promise("P15")
@pytest.mark.report(10)
@pytest.mark.parametrize("entry", [Entry.QUEUED, Entry.RESUMED, Entry.CRASHED])
@pytest.mark.parametrize("write", ["set_description", "add_element"])
async def test_a_tool_withdrawn_meanwhile_is_not_run(host: Host, entry: Entry, write: str) -> None:
    """Decided where it is loaded, executed where it is not any more."""
    decides = Entry.CRASHED if entry is Entry.CRASHED else Entry.QUEUED
    async with entered(host, decides, [[SET, ADD], "I see."]) as play:
        run = await play.ask()
        left = [each for each in host.tools() if each.spec.name != write]
        if decides is Entry.CRASHED:
            play.tools = left
            run = await play.decide(run, Decision.approve(digest(run)))
        else:
            await (await play.runtime()).decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
            play.tools = left
            run = await (await play.afresh()).execute(run.run_id)

        assert (run.status, run.output) == (RunStatus.COMPLETED, "I see.")
        other = "add_element" if write == "set_description" else "set_description"
        assert dict(await play.outcomes(run)) == {write: "refused", other: "succeeded"}
        assert (host.executions(write), host.executions(other)) == (0, 1)
        (told,) = [said for said in play.told() if said.is_error]
        assert told.text == "Not executed: this tool is not offered any more."


@pytest.mark.promise("P15")
async def test_each_release_is_asked_of_again_right_before_it_runs(host: Host) -> None:
    """The first of two released writes takes the permission for the second."""

    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def add_element(context: ToolContext, page_id: int, text: str) -> ToolResult:
        """Add an element, and lock its page."""
        host.count(context, "add_element")
        host.people.forbidden = lambda actor, proposed: actor.id == ALICE.id
        return ToolResult.text("Added.").with_write_target(RecordReference("elements", 1), WriteKind.CREATED)

    tools: list[Tool] = [*host.tools()[:2], add_element]
    async with entered(host, Entry.DIRECT, [[ADD, SET, READ], "I see."], tools=tools) as play:
        run = await play.ask()
        run = await play.decide(run, Decision.approve(digest(run)))
        assert dict(await play.outcomes(run)) == {
            "add_element": "succeeded",
            "set_description": "refused",
            "read_page": "succeeded",
        }
        assert (host.executions("set_description"), host.heard()) == (0, [("elements:1", "created")])


class Asked(People):
    """People that keep what is asked of them."""

    def __init__(self) -> None:
        super().__init__()
        self.questions: list[tuple[str, str, dict[str, object]]] = []

    def may_run(self, actor: AiActorContext, call: ProposedCall, /) -> bool:
        self.questions.append((actor.id, call.tool, dict(call.arguments)))
        return super().may_run(actor, call)


@pytest.mark.promise("P15")
@pytest.mark.parametrize("entry", [Entry.DIRECT, Entry.QUEUED, Entry.RESUMED])
async def test_initiator_and_approver_are_asked_of_each_call_with_its_arguments(host: Host, entry: Entry) -> None:
    people: Authority = (asked := Asked())
    contact = call("set_description", page_id=41, description="Write to us.")
    async with entered(host, entry, [[SET, contact], "Done."], authority=people) as play:
        run = await play.ask()
        play.meanwhile = asked.questions.clear
        run = await play.decide(run, Decision.approve(digest(run)))
        assert run.status is RunStatus.COMPLETED
        about = {"page_id": 42, "description": "Who we are."}
        other = {"page_id": 41, "description": "Write to us."}
        assert asked.questions == [
            (ALICE.id, "set_description", about),
            (BOB.id, "set_description", about),
            (ALICE.id, "set_description", other),
            (BOB.id, "set_description", other),
        ]


@pytest.mark.promise("P15")
@pytest.mark.parametrize("entry", [Entry.DIRECT, Entry.QUEUED, Entry.RESUMED])
async def test_a_released_read_is_gated_again_too(host: Host, entry: Entry) -> None:
    @tool(effect=ToolEffect.READ_ONLY, approval=True)
    def read_page(context: ToolContext, page_id: int) -> ToolResult:
        """Read a page that not everybody may read."""
        host.count(context, "read_page")
        return ToolResult.text("Secret.")

    async with entered(host, entry, [[READ], "I see."], tools=[read_page]) as play:
        run = await play.ask()
        play.meanwhile = lambda: host.people.disabled.add(ALICE.id)
        run = await play.decide(run, Decision.approve(digest(run)))
        assert run.status is RunStatus.COMPLETED
        await not_executed(play, tool="read_page", why="person this run acts for")


@pytest.mark.promise("P15", "P14")
async def test_an_approver_who_became_a_service_account_releases_nothing(host: Host) -> None:
    people = Granting()
    facts: AgentFacts = {}

    class Services(Granting):
        def load(self, actor_id: str, /) -> AiActorContext | None:
            if actor_id == BOB.id and switched:
                return AiActorContext.service(actor_id, grants=tuple(Grant))
            return people.load(actor_id)

    switched: list[bool] = []
    host.people = Services()
    async with entered(host, Entry.DIRECT, [[SET], "I see."], agent=facts) as play:
        run = await play.ask()
        play.meanwhile = lambda: switched.append(True)
        run = await play.decide(run, Decision.approve(digest(run)))
        assert run.status is RunStatus.COMPLETED
        await not_executed(play, tool="set_description", why="person who approved it")
