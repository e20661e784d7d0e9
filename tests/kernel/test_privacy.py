"""Content is sealed while a run needs it and gone when it has settled; the event names the run, the run the person."""

import dataclasses
import logging
import pickle
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from uuid import UUID

import pytest

from byline import (
    AfterAiRecordWrittenEvent,
    AgentRuntime,
    AiActorContext,
    AssistantMessage,
    Decision,
    Deny,
    Grant,
    Landed,
    ModelAnswer,
    ModelCall,
    ModelError,
    NotAllowed,
    ProposedCall,
    Reconciliation,
    RecordReference,
    Run,
    RunStatus,
    StepKind,
    Tool,
    ToolContext,
    ToolEffect,
    ToolError,
    ToolResult,
    UserMessage,
    WriteFact,
    WriteKind,
    tool,
)
from byline.approval.decision import Approve, Change, Verdict
from byline.models.messages import Message
from byline.models.scripted import Turn
from byline.testing import ScriptedModel, call
from tests.host import ALICE, BOB, Host, People
from tests.kernel.gate_entries import ADD, SET, Script, digest, pending

INITIATOR = AiActorContext.user("initiator-4711")


def secret(where: str) -> str:
    """A word that occurs nowhere else: whoever finds it knows where it came from."""
    return f"s3cr3t-{where}"


def files_of(host: Host) -> Generator[tuple[str, bytes]]:
    """Every file of the store: the database, its write-ahead log, its keys."""
    for path in sorted(host.path.parent.glob("byline.db*")):
        yield path.name, path.read_bytes()


def leaks(host: Host) -> list[str]:
    """Where content is readable in the store's files."""
    return [f"{name}: {data[at : at + 40]!r}" for name, data in files_of(host) if (at := data.find(b"s3cr3t-")) >= 0]


def rows(host: Host, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(host.path.parent / "byline.db")) as database:
        return database.execute(sql).fetchall()


def sealed(host: Host) -> dict[str, int]:
    """How many sealed values stand in each column that holds some."""
    columns = {
        "message.body": "select count(*) from byline_message",
        "run.turn": "select count(turn) from byline_run",
        "run.output": "select count(output) from byline_run",
        "decision.reason": "select count(reason) from byline_decision",
        "step.detail": "select count(detail) from byline_step",
    }
    counted = {column: rows(host, sql)[0][0] for column, sql in columns.items()}
    return {column: count for column, count in counted.items() if isinstance(count, int) and count}


class Blurting(People):
    """People whose directory says in its errors what it was asked."""

    blurts = False

    def may_run(self, actor: AiActorContext, call: ProposedCall, /) -> bool:
        if self.blurts and actor.id == "9":
            raise ValueError(f"{secret('authority')} {dict(call.arguments)} for {actor.id}")
        return super().may_run(actor, call)


