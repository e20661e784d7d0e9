"""A model that fails: asked again after a while if that may help, told of if it does not, and never for ever."""

import asyncio
import errno
import math
import random
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from uuid import UUID, uuid4

import pytest

from byline import (
    AgentRuntime,
    Backoff,
    ConfigurationError,
    ContextTooLong,
    Decision,
    Fence,
    ModelAccessDenied,
    ModelAnswer,
    ModelError,
    ModelRateLimited,
    ModelRefused,
    ModelRequest,
    ModelUnavailable,
    ModelUnreachable,
    Run,
    RunStatus,
    Step,
    StepKind,
    TerminationReason,
    ToolEffect,
    UncertaintyReason,
)
from byline.models.scripted import Reply
from byline.runtime import executor
from byline.store.protocol import Claim, NewRun, SetFence
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import LEASE, Clock, die_after_claim, die_in_write, left_queued, store_of, unknown, waiting
from tests.kernel.stopping import ADD, READ, SET
from tests.kernel.test_work import working

AT_ONCE = Backoff(first=0.001, longest=0.001)
LATER = Backoff(first=1_000, longest=1_000)
PASSING = [
    ModelUnreachable(),
    ModelRateLimited(),
    ModelUnavailable(),
    ConnectionError("reset"),
    TimeoutError(),
    OSError(errno.EHOSTUNREACH, "no route"),
]
"""What asking again may mend."""
LASTING = [
    ModelError("HTTP 400"),
    ModelAccessDenied(),
    ModelRefused(),
    ContextTooLong(),
    ValueError("what is this?"),
    FileNotFoundError(errno.ENOENT, "no such file", "prompts.txt"),
    SystemExit(1),
    asyncio.CancelledError(),
]
"""What it does not."""


class Moody:
    """A model that plays what it was given, an error or an answer, whatever was said; and says when it was asked."""

    def __init__(self, *moods: BaseException | Reply) -> None:
        self.moods = list(moods)
        self.asked: list[float] = []

    async def answer(self, request: ModelRequest, /) -> ModelAnswer:
        self.asked.append(time.monotonic())
        mood = self.moods.pop(0)
        if isinstance(mood, BaseException):
            raise mood
        if isinstance(mood, ModelAnswer | str):
            return ModelAnswer(mood) if isinstance(mood, str) else mood
        return ModelAnswer(calls=tuple(mood))


def named(error: BaseException) -> str:
    return type(error).__name__


def failures(count: int) -> list[ModelError]:
    return [ModelUnavailable() for _ in range(count)]


async def of_model(runtime: AgentRuntime, run: Run) -> Sequence[Step]:
    return [step for step in await runtime.list_steps(run.run_id) if step.kind is StepKind.MODEL]


def due_in(run: Run, clock: Clock) -> float:
    """Seconds until a run whose model failed is due, and that it says so."""
    assert (run.status, run.reason) == (RunStatus.QUEUED, TerminationReason.MODEL_FAILED)
    assert run.problem is not None
    assert run.due_at is not None
    return run.due_at.timestamp() - clock.now


# -- whether it is asked again


@pytest.mark.promise("P20", "P21")
@pytest.mark.parametrize("error", PASSING, ids=named)
async def test_what_may_pass_is_asked_again_and_each_failure_leaves_a_step(host: Host, error: Exception) -> None:
    model = Moody([READ], error, error, "Done.")
    async with host.runtime(model, backoff=AT_ONCE) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        assert (run.status, run.output, run.problem, run.due_at) == (RunStatus.COMPLETED, "Done.", None, None)
        assert (len(model.asked), host.executions()) == (4, 1)
        failed = [step.payload["failed"] for step in await of_model(runtime, run) if "failed" in step.payload]
        assert failed == [_kind(error)] * 2


def _kind(error: Exception) -> str:
    return "ModelUnreachable" if isinstance(error, TimeoutError) else type(error).__name__


