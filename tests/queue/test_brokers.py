"""Real workers of Celery and Taskiq, over RabbitMQ. Where nobody looks by themselves, what is executed was told of."""

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import pytest

from byline import AgentRuntime, ConfigurationError, Decision, Run, RunStatus, StepKind, Wakeup
from byline.queue.celery import CeleryWakeup
from byline.queue.celery import register_tasks as register_celery
from byline.queue.consuming import checked_builder
from byline.queue.taskiq import TaskiqWakeup
from byline.queue.taskiq import register_tasks as register_taskiq
from byline.runtime.wakeup import send
from tests.host import ALICE, BOB, Host
from tests.kernel.entries import until, waiting
from tests.queue.gate import PATIENCE
from tests.queue.line import Line, line_of
from tests.queue.program import LEASE, SCRIPTS, celery_app, taskiq_broker

BUSY = (RunStatus.QUEUED, RunStatus.RUNNING)


async def _left(runtime: AgentRuntime, run: Run, *statuses: RunStatus) -> Run:
    """Wait until a run has left these statuses."""
    async with asyncio.timeout(PATIENCE):
        while (run := await runtime.get_run(run.run_id)).status in statuses:  # noqa: ASYNC110 - another process moves it
            await asyncio.sleep(0.02)
    return run


async def _approved(runtime: AgentRuntime) -> Run:
    """A run that somebody executes as far as its write, and that is approved then."""
    run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
    run = await _left(runtime, run, *BUSY)
    return await runtime.decide(run.run_id, Decision.approve(waiting(run)), actor=BOB)


@pytest.fixture(params=["celery", "celery threads", "taskiq"])
def any_line(host: Host, rabbitmq: str, request: pytest.FixtureRequest) -> Generator[Line]:
    with line_of(request.param, rabbitmq, host) as line:
        yield line


@pytest.mark.promise("P8", "P9", "P18", "P20", "P21")
@pytest.mark.report(22, 36, 37, 41)
async def test_a_long_write_has_one_executor_and_a_dead_ones_run_is_taken_over(host: Host, line: Line) -> None:
    """It takes three leases, and is delivered again and again. Then its process is killed, and so is the next one's."""
    async with host.runtime(SCRIPTS["set and add"], execution="queued", wakeup=line.wakeup()) as runtime:
        worker = line.work("set and add", held="set_description add_element", looks=True)
        run = await _approved(runtime)
        first = await line.gate.reached()
        for _ in range(3):
            for _ in range(2):
                line.send(str(run.run_id))
            await asyncio.sleep(LEASE)  # nothing is to happen: there is no event to wait for
        assert (first.point, host.executions()) == ("set_description", 1)
        assert (await asyncio.to_thread(runtime.store.get, run.run_id)).claim == 2  # and 1 as far as the decision
        os.kill(first.pid, signal.SIGKILL)
        second = await line.gate.reached()  # in a process that the worker has started for it, or in its other one
        assert (second.point, host.executions("set_description")) == ("set_description", 2)
        assert second.pid not in {first.pid, worker.process.pid}
        second.go_on()
        third = await line.gate.reached()
        assert third.point == "add_element"
        os.kill(third.pid, signal.SIGKILL)
        run = await _left(runtime, run, *BUSY)
        assert run.status is RunStatus.UNCERTAIN, worker.said()
        line.send(str(run.run_id))
        other = await _approved(runtime)  # the worker is at work as before
        fourth = await line.gate.reached()
        assert fourth.point == "set_description"
        assert other.run_id != run.run_id
        assert (await runtime.get_run(run.run_id)).status is RunStatus.UNCERTAIN
    assert host.executions("add_element") == 1
    assert host.heard() == [("pages:42", "updated")]


