"""What a run shows to OpenTelemetry: one span a segment, a question, an attempt of a tool; the run's uuid on each."""

import asyncio
from uuid import UUID

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from byline import (
    AfterAiRecordWrittenEvent,
    AgentRuntime,
    ConfigurationError,
    Decision,
    ModelAnswer,
    PydanticAiModel,
    Reconciliation,
    Run,
    RunStatus,
    ToolContext,
    ToolEffect,
    ToolError,
    ToolResult,
    Usage,
    WriteKind,
    tool,
)
from byline.errors import ModelUnavailable
from byline.models.messages import ModelRequest
from byline.models.scripted import Turn
from byline.testing import call
from tests.host import ALICE, BOB, Host
from tests.kernel.collecting import Collected, attributes_of, parent_of, runs_of
from tests.kernel.entries import Clock, die_in_write, left_queued, start_and_approve, store_of, unknown, waiting
from tests.kernel.stopping import Hold
from tests.kernel.writers import PAGE, TURNS, unnamed, writer

DESCRIBED = call("set_description", page_id=42, description="Who we are.")
READ: Turn = [call("read_page", page_id=42)]
THREE: list[Turn] = [READ, [DESCRIBED], ModelAnswer("Done.", usage=Usage(120, 7))]


class Named:
    """A model that says who it is."""

    provider_name = "anthropic"
    model_name = "claude-sonnet-4-5"

    async def answer(self, request: ModelRequest, /) -> ModelAnswer:
        return ModelAnswer("Done.", usage=Usage(120, 7))


def shown(spans: list[ReadableSpan]) -> list[tuple[str, str | None]]:
    """Each span's name and its parent's."""
    return [(span.name, parent_of(span, spans)) for span in spans]


@pytest.mark.promise("P24")
async def test_the_spans_of_a_run_that_waited_for_a_person(host: Host) -> None:
    collected = Collected()
    async with host.runtime(THREE, telemetry=collected.telemetry) as runtime:
        run = await start_and_approve(runtime)
    assert run.status is RunStatus.COMPLETED
    spans = collected.spans()
    assert shown(spans) == [
        ("chat", "invoke_agent editor"),
        ("execute_tool read_page", "invoke_agent editor"),
        ("chat", "invoke_agent editor"),
        ("invoke_agent editor", None),
        ("execute_tool set_description", "invoke_agent editor"),
        ("chat", "invoke_agent editor"),
        ("invoke_agent editor", None),
    ]
    assert runs_of(spans) == {run.run_id}
    for span in spans:
        assert attributes_of(span)["gen_ai.operation.name"] == span.name.partition(" ")[0]
        assert attributes_of(span)["gen_ai.agent.name"] == "editor"
        assert attributes_of(span)["gen_ai.conversation.id"] == str(run.run_id)
        assert span.kind is (SpanKind.CLIENT if span.name == "chat" else SpanKind.INTERNAL)
        assert span.status.status_code is StatusCode.UNSET
    wrote = attributes_of(collected.span("execute_tool set_description"))
    assert {name: value for name, value in wrote.items() if not name.startswith("gen_ai.a")} == {
        "byline.correlation_id": str(run.run_id),
        "byline.record": "pages:42",
        "byline.tool.attempt": 1,
        "byline.tool.effect": "idempotent_write",
        "byline.write.kind": "updated",
        "gen_ai.conversation.id": str(run.run_id),
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.call.id": wrote["gen_ai.tool.call.id"],
        "gen_ai.tool.name": "set_description",
        "gen_ai.tool.type": "function",
    }
    left = [attributes_of(span)["byline.run.status"] for span in collected.spans("invoke_agent")]
    assert left == ["awaiting_approval", "completed"]
    used = attributes_of(collected.spans("chat")[-1])
    assert (used["gen_ai.usage.input_tokens"], used["gen_ai.usage.output_tokens"]) == (120, 7)
    assert not {name for name in attributes_of(collected.spans("chat")[0]) if name.startswith("gen_ai.usage")}


async def test_a_model_that_names_itself(host: Host) -> None:
    collected = Collected()
    async with host.runtime(Named(), telemetry=collected.telemetry) as runtime:
        await runtime.run("editor", "Please do.", actor=ALICE)
    asked = attributes_of(collected.span("chat claude-sonnet-4-5"))
    assert (asked["gen_ai.provider.name"], asked["gen_ai.request.model"]) == ("anthropic", "claude-sonnet-4-5")


