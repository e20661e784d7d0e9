"""An authority that does not clearly say yes says no: it raises, hangs, or answers something else."""

import asyncio
import logging
from pathlib import Path

import pytest

from byline import (
    AiActorContext,
    Decision,
    ProposedCall,
    RunStatus,
)
from tests.host import ALICE, BOB, Host
from tests.kernel.gate_entries import SET, digest, pending
from tests.kernel.gate_people import Directory, directory, refused


class Raising(Directory):
    """An authority that fails in one of its answers."""

    def __init__(self, error: BaseException, *, question: str) -> None:
        super().__init__({"7": ALICE, "8": BOB})
        self.error: BaseException | None = error
        self.question = question

    def load(self, actor_id: str, /) -> AiActorContext | None:
        if self.error is not None and self.question == "load":
            raise self.error
        return super().load(actor_id)

    def may_run(self, actor: AiActorContext, call: ProposedCall, /) -> bool:
        if self.error is not None and self.question == "may_run":
            raise self.error
        return super().may_run(actor, call)


class AsyncRaising(Raising):
    """The same, as coroutines."""

    async def load(self, actor_id: str, /) -> AiActorContext | None:  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]
        await asyncio.sleep(0)
        return super().load(actor_id)

    async def may_run(self, actor: AiActorContext, call: ProposedCall, /) -> bool:  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]
        await asyncio.sleep(0)
        return super().may_run(actor, call)


@pytest.mark.promise("P14")
@pytest.mark.parametrize(
    "error",
    [ValueError("secret"), SystemExit(1), asyncio.CancelledError(), TimeoutError(), StopIteration()],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("question", ["load", "may_run"])
@pytest.mark.parametrize("kind", [Raising, AsyncRaising])
async def test_an_authority_that_raises_says_no(
    host: Host, kind: type[Raising], question: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    people = kind(error, question=question)
    async with host.runtime([[SET], "Done."], authority=people) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        with caplog.at_level(logging.DEBUG):
            await refused(host, runtime, run, Decision.approve(digest(run)), BOB)
        (logged,) = [record for record in caplog.records if getattr(record, "action", "") == "authority_failed"]
        assert logged.levelno == logging.ERROR
        assert question in logged.getMessage()
        assert Path(__file__).name in logged.getMessage()
        assert "secret" not in caplog.text
        people.error = None
        run = await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert (run.status, host.executions()) == (RunStatus.COMPLETED, 1)


class Vague(Directory):
    """An authority that answers something else than it is asked."""

    def __init__(self, answer: object) -> None:
        super().__init__({"7": ALICE, "8": BOB})
        self.answer = answer

    def may_run(self, actor: AiActorContext, call: ProposedCall, /) -> bool:
        return self.answer  # type: ignore[return-value] # pyright: ignore[reportReturnType]


@pytest.mark.promise("P14")
@pytest.mark.parametrize("answer", [None, "yes", 1, [True], object(), False], ids=lambda answer: type(answer).__name__)
async def test_only_true_is_yes(host: Host, answer: object) -> None:
    async with host.runtime([[SET], "Done."], authority=Vague(answer)) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        await refused(host, runtime, run, Decision.approve(digest(run)), BOB)


@pytest.mark.promise("P14")
@pytest.mark.parametrize("loaded", ["8", True, {"id": "8"}, ALICE], ids=repr)
async def test_only_the_person_themselves_is_who_was_loaded(host: Host, loaded: object) -> None:
    people = directory(ALICE, BOB)
    people.known["8"] = loaded  # type: ignore[assignment] # pyright: ignore[reportArgumentType]
    async with host.runtime([[SET], "Done."], authority=people) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        await refused(host, runtime, run, Decision.approve(digest(run)), BOB)


class Hanging(Directory):
    """An authority that never answers."""

    async def load(self, actor_id: str, /) -> AiActorContext | None:  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]
        await asyncio.Event().wait()
        return None


@pytest.mark.promise("P14")
async def test_an_authority_that_hangs_says_no(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byline.approval.gate.AUTHORITY_TIMEOUT", 0.05)
    async with host.runtime([[SET], "Done."], authority=Hanging()) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        await refused(host, runtime, run, Decision.approve(digest(run)), BOB)


@pytest.mark.promise("P14")
async def test_a_caller_who_gives_up_asking_is_not_a_no(host: Host) -> None:
    async with host.runtime([[SET], "Done."], authority=Hanging()) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await runtime.decide(run.run_id, Decision.approve(digest(run)), actor=BOB)
        assert pending(await runtime.get_run(run.run_id)) == pending(run)
        assert host.executions() == 0