@pytest.mark.promise("P20", "P21", "P22")
@pytest.mark.report(38, 39)
async def test_who_is_told_to_stop_finishes_the_step_and_tells_of_its_run_again(host: Host, line: Line) -> None:
    async with host.runtime(SCRIPTS["add and read"], execution="queued", wakeup=line.wakeup()) as runtime:
        worker = line.work("add and read", held="told")
        run = await _approved(runtime)
        held = await line.gate.reached()
        worker.stop(signal.SIGTERM)
        held.go_on_when_stopping()
        assert await asyncio.to_thread(worker.ended) == 0, worker.said()
        run = await runtime.get_run(run.run_id)
        assert run.status is RunStatus.QUEUED, worker.said()
        steps = [step.kind for step in await runtime.list_steps(run.run_id)]
        assert steps[-3:] == [StepKind.TOOL, StepKind.WRITE, StepKind.HANDED_BACK]
        line.work("add and read")  # it looks for nothing by itself, and nobody else tells of the run
        run = await _left(runtime, run, *BUSY)
        assert run.output == "Both."
    assert (host.executions("add_element"), host.executions("read_page")) == (1, 1)
    assert host.heard() == [("elements:1", "created")]


@dataclass(slots=True)
class Tampering:
    """What comes between the sender and the broker."""

    wakeup: Wakeup
    times: int = 1
    held: list[UUID] | None = None
    sent: list[UUID] = field(default_factory=list[UUID])

    async def wake(self, run_id: UUID, /) -> None:
        if self.held is not None:
            self.held.append(run_id)
            return
        for _ in range(self.times):
            await send(self.wakeup, run_id)
            self.sent.append(run_id)

    async def let_go(self) -> None:
        """Send what was held back, the last one first."""
        held, self.held = self.held or [], []
        for run_id in reversed(held):
            await send(self.wakeup, run_id)


@pytest.mark.promise("P8", "P17")
async def test_whatever_becomes_of_the_messages_each_write_is_stored_once(
    host: Host, line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    """Dropped, sent five times, kept until all is over, the last one first: workers look by themselves as well."""
    tampering = Tampering(line.wakeup())
    async with host.runtime(SCRIPTS["add"], execution="queued", wakeup=tampering) as runtime:
        worker = line.work("add", looks=True)

        async def three() -> Sequence[Run]:
            runs = [await runtime.enqueue("editor", "Please do.", actor=ALICE) for _ in range(3)]
            if ordered:
                await tampering.let_go()
            for run in runs:
                stopped = await _left(runtime, run, *BUSY)
                await runtime.decide(run.run_id, Decision.approve(waiting(stopped)), actor=BOB)
            if ordered:
                await tampering.let_go()
            return [await _left(runtime, run, *BUSY) for run in runs]

        ordered = False
        tampering.held = []
        ended = [*await three()]  # all were dropped
        dropped, tampering.held = tampering.held, None
        assert len(dropped) == 6
        tampering.times = 5
        ended += await three()  # five times each
        await until(lambda: len(tampering.sent) == 30)
        tampering.times, tampering.held = 1, []
        ended += await three()
        await tampering.let_go()  # too late, all of them
        ordered = True
        ended += await three()
        assert [run.output for run in ended] == ["Added."] * 12, worker.said()
        facts = await runtime.writes()
        line.send(str(ended[-1].run_id))
        last = await _left(runtime, await _approved(runtime), *BUSY)  # behind all of those messages
        assert last.output == "Added."
    assert sorted(fact.correlation_id for fact in facts) == sorted(run.run_id for run in ended)
    assert host.executions("add_element") == len(host.elements()) == 13
    assert len(set(host.heard())) == len(host.heard()) == 13
    assert "wakeup_failed" not in {getattr(record, "action", "") for record in caplog.records}


@pytest.mark.promise("P17")
async def test_a_run_is_executed_where_its_id_is_delivered(host: Host, any_line: Line) -> None:
    """Messages that are no run ids, and such as name no run, are dropped on the way: nothing is delivered for ever."""
    line = any_line
    async with host.runtime(SCRIPTS["add"], execution="queued", wakeup=line.wakeup()) as runtime:
        worker = line.work("add")
        run = await _approved(runtime)
        line.send("what a person might have typed")
        line.send(unknown := str(uuid4()))
        line.send()
        line.send({"run_id": str(run.run_id)})
        line.send(str(run.run_id), "and more")
        line.send_raw("no message at all")
        line.send(str(run.run_id), task="byline.unknown")
        run = await _left(runtime, run, *BUSY)
        assert (run.output, host.executions()) == ("Added.", 1), worker.said()
        run = await _left(runtime, await _approved(runtime), *BUSY)  # by the same worker
        assert (run.output, host.executions()) == ("Added.", 2), worker.said()
        assert sorted(host.heard()) == [("elements:1", "created"), ("elements:2", "created")]
    await until(lambda: line.unacknowledged() == 0, seconds=PATIENCE)
    said = worker.said()
    assert "what a person" not in said
    assert f"there is no run {unknown}" in said
    assert said.count("A message that is no run id was dropped") == 4, said


@pytest.mark.promise("P17", "P23")
async def test_a_message_is_a_runs_id_and_nothing_else(host: Host, line: Line) -> None:
    async with host.runtime(SCRIPTS["add"], execution="queued", wakeup=line.wakeup()) as runtime:
        run = await runtime.enqueue("editor", "Tell nobody but my colleagues.", actor=ALICE)
    ((body, around),) = line.left()
    carried = json.loads(body)
    if line.kind == "taskiq":
        carried.pop("task_id")
        assert carried.pop("labels") == carried.pop("labels_types") == carried.pop("kwargs") == {}
        assert carried == {"task_name": "byline.execute", "args": [str(run.run_id)]}
    else:
        nothing = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))
        assert carried == [[str(run.run_id)], {}, nothing]
    assert "byline.execute" in around + body
    for told in ("Tell nobody", "colleagues", "editor"):
        assert told not in around + body