@pytest.mark.promise("P21")
@pytest.mark.parametrize("error", LASTING, ids=named)
async def test_what_does_not_pass_is_not_asked_again(host: Host, error: BaseException) -> None:
    model = Moody([READ], error, "Done.")
    async with host.runtime(model, backoff=AT_ONCE) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        assert (run.status, run.reason) == (RunStatus.DEAD_LETTER, TerminationReason.NOT_RETRYABLE)
        assert len(model.asked) == 2
        *_, failed, settled = await runtime.list_steps(run.run_id)
        assert (failed.kind, dict(failed.payload)) == (StepKind.MODEL, {"failed": type(error).__name__})
        assert dict(settled.payload) == {"status": "dead_letter", "reason": "not_retryable"}


@pytest.mark.promise("P21")
async def test_no_answer_in_time_is_asked_for_again(host: Host) -> None:
    hung = asyncio.Event()
    asked = 0

    async def answer(_request: ModelRequest) -> Reply:
        nonlocal asked
        asked += 1
        if asked == 1:
            await hung.wait()
        return "Done."

    async with host.runtime([answer], agent={"model_timeout": 0.05}, backoff=AT_ONCE) as runtime:
        run = await runtime.run("editor", "Well?", actor=ALICE)
        assert (run.output, asked) == ("Done.", 2)
        failed, _ = await of_model(runtime, run)
        assert dict(failed.payload) == {"failed": "ModelUnreachable"}


@pytest.mark.promise("P20", "P21")
@pytest.mark.parametrize("most", [0, 2])
async def test_its_budget_ends(host: Host, most: int) -> None:
    """And what the provider said each time is sealed with the step."""
    model = Moody(*[ModelUnavailable("busy", detail="all lines are busy")] * 4)
    async with host.runtime(model, backoff=AT_ONCE, max_model_failures=most) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        assert (run.status, run.reason) == (RunStatus.DEAD_LETTER, TerminationReason.RETRIES_EXHAUSTED)
        steps = await of_model(runtime, run)
        assert len(model.asked) == len(steps) == most + 1
        assert {step.detail for step in steps} == {"busy\nall lines are busy"}


@pytest.mark.promise("P21", "P19")
async def test_progress_restores_its_budget(host: Host) -> None:
    """An answer is progress, within a segment or before it; so is the result of a call."""
    model = Moody(*failures(2), [READ], *failures(2), [SET], *failures(2), "Done.")
    async with host.runtime(model, backoff=AT_ONCE, max_model_failures=2) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        assert (run.status, run.output, len(model.asked)) == (RunStatus.COMPLETED, "Done.", 9)
        assert host.executions() == 2


@pytest.mark.promise("P20", "P21")
async def test_it_spends_no_take_over(host: Host) -> None:
    """Nor does a take-over spend a failure: a process may die after as many as there may be."""
    clock = Clock()
    model = Moody([SET], *failures(3), "Done.")
    run_id = await left_queued(host, model, clock)

    def restarted() -> AgentRuntime:
        return host.runtime(model, store=store_of(host, clock), backoff=LATER, max_takeovers=1, max_model_failures=3)

    for _ in range(3):
        async with restarted() as runtime:
            assert (await runtime.recover()).executed == (run_id,)
            clock.now += due_in(await runtime.get_run(run_id), clock)
    die_after_claim(host, run_id, clock)
    async with restarted() as runtime:
        assert (await runtime.recover()).executed == (run_id,)
        assert (await runtime.get_run(run_id)).output == "Done."
        assert host.executions() == 1


@pytest.mark.promise("P21")
@pytest.mark.parametrize("error", [ModelAccessDenied(), ModelUnavailable()], ids=named)
async def test_a_dead_letter_is_retried_with_its_budget_restored(host: Host, error: ModelError) -> None:
    """And a worker picks it up."""
    model = Moody([READ], error, ModelUnavailable(), "Done.")
    async with host.runtime(model, max_model_failures=0) as runtime:
        run = await runtime.run("editor", "See to page 42.", actor=ALICE)
        assert run.status is RunStatus.DEAD_LETTER
    async with host.runtime(model, execution="queued", max_model_failures=1, backoff=AT_ONCE) as runtime:
        assert (await runtime.retry(run.run_id)).status is RunStatus.QUEUED
        async with working(runtime, poll=0.01):
            assert (await ended(runtime, run.run_id)).output == "Done."
        assert host.executions() == 1


