"""Nothing that was said leaves through telemetry, unless it is asked for twice: there, and by the privacy level."""

import json
import logging

import pytest

from byline import (
    Decision,
    ModelAnswer,
    PrivacyLevel,
    Run,
    RunStatus,
    Telemetry,
    ToolContext,
    ToolEffect,
    ToolResult,
    tool,
)
from byline.models.messages import ModelCall
from byline.models.scripted import Turn
from byline.testing import call
from tests.host import ALICE, BOB, Host
from tests.kernel.collecting import Collected, attributes_of
from tests.kernel.entries import waiting

PROMPT = "Ask swordfish-prompt, whose address is mary@example.org."
SAID = ("swordfish-prompt", "swordfish-argument", "swordfish-result", "swordfish-answer", "mary@example.org")


@tool(effect=ToolEffect.READ_ONLY)
def look_up(context: ToolContext, about: str) -> ToolResult:
    """Look something up."""
    return ToolResult.text("It says swordfish-result.")


TURNS: list[Turn] = [
    ModelAnswer(calls=(ModelCall("swordfish-no-tool", "{}"), call("look_up", about="swordfish-argument"))),
    "It is swordfish-answer.",
]


async def told(host: Host, level: PrivacyLevel, telemetry: Telemetry) -> Run:
    runtime = host.runtime(TURNS, tools=[look_up], agent={"privacy": level}, privacy=level, telemetry=telemetry)
    async with runtime:
        run = await runtime.run("editor", PROMPT, actor=ALICE)
    assert run.status is RunStatus.COMPLETED
    return run


@pytest.mark.promise("P23", "P24")
@pytest.mark.parametrize("level", PrivacyLevel)
async def test_no_content_and_no_person_by_default(
    host: Host, level: PrivacyLevel, caplog: pytest.LogCaptureFixture
) -> None:
    """In spans, in metrics and in logs."""
    caplog.set_level(logging.DEBUG, "byline")
    collected = Collected()
    run = await told(host, level, collected.telemetry)
    exported = collected.everything() + "".join(str(vars(record)) for record in caplog.records)
    assert str(run.run_id) in exported
    assert [said for said in (*SAID, "swordfish", "initiator") if said in exported] == []


@pytest.mark.promise("P23")
async def test_the_reason_of_a_denial_stays_here(host: Host) -> None:
    collected = Collected(content=True)
    turns: list[Turn] = [[call("set_description", page_id=42, description="x")], "Done."]
    async with host.runtime(turns, telemetry=collected.telemetry) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        await runtime.decide(run.run_id, Decision.deny(waiting(run), "swordfish-reason"), actor=BOB)
    assert "swordfish-reason" not in collected.everything()


@pytest.mark.promise("P23")
@pytest.mark.parametrize("level", [PrivacyLevel.NONE, PrivacyLevel.METADATA])
async def test_the_stricter_of_telemetry_and_privacy_holds(host: Host, level: PrivacyLevel) -> None:
    collected = Collected(content=True)
    await told(host, level, collected.telemetry)
    assert [said for said in SAID if said in collected.everything()] == []


@pytest.mark.promise("P23")
async def test_content_in_the_conventions_form_where_it_is_asked_for(host: Host) -> None:
    collected = Collected(content=True)
    await told(host, PrivacyLevel.FULL, collected.telemetry)
    first, second = map(attributes_of, collected.spans("chat"))
    assert json.loads(str(first["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": PROMPT}]}
    ]
    (asked,) = json.loads(str(first["gen_ai.output.messages"]))
    assert (asked["role"], asked["finish_reason"]) == ("assistant", "tool_call")
    assert [part["name"] for part in asked["parts"]] == ["swordfish-no-tool", "look_up"]
    executed = attributes_of(collected.span("execute_tool"))
    assert json.loads(str(executed["gen_ai.tool.call.arguments"])) == {"about": "swordfish-argument"}
    assert executed["gen_ai.tool.call.result"] == "It says swordfish-result."
    heard = json.loads(str(second["gen_ai.input.messages"]))
    assert [message["role"] for message in heard] == ["user", "assistant", "tool", "tool"]
    assert heard[-1]["parts"][0]["id"] == executed["gen_ai.tool.call.id"]
    assert json.loads(str(second["gen_ai.output.messages"]))[0]["parts"] == [
        {"type": "text", "content": "It is swordfish-answer."}
    ]


@pytest.mark.promise("P23")
async def test_redacted_content_is_redacted(host: Host) -> None:
    collected = Collected(content=True)
    await told(host, PrivacyLevel.REDACTED, collected.telemetry)
    exported = collected.everything()
    assert "swordfish-prompt" in exported
    assert "[email]" in exported
    assert "mary@example.org" not in exported


@pytest.mark.promise("P23")
async def test_at_the_level_none_nothing_is_told_of_a_runs_steps(host: Host) -> None:
    collected = Collected()
    await told(host, PrivacyLevel.NONE, collected.telemetry)
    assert [span.name for span in collected.spans()] == ["invoke_agent editor"]
    assert "look_up" not in collected.everything()