@pytest.mark.promise("P17")
async def test_a_run_that_is_due_again_while_it_is_told_of_is_told_of_again(line: Line) -> None:
    """The worker may have been quick: what it has not seen yet is a decision."""
    wakeup, run_id = line.wakeup(), uuid4()
    await asyncio.gather(*(send(wakeup, run_id) for _ in range(3)))
    assert [str(run_id) in body for body, _ in line.left()] == [True, True, True]


@pytest.mark.promise("P17")
@pytest.mark.parametrize("kind", ["celery", "taskiq"])
async def test_a_broker_that_is_down_costs_a_line_in_the_log(
    host: Host, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"amqp://guest:sesame@127.0.0.1:{server.getsockname()[1]}//"
    wakeup = TaskiqWakeup(taskiq_broker(url, "none")) if kind == "taskiq" else CeleryWakeup(celery_app(url, "none"))
    async with host.runtime(["Done."], execution="queued", wakeup=wakeup) as runtime:
        run = await runtime.enqueue("editor", "Please do.", actor=ALICE)
        assert run.status is RunStatus.QUEUED
        async with host.runtime(["Done."], recover=True, beat=0.1):  # somebody looks
            assert (await _left(runtime, run, *BUSY)).output == "Done."
    failed = [record for record in caplog.records if getattr(record, "action", None) == "wakeup_failed"]
    assert [(record.levelno, record.__dict__["run_id"]) for record in failed] == [(logging.WARNING, str(run.run_id))]
    assert "sesame" not in caplog.text


def test_what_is_no_application_or_builds_no_runtime_is_refused(host: Host) -> None:
    app, broker = celery_app("amqp://127.0.0.1//", "none"), taskiq_broker("amqp://127.0.0.1//", "none")
    nothing: object = "amqp://127.0.0.1//"
    with pytest.raises(ConfigurationError, match=r"a celery\.Celery"):
        CeleryWakeup(nothing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match=r"a taskiq\.AsyncBroker"):
        TaskiqWakeup(nothing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    runtime: object = host.runtime(["Done."])
    with pytest.raises(ConfigurationError, match="a function that builds it"):
        register_celery(app, runtime)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="a function that builds it"):
        register_taskiq(broker, runtime)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="returns an AgentRuntime, not NoneType"):
        checked_builder(lambda: None)()  # type: ignore[arg-type,return-value]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="without agents"):
        checked_builder(lambda: AgentRuntime(store=f"sqlite:///{host.path.parent / 'byline.db'}", agents=[]))()