@pytest.mark.promise("P21")
async def test_a_spent_budget_is_restored_by_a_retry(host: Host) -> None:
    """Its model may fail as often again as before it went to dead letter."""
    model = Moody(*failures(5), "Done.")
    async with host.runtime(model, backoff=AT_ONCE, max_model_failures=2) as runtime:
        run = await runtime.run("editor", "Please do.", actor=ALICE)
        assert (run.reason, len(model.asked)) == (TerminationReason.RETRIES_EXHAUSTED, 3)
        assert ((await runtime.retry(run.run_id)).output, len(model.asked)) == ("Done.", 6)


async def ended(runtime: AgentRuntime, run_id: UUID) -> Run:
    """Wait until a run has settled."""
    async with asyncio.timeout(20):
        while (run := await runtime.get_run(run_id)).status in (RunStatus.QUEUED, RunStatus.RUNNING):  # noqa: ASYNC110 - workers move it
            await asyncio.sleep(0.005)
    return run


# -- when


@pytest.mark.promise("P21", "P17")
async def test_before_it_is_due_nobody_asks(host: Host) -> None:
    """Whoever looks, whoever is told: two runtimes, and each wake-up doubled."""
    clock = Clock()
    model = Moody(ModelRateLimited(retry_after=30), "Done.")
    one, two = (host.runtime(model, store=store_of(host, clock), execution="queued", backoff=AT_ONCE) for _ in range(2))
    async with one, two:
        run = await one.enqueue("editor", "Please do.", actor=ALICE)
        run = await one.execute(run.run_id)
        assert 30 <= due_in(run, clock) <= 30.001
        assert run.problem == "its model failed (ModelRateLimited)"
        clock.now += 29.9
        for runtime in (one, two):
            assert (await runtime.recover()).executed == ()
            assert await runtime.execute(run.run_id) == run
        assert len(model.asked) == 1
        clock.now += 0.2
        assert (await two.recover()).executed == (run.run_id,)
        assert (await one.get_run(run.run_id)).output == "Done."


@pytest.mark.promise("P17", "P18", "P21")
@pytest.mark.parametrize("workers", [1, 2])
async def test_workers_ask_again_when_it_is_due_and_not_before(host: Host, workers: int) -> None:
    patience = 0.15
    model = Moody(*[ModelRateLimited(retry_after=patience)] * 3, "Done.")
    one, two = (host.runtime(model, execution="queued", backoff=AT_ONCE) for _ in range(2))
    async with one, two:
        run = await one.enqueue("editor", "Please do.", actor=ALICE)
        async with AsyncExitStack() as at_work:
            for runtime in (one, two)[:workers]:
                await at_work.enter_async_context(working(runtime, poll=0.005))
            assert (await ended(one, run.run_id)).output == "Done."
    gaps = [later - before for before, later in zip(model.asked, model.asked[1:], strict=False)]
    assert len(gaps) == 3
    assert min(gaps) >= patience


@pytest.mark.promise("P21")
@pytest.mark.parametrize(
    "asked, least, most",
    [
        (0.5, 0.5, 1.5),
        (3_600.0, 3_600.0, 3_601.0),
        (-5.0, 0.0, 1.0),
        (math.nan, 0.0, 1.0),
        (math.inf, 3_600.0, 3_601.0),
        (10**400, 3_600.0, 3_601.0),
        ("soon", 0.0, 1.0),
        (None, 0.0, 1.0),
    ],
)
async def test_what_a_provider_asks_for_is_granted_within_reason(
    host: Host, asked: float | None, least: float, most: float
) -> None:
    clock = Clock()
    model = Moody(ModelRateLimited(retry_after=asked))
    async with host.runtime(
        model, store=store_of(host, clock), execution="queued", backoff=Backoff(first=1)
    ) as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        assert least <= due_in(await runtime.execute(run.run_id), clock) <= most


