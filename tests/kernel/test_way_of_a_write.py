"""The way of one write: a tool writes, a person approves, it lands once, it is announced."""

import pytest

from byline import Decision, RunStatus, StepKind
from byline.testing import call
from tests.host import ALICE, BOB, Host

SET = call("set_description", page_id=42, description="Who we are.")


@pytest.mark.promise("P1", "P5", "P11", "P24")
async def test_a_write_waits_lands_once_and_is_announced(host: Host) -> None:
    async with host.runtime([[SET], "Done."]) as runtime:
        run = await runtime.run("editor", "Describe page 42.", actor=ALICE)
        assert run.status is RunStatus.AWAITING_APPROVAL
        assert run.pending is not None
        assert run.pending.calls[0].arguments == {"page_id": 42, "description": "Who we are."}
        assert run.pending.calls[0].preview == ("- ", "+ Who we are.")
        assert host.executions() == 0

        run = await runtime.decide(run.run_id, Decision.approve(run.pending.digest), actor=BOB)

        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")
        assert host.description() == "Who we are."
        assert host.executions() == 1
        assert host.heard() == [("pages:42", "updated")]
        facts = await runtime.writes()
        assert [(fact.correlation_id, str(fact.record)) for fact in facts] == [(run.run_id, "pages:42")]
        kinds = [step.kind for step in await runtime.list_steps(run.run_id)]
        assert kinds == [
            StepKind.MODEL, StepKind.SUSPENDED, StepKind.TOOL, StepKind.WRITE, StepKind.MODEL, StepKind.SETTLED,
        ]  # fmt: skip
