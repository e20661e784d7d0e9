"""A request that cannot be honoured gets a clear, typed, short error before anything ran, and nothing is lost."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import cast
from uuid import UUID, uuid4

import pytest
from pydantic import JsonValue

from byline import (
    Agent,
    AgentRuntime,
    AiActorContext,
    AssistantMessage,
    BylineError,
    ConfigurationError,
    Decision,
    DedupeConflict,
    Deny,
    InvalidIdentifier,
    ModelAnswer,
    ModelCall,
    NativePart,
    NotDecidable,
    Reconciliation,
    RecordReference,
    Run,
    RunFinished,
    RunStatus,
    RuntimeClosed,
    SchemaMismatch,
    StoreError,
    ToolMessage,
    UnknownAgent,
    UnknownRun,
    UserMessage,
)
from byline.models.messages import Message
from byline.testing import ScriptedModel, allow_all
from tests.host import ALICE, BOB, Host
from tests.kernel.gate_entries import READ, SET, digest, pending

MEGABYTES = "x" * 10_000_000
HOSTILE: dict[str, object] = {
    "nothing": None,
    "empty": "",
    "blank": " \t\n",
    "a number": 42,
    "a truth": True,
    "bytes": b"editor",
    "a list": ["editor"],
    "ten megabytes": MEGABYTES,
    "a NUL": "edi\0tor",
    "half a surrogate pair": "edi\ud800tor",
    "a line break": "edi\ntor",
    "control characters": "\x1b[2J\x07",
    "SQL": "editor' or '1'='1",
    "a path": "../../etc/passwd",
    "a template": "{0.__class__} %s %(x)s",
}


def clear(error: BaseException) -> None:
    """Short, one line, and without what was handed in."""
    text = str(error)
    assert 0 < len(text) < 300
    assert text.isprintable()
    text.encode()


async def nothing_started(runtime: AgentRuntime, host: Host) -> None:
    assert await runtime.list_runs() == []
    assert host.executions() == 0


# -- agents


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("how", ["run", "enqueue"])
async def test_an_unknown_agent(host: Host, name: str, how: str) -> None:
    async with host.runtime([[SET], "Done."]) as runtime:
        start = runtime.run if how == "run" else runtime.enqueue
        with pytest.raises(UnknownAgent) as refused:
            await start(HOSTILE[name], "See to page 42.", actor=ALICE)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        clear(refused.value)
        await nothing_started(runtime, host)


@pytest.mark.parametrize("name", [name for name in HOSTILE if name not in ("SQL", "a path", "a template")])
def test_an_agent_s_name_that_does_not_print(name: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Agent(name=HOSTILE[name], model=ScriptedModel([]))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    clear(refused.value)


@pytest.mark.parametrize("name", ["SQL", "a path", "a template"])
async def test_an_odd_name_of_an_agent_is_a_name(host: Host, name: str) -> None:
    odd = str(HOSTILE[name])
    agent = Agent(name=odd, model=ScriptedModel([[SET], "Done."]), tools=host.tools())
    store = f"sqlite:///{host.path.parent / 'byline.db'}"
    async with AgentRuntime(store=store, agents=[agent], authority=allow_all) as runtime:
        run = await runtime.run(odd, "See to page 42.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, run.agent) == (RunStatus.COMPLETED, odd)
        assert [each.run_id for each in await runtime.list_runs(agent=odd)] == [run.run_id]


# -- runs and their ids


MALFORMED: dict[str, object] = HOSTILE | {
    "a short id": "0" * 31,
    "a long id": "0" * 33,
    "an id that is none": "g" * 32,
    "a float": 4.2,
    "an id's bytes": UUID(int=1).bytes,
    "a call": READ,
}

ASKING: dict[str, Callable[[AgentRuntime, object], Awaitable[object]]] = {
    "execute": lambda runtime, run_id: runtime.execute(run_id),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "decide": lambda runtime, run_id: runtime.decide(run_id, Decision.approve("0"), actor=BOB),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "reconcile": lambda runtime, run_id: runtime.reconcile(run_id, Reconciliation.leave_it("0"), actor=BOB),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "cancel": lambda runtime, run_id: runtime.cancel(run_id, actor=BOB),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "verify": lambda runtime, run_id: runtime.verify(run_id),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "retry": lambda runtime, run_id: runtime.retry(run_id),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "get_run": lambda runtime, run_id: runtime.get_run(run_id),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "list_steps": lambda runtime, run_id: runtime.list_steps(run_id),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("asked", ASKING)
async def test_a_malformed_or_unknown_run(host: Host, asked: str) -> None:
    async with host.runtime([[SET], "Done."]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        for malformed in MALFORMED.values():
            with pytest.raises(InvalidIdentifier) as refused:
                await ASKING[asked](runtime, malformed)
            clear(refused.value)
        for unknown in (uuid4(), UUID(int=0), str(uuid4())):
            with pytest.raises(UnknownRun) as refused_as_unknown:
                await ASKING[asked](runtime, unknown)
            clear(refused_as_unknown.value)
        assert pending(await runtime.get_run(str(run.run_id))) == pending(run)
        assert host.executions() == 0


@pytest.mark.parametrize("after", [each for each in MALFORMED if each != "nothing"])
async def test_a_malformed_place_to_list_from(host: Host, after: str) -> None:
    async with host.runtime(["Done."]) as runtime:
        with pytest.raises(InvalidIdentifier) as refused:
            await runtime.list_runs(after=MALFORMED[after])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        clear(refused.value)
        with pytest.raises(InvalidIdentifier) as refused:
            await runtime.writes(after=MALFORMED[after])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        clear(refused.value)


@pytest.mark.parametrize("limit", [0, -1, 1_001, 10**30, True, "10", 1.0, None], ids=repr)
async def test_a_limit_that_is_none(host: Host, limit: object) -> None:
    async with host.runtime(["Done."]) as runtime:
        run = await runtime.run("editor", "Say something.", actor=ALICE)
        for listing in (
            lambda: runtime.list_runs(limit=limit),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
            lambda: runtime.list_steps(run.run_id, limit=limit),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
            lambda: runtime.writes(limit=limit),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
            lambda: runtime.writes_of(RecordReference("pages", 42), limit=limit),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        ):
            with pytest.raises(InvalidIdentifier) as refused:
                await listing()
            clear(refused.value)


# -- prompts, dedupe keys, reasons, histories


@pytest.mark.parametrize("prompt", [None, "", " \n", 42, b"See", MEGABYTES, ["See"]], ids=lambda one: repr(one)[:10])
async def test_a_prompt_that_is_none(host: Host, prompt: object) -> None:
    async with host.runtime(["Done."]) as runtime:
        with pytest.raises(InvalidIdentifier) as refused:
            await runtime.run("editor", prompt, actor=ALICE)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        clear(refused.value)
        await nothing_started(runtime, host)


@pytest.mark.parametrize("prompt", ["a\0b", "half \ud800 of it", "\x1b[2J", "🕰" * 1_000], ids=ascii)
async def test_an_odd_prompt_is_a_prompt(host: Host, prompt: str) -> None:
    model = ScriptedModel([[READ], [SET], "Done."])
    async with host.runtime(model) as runtime:
        run = await runtime.run("editor", prompt, actor=ALICE)
    async with host.runtime(model) as runtime:
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert run.status is RunStatus.COMPLETED
    heard = model.requests[-1].messages[0]
    assert isinstance(heard, UserMessage)
    assert heard.text == prompt.encode("utf-8", "replace").decode()


@pytest.mark.parametrize("key", [each for each in HOSTILE if each not in ("nothing", "SQL", "a path", "a template")])
async def test_a_dedupe_key_that_is_none(host: Host, key: str) -> None:
    async with host.runtime(["Done."]) as runtime:
        with pytest.raises(InvalidIdentifier) as refused:
            await runtime.run("editor", "See to it.", actor=ALICE, dedupe_key=HOSTILE[key])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        clear(refused.value)
        await nothing_started(runtime, host)


@pytest.mark.parametrize("key", ["editor' or '1'='1", "../../etc/passwd", "{0} %s", "🕰", "k" * 255])
async def test_an_odd_dedupe_key_is_a_key(host: Host, key: str) -> None:
    async with host.runtime(["Done."]) as runtime:
        first = await runtime.run("editor", "See to it.", actor=ALICE, dedupe_key=key)
        again = await runtime.run("editor", "See to it again.", actor=ALICE, dedupe_key=key)
        other = await runtime.run("editor", "See to it.", actor=ALICE, dedupe_key=key[:-1] + "z")
        assert (again.run_id, other.run_id != first.run_id) == (first.run_id, True)
        with pytest.raises(DedupeConflict) as refused:
            await runtime.run("editor", "See to it.", actor=BOB, dedupe_key=key)
        clear(refused.value)


@pytest.mark.parametrize("reason", [None, 42, b"No.", ["No."], "x" * 2_001, MEGABYTES], ids=lambda one: repr(one)[:10])
def test_a_reason_that_is_none(reason: object) -> None:
    with pytest.raises(InvalidIdentifier) as refused:
        Deny(reason)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    clear(refused.value)
    with pytest.raises(InvalidIdentifier):
        Decision.deny("0" * 64, reason)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("reason", ["a\0b", "half \ud800 of it", "\x1b[2J", "🕰" * 2_000, "'; drop table"], ids=ascii)
async def test_an_odd_reason_reaches_the_model(host: Host, reason: str) -> None:
    model = ScriptedModel([[SET], "I see."])
    async with host.runtime(model) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.deny(digest(run), reason), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 0)
    told = model.requests[-1].messages[-1]
    assert isinstance(told, ToolMessage)
    assert told.text.endswith(reason.encode("utf-8", "replace").decode())


NO_HISTORY: dict[str, Sequence[object]] = {
    "texts": ["Hello."],
    "nothings": [None],
    "dicts": [{"role": "user", "text": "Hello."}],
    "a text that is none": [UserMessage(42)],  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "a call that is none": [AssistantMessage(ModelAnswer(calls=("read_page",)), (uuid4(),))],  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    "arguments that are none": [
        AssistantMessage(ModelAnswer(calls=(ModelCall("read_page", {}),)), (uuid4(),))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    ],
    "a native part that JSON cannot hold": [
        AssistantMessage(ModelAnswer("x", native=NativePart("a", "1", cast("JsonValue", {"x": {1}}))))
    ],
}


@pytest.mark.parametrize("given", NO_HISTORY)
async def test_a_history_that_is_none(host: Host, given: str) -> None:
    async with host.runtime(["Done."]) as runtime:
        with pytest.raises(InvalidIdentifier, match="history") as refused:
            await runtime.run("editor", "Go on.", actor=ALICE, history=NO_HISTORY[given])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        clear(refused.value)
        await nothing_started(runtime, host)


async def test_an_odd_history_is_a_history(host: Host) -> None:
    """Half a surrogate pair in it is made a question mark; a call in it that has no result is not run."""
    model = ScriptedModel(["Done."], earlier_answers=2)
    history: list[Message] = [
        UserMessage("half \ud800 of it"),
        AssistantMessage(ModelAnswer("half \ud800 of it")),
        AssistantMessage(ModelAnswer(calls=(SET,)), (uuid4(),)),
    ]
    async with host.runtime(model) as runtime:
        run = await runtime.run("editor", "Go on.", actor=ALICE, history=history)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 0)
    first = model.requests[-1].messages[0]
    assert isinstance(first, UserMessage)
    assert first.text == "half ? of it"


# -- actors


@pytest.mark.parametrize("name", [each for each in HOSTILE if each not in ("SQL", "a path", "a template")])
def test_an_actor_s_id_that_is_none(name: str) -> None:
    with pytest.raises(InvalidIdentifier) as refused:
        AiActorContext(HOSTILE[name])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    clear(refused.value)


@pytest.mark.parametrize("actor_id", ["editor' or '1'='1", "../../etc/passwd", "{0} %s", "jörg@example.org", "🕰" * 60])
async def test_an_odd_id_of_an_actor_is_an_id(host: Host, actor_id: str) -> None:
    async with host.runtime([[SET], "Done."]) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=AiActorContext.user(actor_id))
        approver = AiActorContext.user(actor_id[:-1] + "z", grants=BOB.grants)
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=approver)
        assert (run.status, run.actor.id, host.executions()) == (RunStatus.COMPLETED, actor_id, 1)


# -- a runtime that is not open, and a store that cannot be used


async def test_a_runtime_that_is_not_open(host: Host) -> None:
    runtime = host.runtime([[SET], "Done."])
    with pytest.raises(RuntimeClosed) as refused:
        await runtime.run("editor", "See to page 42.", actor=ALICE)
    clear(refused.value)
    async with runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        with pytest.raises(ConfigurationError):
            await runtime.__aenter__()
    with pytest.raises(RuntimeClosed):
        await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
    async with runtime:
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


async def test_a_runtime_is_open_on_one_event_loop(host: Host) -> None:
    async def list_runs() -> None:
        await runtime.list_runs()

    def elsewhere() -> None:
        asyncio.run(list_runs())

    async with host.runtime([[SET], "Done."]) as runtime:
        with pytest.raises(RuntimeClosed):
            await asyncio.to_thread(elsewhere)
        with pytest.raises(RuntimeClosed):
            runtime.sync.list_runs()


def _directory(path: Path) -> None:
    path.mkdir()


def _no_database(path: Path) -> None:
    path.write_bytes(b"This is no database." * 1_000)


def _newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("create table byline_revision (version_num varchar(32) not null primary key)")
        database.execute("insert into byline_revision values ('9999')")


@pytest.mark.parametrize(
    "spoil, error, named",
    [(_directory, StoreError, "byline.db"), (_no_database, StoreError, "byline.db"), (_newer, SchemaMismatch, "9999")],
    ids=["directory", "no database", "newer"],
)
async def test_a_store_that_cannot_be_used(
    host: Host, spoil: Callable[[Path], None], error: type[BylineError], named: str
) -> None:
    spoil(host.path.parent / "byline.db")
    runtime = host.runtime(["Done."])
    with pytest.raises(error) as refused:
        async with runtime:
            raise AssertionError("never open")
    assert named in str(refused.value)
    with pytest.raises(RuntimeClosed):
        await runtime.list_runs()
    with pytest.raises(error):
        await asyncio.to_thread(runtime.sync.__enter__)


@pytest.mark.parametrize(
    "store", ["", "byline.db", "postgresql:", "sqlite", "nosuch:///byline.db", "\ud800"], ids=ascii
)
def test_a_store_that_is_no_url(host: Host, store: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        host.runtime(["Done."], store=store)
    clear(refused.value)


# -- the same by the sync mirror


def test_the_sync_mirror_raises_the_same(host: Host) -> None:
    def refuses(ask: Callable[[], Run], error: type[BylineError]) -> None:
        with pytest.raises(error) as refused:
            ask()
        clear(refused.value)

    with host.runtime([[SET], "Done."]).sync as runtime:
        run = runtime.run("editor", "See to page 42.", actor=ALICE)
        refuses(lambda: runtime.run("nobody", "See to page 42.", actor=ALICE), UnknownAgent)
        refuses(lambda: runtime.run("editor", "", actor=ALICE), InvalidIdentifier)
        refuses(lambda: runtime.get_run("x"), InvalidIdentifier)
        refuses(lambda: runtime.get_run(uuid4()), UnknownRun)
        refuses(lambda: runtime.decide(run.run_id, Decision.approve(""), actor=BOB), NotDecidable)
        run = runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        refuses(lambda: runtime.cancel(run.run_id, actor=ALICE), RunFinished)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)