@pytest.mark.promise("P21")
async def test_it_waits_longer_after_each_failure_and_never_as_long_as_others(host: Host) -> None:
    """Full jitter: anything from nothing to the double of what it was before."""
    random.seed(7)
    clock, backoff = Clock(), Backoff(first=2, longest=12)
    most: list[float] = []
    for count in range(1, 6):
        waits = [backoff.after(count) for _ in range(2_000)]
        assert min(waits) < 0.01 * max(waits)
        most.append(max(waits))
    assert most == pytest.approx([2, 4, 8, 12, 12], rel=0.01)
    assert backoff.after(10**6, 30) <= 42

    async with host.runtime(
        Moody(*failures(40)), store=store_of(host, clock), execution="queued", backoff=backoff, max_model_failures=40
    ) as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        waited: list[float] = []
        for _ in range(40):
            waited.append(due_in(await runtime.execute(run.run_id), clock))
            clock.now += waited[-1]
        assert waited[0] <= 2
        assert waited[1] <= 4
        assert 8 < max(waited) <= 12
        assert "40 times without progress" in str((await runtime.get_run(run.run_id)).problem)


@pytest.mark.parametrize(
    "wrong",
    [{"first": 0}, {"first": -1}, {"longest": math.nan}, {"longest": math.inf}, {"first": True}],
)
def test_a_backoff_that_cannot_work_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        Backoff(**wrong)


@pytest.mark.parametrize("most", [-1, 1.5, True, None])
def test_a_budget_that_cannot_work_is_refused(host: Host, most: int) -> None:
    with pytest.raises(ConfigurationError, match="max_model_failures"):
        host.runtime([], max_model_failures=most)
    with pytest.raises(ConfigurationError, match="Backoff"):
        host.runtime([], backoff=most)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


# -- whoever waits for it


@pytest.mark.promise("P21")
@pytest.mark.parametrize("entry", ["run", "decide", "execute", "retry"])
async def test_whoever_waits_for_a_run_waits_for_its_model(host: Host, entry: str) -> None:
    model = Moody([SET], *failures(1), "Done.")
    if entry == "retry":
        model.moods.insert(1, ModelAccessDenied())
    async with host.runtime(model, backoff=AT_ONCE) as runtime:
        if entry == "run":
            model.moods.pop(0)
            run = await runtime.run("editor", "Please do.", actor=ALICE)
        elif entry == "execute":
            model.moods.pop(0)
            run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
            run = await runtime.execute(run.run_id)
        else:
            run = await runtime.run("editor", "Please do.", actor=ALICE)
            run = await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)
        if entry == "retry":
            assert run.status is RunStatus.DEAD_LETTER
            run = await runtime.retry(run.run_id)
        assert (run.status, run.output) == (RunStatus.COMPLETED, "Done.")


@pytest.mark.promise("P21")
async def test_nobody_is_kept_waiting_for_long(host: Host) -> None:
    """The run comes back as it stands, and says when it goes on, and why not now."""
    clock = Clock()
    model = Moody(ModelRateLimited(retry_after=61), "Done.")
    async with host.runtime(model, store=store_of(host, clock)) as runtime:
        async with asyncio.timeout(10):
            run = await runtime.run("editor", "Please do.", actor=ALICE)
            assert due_in(run, clock) >= 61
            assert await runtime.execute(run.run_id) == run
        clock.now += 65
        assert (await runtime.execute(run.run_id)).output == "Done."