@pytest.mark.parametrize(
    "named, provider, model",
    [
        ("anthropic:claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("openai-responses:gpt-5", "openai", "gpt-5"),
        ("bedrock:eu.anthropic.claude-sonnet-4-5-v1:0", "aws.bedrock", "eu.anthropic.claude-sonnet-4-5-v1:0"),
        ("google:gemini-3-pro", "gcp.gemini", "gemini-3-pro"),
        ("mistral:mistral-large-latest", "mistral_ai", "mistral-large-latest"),
    ],
)
def test_models_are_named_as_the_conventions_name_them(named: str, provider: str, model: str) -> None:
    adapter = PydanticAiModel(named)
    assert (adapter.provider_name, adapter.model_name) == (provider, model)


@pytest.mark.promise("P24")
async def test_segments_in_two_processes_have_the_run_in_common(host: Host) -> None:
    first, second = Collected(), Collected()
    async with host.runtime(THREE, telemetry=first.telemetry) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
    async with host.runtime(THREE, telemetry=second.telemetry) as runtime:
        await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
    assert runs_of(first.spans()) == runs_of(second.spans()) == {run.run_id}


async def test_a_write_that_is_taken_over_is_a_second_attempt(host: Host) -> None:
    collected, clock = Collected(), Clock()
    run_id = await left_queued(host, THREE[1:], clock)
    die_in_write(host, run_id, clock)
    async with host.runtime(THREE[1:], store=store_of(host, clock), telemetry=collected.telemetry) as runtime:
        assert (await runtime.execute(run_id)).status is RunStatus.COMPLETED
    assert attributes_of(collected.span("execute_tool"))["byline.tool.attempt"] == 2
    assert runs_of(collected.spans()) == {run_id}


async def test_what_a_person_found_to_have_landed_is_announced_and_not_executed(host: Host) -> None:
    collected = Collected()
    tools = [writer(host, ToolEffect.NON_IDEMPOTENT_WRITE, unnamed)]
    async with host.runtime(TURNS, tools=tools, telemetry=collected.telemetry) as runtime:
        run = await start_and_approve(runtime)
        landed = Reconciliation.landed(unknown(run).digest, PAGE, WriteKind.UPDATED)
        assert (await runtime.reconcile(run.run_id, landed, actor=BOB)).status is RunStatus.COMPLETED
    announced = collected.span("announce")
    assert attributes_of(announced) == {
        "byline.correlation_id": str(run.run_id),
        "byline.record": "pages:42",
        "byline.write.kind": "updated",
    }
    assert parent_of(announced, collected.spans()) == "invoke_agent editor"
    assert len(collected.spans("execute_tool")) == 1
    left = collected.spans("invoke_agent")[1]
    assert (attributes_of(left)["byline.run.status"], attributes_of(left)["error.type"]) == ("uncertain", "unnamed")
    assert left.status.status_code is StatusCode.ERROR


# -- errors


async def ended_in_error(host: Host, runtime: AgentRuntime, collected: Collected, name: str) -> tuple[Run, object]:
    async with runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        if run.status is RunStatus.AWAITING_APPROVAL:
            run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
    (span,) = [span for span in collected.spans(name) if "error.type" in attributes_of(span)]
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description is None
    assert not span.events
    assert "Swordfish" not in collected.everything()
    return run, attributes_of(span)["error.type"]


@pytest.mark.promise("P23")
async def test_a_model_that_fails(host: Host) -> None:
    collected = Collected()
    runtime = host.runtime([ModelUnavailable("Swordfish")], telemetry=collected.telemetry, max_model_failures=0)
    _, error_type = await ended_in_error(host, runtime, collected, "chat")
    assert error_type == "ModelUnavailable"
    assert collected.span("invoke_agent").status.status_code is not StatusCode.OK


@pytest.mark.promise("P23")
@pytest.mark.parametrize(
    "error, error_type", [(ToolError("Swordfish"), "ToolError"), (OSError("Swordfish"), "OSError")]
)
async def test_a_tool_that_fails(host: Host, error: Exception, error_type: str) -> None:
    def fail(context: ToolContext) -> ToolResult:
        raise error

    collected = Collected()
    tools = [writer(host, ToolEffect.NON_IDEMPOTENT_WRITE, fail)]
    runtime = host.runtime(TURNS, tools=tools, telemetry=collected.telemetry)
    run, found = await ended_in_error(host, runtime, collected, "execute_tool")
    assert found == error_type
    left = attributes_of(collected.spans("invoke_agent")[-1])
    if run.status is RunStatus.UNCERTAIN:
        assert (left["byline.run.status"], left["error.type"]) == ("uncertain", "raised")
    else:
        assert (left["byline.run.status"], "error.type" in left) == ("completed", False)


@pytest.mark.promise("P22")
@pytest.mark.report(30)
async def test_a_cancellation_passes_through_a_span(host: Host) -> None:
    collected, hold = Collected(), Hold()
    begun: list[UUID | None] = []

    @tool(effect=ToolEffect.READ_ONLY)
    async def hang(context: ToolContext) -> ToolResult:
        """Hang."""
        begun.append(context.run)
        await hold.on_loop()
        return ToolResult.text("Done.")

    async with host.runtime([[call("hang")], "Done."], tools=[hang], telemetry=collected.telemetry) as runtime:
        running = asyncio.create_task(runtime.run("editor", "Please do.", actor=ALICE))
        await hold.is_reached()
        await runtime.cancel(str(begun[0]), actor=ALICE)
        assert (await running).status is RunStatus.CANCELLED
    assert [span.name for span in collected.spans()] == ["chat", "execute_tool hang", "invoke_agent editor"]
    assert attributes_of(collected.span("execute_tool"))["error.type"] == "CancelledError"
    assert attributes_of(collected.span("invoke_agent"))["byline.run.status"] == "cancelled"


# -- a host's own spans


async def test_a_hosts_own_spans_are_children_of_ours_and_ours_of_its(host: Host) -> None:
    """In tools, on threads or on the loop; in listeners of both kinds; and around the call that starts a run."""
    collected = Collected()
    own = collected.tracers.get_tracer("host")

    @tool(effect=ToolEffect.READ_ONLY)
    def on_a_thread(context: ToolContext) -> ToolResult:
        """Read."""
        with own.start_as_current_span("in a thread"):
            return ToolResult.text("Read.")

    @tool(effect=ToolEffect.READ_ONLY)
    async def on_the_loop(context: ToolContext) -> ToolResult:
        """Read."""
        with own.start_as_current_span("on the loop"):
            return ToolResult.text("Read.")

    def listen(event: AfterAiRecordWrittenEvent) -> None:
        own.start_span("in a listener").end()

    async def listen_on_the_loop(event: AfterAiRecordWrittenEvent) -> None:
        own.start_span("in an async listener").end()

    turns: list[Turn] = [[call("on_a_thread"), call("on_the_loop")], [DESCRIBED], "Done."]
    tools = [*host.tools(), on_a_thread, on_the_loop]
    listeners = [listen, listen_on_the_loop]
    async with host.runtime(turns, tools=tools, listeners=listeners, telemetry=collected.telemetry) as runtime:
        with own.start_as_current_span("a request"):
            run = await runtime.run("editor", "Please do.", actor=ALICE)
        await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
    parents = dict(shown(collected.spans()))
    assert parents["in a thread"] == "execute_tool on_a_thread"
    assert parents["on the loop"] == "execute_tool on_the_loop"
    assert parents["in a listener"] == parents["in an async listener"] == "execute_tool set_description"
    assert [parent_of(span, collected.spans()) for span in collected.spans("invoke_agent")] == ["a request", None]


async def test_a_runtime_without_telemetry_within_a_run_with_it_is_not_observed(host: Host) -> None:
    collected = Collected()
    inner = host.runtime(["Inner."], store="sqlite://")

    @tool(effect=ToolEffect.READ_ONLY)
    async def delegate(context: ToolContext) -> ToolResult:
        """Ask another agent."""
        run = await inner.run("editor", "Please do.", actor=ALICE)
        return ToolResult.text(run.output or "")

    outer = host.runtime([[call("delegate")], "Done."], tools=[delegate], telemetry=collected.telemetry)
    async with inner, outer:
        run = await outer.run("editor", "Please do.", actor=ALICE)
    assert run.output == "Done."
    assert [span.name for span in collected.spans()] == ["chat", "execute_tool delegate", "chat", "invoke_agent editor"]


def test_a_telemetry_is_a_telemetry(host: Host) -> None:
    wrong: object = "otlp"
    with pytest.raises(ConfigurationError, match="telemetry"):
        host.runtime(["Done."], telemetry=wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