def telling(host: Host) -> list[Tool]:
    """Tools that have content in everything they say."""

    @tool(effect=ToolEffect.READ_ONLY)
    def read_page(context: ToolContext, page_id: int) -> ToolResult:
        """Read a page."""
        if page_id == 0:
            raise ValueError(secret("read-error"))
        return ToolResult.text(secret("result")).with_artifacts({"html": secret("artifact")})

    @tool(effect=ToolEffect.IDEMPOTENT_WRITE)
    def set_description(context: ToolContext, page_id: int, description: str) -> ToolResult:
        """Set the description of a page."""
        if page_id == 0:
            raise ToolError(secret("tool-error"))
        return ToolResult.text(secret("written")).with_write_target(
            RecordReference("pages", page_id), WriteKind.UPDATED
        )

    @set_description.preview
    def _(context: ToolContext, page_id: int, description: str) -> list[str]:
        if page_id == 0:
            raise ValueError(f"{secret('preview-error')}: {description}")
        return [f"+ {secret('preview')}"]

    @tool(effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    def add_element(context: ToolContext, page_id: int, text: str) -> ToolResult:
        """Add an element to a page."""
        raise ConnectionError(f"{secret('write-error')}: {text}")

    @add_element.verify
    def _(context: ToolContext, page_id: int, text: str) -> Landed | None:
        raise ConnectionError(f"{secret('verify-error')}: {text}")

    return [read_page, set_description, add_element]


SCRIPT: list[Turn] = [
    ModelAnswer(
        text=secret("words"),
        calls=(
            call("read_page", page_id=42),
            call("read_page", page_id=0),
            ModelCall("set_description", '{"description": "' + secret("unfit") + '"}'),
            ModelCall(secret("name"), "{}"),
            ModelCall("read_page", "{" + secret("broken")),
        ),
    ),
    [
        call("set_description", page_id=42, description=secret("argument")),
        call("set_description", page_id=0, description=secret("refused-argument")),
        call("set_description", page_id=41, description=secret("denied-argument")),
    ],
    [call("add_element", page_id=42, text=secret("element"))],
    secret("answer"),
]


@contextmanager
def everything_logged(caplog: pytest.LogCaptureFixture, *names: str) -> Generator[None]:
    with caplog.at_level(logging.DEBUG):
        for name in ("byline", "asyncio", *names):
            caplog.set_level(logging.DEBUG, logger=name)
        yield


async def told(host: Host, runtime: AgentRuntime) -> Run:
    """A run with content wherever content can be, up to where its last write is uncertain."""
    history: list[Message] = [UserMessage(secret("history")), AssistantMessage(ModelAnswer(secret("history-answer")))]
    run = await runtime.run("editor", secret("prompt"), actor=ALICE, history=history, dedupe_key="nightly-42")
    assert leaks(host) == []
    ended = [step.payload["outcome"] for step in await runtime.list_steps(run.run_id) if step.kind is StepKind.TOOL]
    assert sorted(map(str, ended)) == ["failed", "invalid", "invalid", "not_offered", "succeeded"]
    to_set, refused, denied = pending(run).calls
    assert to_set.preview == (f"+ {secret('preview')}",)
    assert refused.preview == ("(no preview: ValueError)",)
    changed = Change({"page_id": 42, "description": secret("changed-argument")})
    verdicts: dict[UUID, Verdict] = {to_set.id: changed, denied.id: Deny(secret("reason"))}
    run = await runtime.decide(run.run_id, Decision.per_call(digest(run), verdicts), actor=BOB)
    run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
    assert leaks(host) == []
    run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
    assert run.status is RunStatus.UNCERTAIN
    return run


@pytest.mark.promise("P23")
async def test_nothing_of_a_run_is_readable_in_store_or_log(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    host.people = people = Blurting()
    with everything_logged(caplog, "sqlalchemy", "alembic"):
        async with host.runtime(ScriptedModel(SCRIPT, earlier_answers=1), tools=telling(host)) as runtime:
            run = await told(host, runtime)
            assert leaks(host) == []
            assert run.uncertain is not None
            people.blurts = True
            again = Reconciliation.run_again(run.uncertain.digest)
            with pytest.raises(NotAllowed):
                await runtime.reconcile(run.run_id, again, actor=AiActorContext.user("9", grants=tuple(Grant)))
            run = await runtime.reconcile(run.run_id, Reconciliation.leave_it(run.uncertain.digest), actor=BOB)
            assert (run.status, run.output) == (RunStatus.COMPLETED, secret("answer"))
            assert leaks(host) == []
        assert leaks(host) == []
    assert "s3cr3t-" not in caplog.text
    assert not [record for record in caplog.records if "s3cr3t-" in repr(record.__dict__)]
    actions = {getattr(record, "action", None) for record in caplog.records}
    assert {"preview_failed", "authority_failed", "verify_failed"} <= actions


@pytest.mark.promise("P23")
async def test_what_was_sealed_is_deleted_when_the_run_settles(host: Host) -> None:
    async with host.runtime(ScriptedModel(SCRIPT, earlier_answers=1), tools=telling(host)) as runtime:
        run = await told(host, runtime)
        before = sealed(host)
        assert set(before) == {"message.body", "run.turn", "decision.reason", "step.detail"}
        assert run.uncertain is not None
        run = await runtime.reconcile(run.run_id, Reconciliation.leave_it(run.uncertain.digest), actor=BOB)
        assert run.status is RunStatus.COMPLETED
        assert sealed(host) == {"run.output": 1}
        assert [step.detail for step in await runtime.list_steps(run.run_id) if step.detail is not None] == []


@pytest.mark.promise("P23")
@pytest.mark.parametrize("how", ["cancelled", "expired", "lied"])
async def test_whichever_way_a_run_settles_what_was_sealed_is_deleted(host: Host, how: str) -> None:
    @tool(effect=ToolEffect.READ_ONLY)
    def read_page(context: ToolContext, page_id: int) -> ToolResult:
        """Read a page, and write it."""
        return ToolResult.text(secret("result")).with_write_target(RecordReference("pages", 42), WriteKind.UPDATED)

    script: Script = [[call("read_page", page_id=42)]] if how == "lied" else [[SET, ADD, ModelCall(secret("name"))]]
    tools = [read_page] if how == "lied" else host.tools()
    ttl = 0.001 if how == "expired" else None
    async with host.runtime(script, tools=tools, agent={"approval_ttl": ttl}) as runtime:
        run = await runtime.run("editor", secret("prompt"), actor=ALICE)
        if how != "lied":
            assert set(sealed(host)) == {"message.body", "run.turn"}
        if how == "cancelled":
            run = await runtime.cancel(run.run_id, actor=ALICE)
        while how == "expired" and not (await runtime.recover()).expired:
            continue
        run = await runtime.get_run(run.run_id)
        assert run.status is (RunStatus.CANCELLED if how == "cancelled" else RunStatus.FAILED)
        assert (sealed(host), leaks(host)) == ({}, [])


@pytest.mark.promise("P23")
async def test_a_dead_letter_keeps_its_transcript_sealed(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    failure = ModelError(secret("model-error"))
    with everything_logged(caplog):
        async with host.runtime([[call("read_page", page_id=42)], failure]) as runtime:
            run = await runtime.run("editor", secret("prompt"), actor=ALICE)
            assert run.status is RunStatus.DEAD_LETTER
            assert set(sealed(host)) == {"message.body", "step.detail"}
            failed = (await runtime.list_steps(run.run_id))[-2]
            assert (failed.detail, failed.payload) == (secret("model-error"), {"failed": "ModelError"})
            assert leaks(host) == []
    assert "s3cr3t-" not in caplog.text


@pytest.mark.promise("P23")
async def test_metadata_stays_and_says_who_what_and_who_let_it(host: Host) -> None:
    async with host.runtime([[SET, ADD], secret("answer")]) as runtime:
        run = await runtime.run("editor", secret("prompt"), actor=INITIATOR)
        to_set, to_add = pending(run).calls
        verdicts: dict[UUID, Verdict] = {to_set.id: Approve(), to_add.id: Deny(secret("reason"))}
        run = await runtime.decide(run.run_id, Decision.per_call(digest(run), verdicts), actor=BOB)
        assert run.status is RunStatus.COMPLETED
    async with host.runtime([]) as runtime:
        (kept,) = await runtime.list_runs()
        assert kept.actor == INITIATOR
        (fact,) = await runtime.writes()
        assert (fact.correlation_id, str(fact.record), fact.kind) == (run.run_id, "pages:42", WriteKind.UPDATED)
        ended = {
            step.payload["tool"]: (step.payload["outcome"], step.payload["by"])
            for step in await runtime.list_steps(run.run_id)
            if step.kind is StepKind.TOOL
        }
        assert ended == {"set_description": ("succeeded", BOB.id), "add_element": ("denied", BOB.id)}
    said = rows(host, "select verdict, actor_id from byline_decision order by verdict")
    assert said == [("approve", BOB.id), ("deny", BOB.id)]


# -- who it was for


@pytest.mark.promise("P24")
async def test_the_person_stands_on_the_run_and_nowhere_else(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    events: list[AfterAiRecordWrittenEvent] = []
    with everything_logged(caplog):
        async with host.runtime([[SET, ADD], [SET], "Done."], listeners=[events.append]) as runtime:
            run = await runtime.run("editor", "See to page 42.", actor=INITIATOR, dedupe_key="nightly")
            run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
            run = await runtime.decide(run.run_id, Decision.deny(digest(run)), actor=BOB)
            assert run.status is RunStatus.COMPLETED
            facts = await runtime.writes()
            steps = await runtime.list_steps(run.run_id)
            for event in events:
                assert (await runtime.get_run(event.correlation_id)).actor == INITIATOR
    assert len(events) == len(facts) == 2
    person = INITIATOR.id
    for shown in (events, facts, steps, [pickle.dumps(event) for event in events]):
        assert person not in repr(shown)
    assert person not in caplog.text
    assert not [record for record in caplog.records if person in repr(record.__dict__)]
    found = {
        (table, column)
        for (table,) in rows(host, "select name from sqlite_master where type = 'table'")
        for (_, column, *_) in rows(host, f"select * from pragma_table_info('{table}')")  # noqa: S608
        if rows(host, f'select 1 from "{table}" where cast("{column}" as text) like \'%{person}%\'')  # noqa: S608
    }
    assert found == {("byline_run", "actor_id")}


@pytest.mark.promise("P24")
def test_event_and_fact_have_no_room_for_a_person() -> None:
    assert [field.name for field in dataclasses.fields(AfterAiRecordWrittenEvent)] == [
        "correlation_id",
        "record",
        "kind",
    ]
    assert {field.name for field in dataclasses.fields(WriteFact)} == {
        "cursor",
        "correlation_id",
        "record",
        "kind",
        "at",
    }


@pytest.mark.promise("P24")
async def test_who_disclosed_is_found_from_the_event_by_the_run(host: Host) -> None:
    """Two runs of two people on one page: each event leads to its own."""
    events: list[AfterAiRecordWrittenEvent] = []
    async with host.runtime([[SET], "Done."], listeners=[events.append]) as runtime:
        for actor in (INITIATOR, ALICE):
            run = await runtime.run("editor", "See to page 42.", actor=actor)
            await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        actors = [(await runtime.get_run(event.correlation_id)).actor for event in events]
        assert actors == [INITIATOR, ALICE]
        assert [fact.correlation_id for fact in await runtime.writes_of(RecordReference("pages", 42))] == [
            event.correlation_id for event in events
        ]