@pytest.mark.promise("P22", "P21")
@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_a_cancel_ends_the_wait(host: Host, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody asks the model again. A cancel here is heard of at once; another is seen at the next look."""
    monkeypatch.setattr(executor, "LOOK_AGAIN", 50 if where == "here" else 0.05)
    backoff = Backoff(first=50, longest=50)
    async with host.runtime(model := Moody(*failures(1)), backoff=backoff) as here, host.runtime([]) as elsewhere:
        running, run = await postponed(here, model)
        cancelling = here if where == "here" else elsewhere
        async with asyncio.timeout(10):
            assert (await cancelling.cancel(run.run_id, actor=ALICE)).status is RunStatus.CANCELLED
            assert (await running).status is RunStatus.CANCELLED
        assert len(model.asked) == 1


@pytest.mark.promise("P22", "P21")
async def test_a_caller_who_goes_away_ends_the_wait(host: Host) -> None:
    """The run stays due when it was, unclaimed, and is left to whoever looks."""
    model = Moody(ModelRateLimited(retry_after=0.5), "Done.")
    async with host.runtime(model, backoff=AT_ONCE) as runtime:
        running, run = await postponed(runtime, model)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await runtime.get_run(run.run_id) == run
        await asyncio.sleep(0.7)  # had anybody waited, the run would be claimed by now
        assert await runtime.get_run(run.run_id) == run
        assert (runtime.store.get(run.run_id).claim, len(model.asked)) == (1, 1)
        assert (await runtime.recover()).executed == (run.run_id,)


@pytest.mark.promise("P21")
async def test_closing_ends_the_wait(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waited is given the run as it stands, and another process goes on with it when it is due."""
    monkeypatch.setattr(executor, "LOOK_AGAIN", 50)
    runtime = host.runtime(model := Moody(*failures(1)), backoff=Backoff(first=50, longest=50))
    await runtime.__aenter__()
    running, run = await postponed(runtime, model)
    async with asyncio.timeout(5):
        await runtime.__aexit__(None, None, None)
        assert await running == run
    async with host.runtime(["Done."], execution="queued") as later:
        assert (await later.recover()).executed == ()
        assert await later.get_run(run.run_id) == run
        assert later.store.get(run.run_id).claim == 1


async def postponed(runtime: AgentRuntime, model: Moody) -> tuple["asyncio.Task[Run]", Run]:
    """A call that waits for the model of its run, which is due in more than a moment."""
    random.seed(7)  # at first a third of the most
    running = asyncio.create_task(runtime.run("editor", "Please do.", actor=ALICE))
    async with asyncio.timeout(20):
        while not model.asked or (run := (await runtime.list_runs())[0]).status is RunStatus.RUNNING:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.005)
    assert not running.done()
    assert run.due_at is not None
    assert run.due_at > run.updated_at
    return running, run


# -- the fence first


@pytest.mark.promise("P9", "P20")
@pytest.mark.parametrize("error", [ModelUnavailable(), ModelAccessDenied()], ids=named)
async def test_a_write_is_settled_before_its_model_is_asked(host: Host, error: ModelError) -> None:
    """An idempotent one by running it again; then the model fails, and its run has no fence any more."""
    clock, model = Clock(), Moody([SET], error)
    run_id = await left_queued(host, model, clock)
    die_in_write(host, run_id, clock)
    async with host.runtime(model, store=store_of(host, clock), execution="queued", backoff=LATER) as runtime:
        run = await runtime.execute(run_id)
        assert run.status is (RunStatus.QUEUED if error.retryable else RunStatus.DEAD_LETTER)
        assert runtime.store.get(run_id).fence is None
        assert (host.executions(), host.heard()) == (1, [("pages:42", "updated")])


@pytest.mark.promise("P9", "P20")
async def test_while_a_write_is_unknown_no_model_is_asked(host: Host) -> None:
    clock, model = Clock(), Moody([ADD], ModelUnavailable())
    run_id = await left_queued(host, model, clock)
    die_in_write(host, run_id, clock)
    async with host.runtime(model, store=store_of(host, clock), execution="queued", backoff=LATER) as runtime:
        assert unknown(await runtime.execute(run_id)).reason is UncertaintyReason.INTERRUPTED
        assert len(model.asked) == 1


@pytest.mark.promise("P9")
@pytest.mark.parametrize("error", [ModelUnavailable(), ModelAccessDenied()], ids=named)
async def test_a_fence_whose_call_is_not_in_the_transcript_is_uncertain_all_the_same(
    host: Host, error: ModelError
) -> None:
    """No segment leaves that behind. If a row says so all the same, a failure of its model settles nothing."""
    clock = Clock()
    store = store_of(host, clock)
    store.open()
    new = NewRun(run_id=uuid4(), agent="editor", actor=ALICE, messages=())
    claim = store.create(new, lease=LEASE)
    assert isinstance(claim, Claim)
    fence = Fence(uuid4(), SET.name, ToolEffect.IDEMPOTENT_WRITE, 1)
    store.advance(claim, SetFence(fence), at=0, revision=0)
    store.close()
    clock.let_leases_expire()
    async with host.runtime(Moody(error), store=store_of(host, clock), execution="queued") as runtime:
        run = await runtime.execute(new.run_id)
        assert unknown(run).fence == fence
