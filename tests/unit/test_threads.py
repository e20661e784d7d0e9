import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial

import pytest

from byline.threads import DaemonThreads

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


@pytest.fixture
def pool() -> DaemonThreads:
    return DaemonThreads("test")


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What a hung thread waits for; it is let go when the test has ended."""
    event = threading.Event()
    yield event
    event.set()


async def until_idle(pool: DaemonThreads, threads: int = 1) -> None:
    """A thread is idle a moment after its future is done."""
    while len(pool._crew.idle) < threads:  # noqa: ASYNC110 - a thread sets no asyncio.Event
        await asyncio.sleep(0.001)


def run_python(code: str) -> None:
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", code]
    subprocess.run(command, check=True, timeout=30)


async def test_a_function_runs_on_a_named_daemon_thread(pool: DaemonThreads) -> None:
    thread = await pool.submit(threading.current_thread)

    assert thread is not threading.current_thread()
    assert thread.daemon
    assert thread.name == "test-1"


async def test_an_idle_thread_is_used_again(pool: DaemonThreads) -> None:
    first = await pool.submit(threading.current_thread)
    await until_idle(pool)

    assert await pool.submit(threading.current_thread) is first
    assert "test-2" not in {thread.name for thread in threading.enumerate()}


async def test_a_hung_thread_takes_nothing_from_the_others(pool: DaemonThreads, release: threading.Event) -> None:
    hung = [pool.submit(release.wait) for _ in range(40)]

    assert await pool.submit(lambda: "done") == "done"
    assert not any(future.done() for future in hung)
    release.set()
    assert all(await asyncio.gather(*hung))


async def test_idle_threads_end(pool: DaemonThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byline.threads.IDLE_SECONDS", 0.01)

    thread = await pool.submit(threading.current_thread)
    thread.join(10)

    assert not thread.is_alive()
    assert await pool.submit(threading.current_thread) is not thread


async def test_threads_whose_jobs_others_took_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that was started for a job may find it taken by one that has just become idle."""
    monkeypatch.setattr("byline.threads.IDLE_SECONDS", 0.05)
    busy = DaemonThreads("busy")
    for _ in range(20):
        await asyncio.gather(*(busy.submit(lambda: None) for _ in range(32)))

    async with asyncio.timeout(20):
        while any(thread.name.startswith("busy-") for thread in threading.enumerate()):  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)


async def test_the_function_sees_the_callers_context_and_cannot_change_it(pool: DaemonThreads) -> None:
    WHO.set("caller")

    assert await pool.submit(WHO.get) == "caller"
    await pool.submit(lambda: WHO.set("thread"))
    assert WHO.get() == "caller"


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), asyncio.CancelledError(), SystemExit(3), KeyboardInterrupt(), GeneratorExit()],
    ids=repr,
)
async def test_whatever_the_function_raises_arrives(pool: DaemonThreads, error: BaseException) -> None:
    def fail() -> None:
        raise error

    future = pool.submit(fail)
    with pytest.raises(type(error)) as caught:
        await future

    assert caught.value is error
    assert not future.cancelled()
    await until_idle(pool)  # the thread has survived it


async def test_stop_iteration_arrives_as_the_cause(pool: DaemonThreads) -> None:
    with pytest.raises(RuntimeError, match="StopIteration") as caught:
        await pool.submit(lambda: next(iter(())))

    assert isinstance(caught.value.__cause__, StopIteration)


@pytest.mark.parametrize("outcome", [lambda: 1, lambda: 1 / 0], ids=["returns", "raises"])
async def test_a_cancelled_future_stops_no_function_and_its_end_disturbs_nobody(
    pool: DaemonThreads, release: threading.Event, outcome: Callable[[], object]
) -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    ended = threading.Event()

    def slow() -> object:
        release.wait()
        ended.set()
        return outcome()

    future = pool.submit(slow)
    future.cancel()
    release.set()
    await until_idle(pool)
    await asyncio.sleep(0)  # what the thread has left on the loop

    assert ended.is_set()
    assert future.cancelled()
    assert complaints == []


def test_a_loop_closed_meanwhile_is_no_error(pool: DaemonThreads, release: threading.Event) -> None:
    async def leave_behind() -> None:
        _ = pool.submit(release.wait), pool.submit(lambda: release.wait() and 1 / 0)

    asyncio.run(leave_behind())
    release.set()

    asyncio.run(until_idle(pool, threads=2))  # an exception in a thread would be a warning, and so an error


@pytest.mark.promise("P6")
def test_a_hung_thread_holds_up_no_exit() -> None:
    run_python(
        "import asyncio, threading\n"
        "from byline.threads import DaemonThreads\n"
        "started = threading.Event()\n"
        "async def main():\n"
        "    DaemonThreads('x').submit(lambda: (started.set(), threading.Event().wait()))\n"
        "    started.wait()\n"
        "asyncio.run(main())\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_child_starts_threads_of_its_own() -> None:
    run_python(
        "import asyncio, os\n"
        "from byline.threads import DaemonThreads\n"
        "pool = DaemonThreads('x')\n"
        "async def main():\n"
        "    assert await asyncio.wait_for(pool.submit(lambda: 42), 10) == 42\n"
        "    while not pool._crew.idle: await asyncio.sleep(0)\n"
        "asyncio.run(main())\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    asyncio.run(main())\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )


async def test_an_idle_thread_and_a_caught_exception_keep_nothing_alive(pool: DaemonThreads) -> None:
    class Heavy: ...

    def fail(heavy: Heavy) -> None:
        raise ValueError(heavy)

    gc.disable()  # only reference counts: no cycle may be left for the collector
    try:
        heavy = Heavy()
        alive = weakref.ref(heavy)
        future = pool.submit(partial(fail, heavy))
        del heavy
        with pytest.raises(ValueError) as caught:
            await future
        await until_idle(pool)
        del future, caught
        await asyncio.sleep(0)
        assert alive() is None
    finally:
        gc.enable()


def test_every_job_runs_once_while_threads_come_and_go(pool: DaemonThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byline.threads.IDLE_SECONDS", 0.0)  # every thread is always about to end
    ran: list[tuple[int, int]] = []

    async def submit_many(number: int) -> None:
        for job in range(0, 300, 3):
            await asyncio.gather(*(pool.submit(partial(ran.append, (number, job + i))) for i in range(3)))

    with ThreadPoolExecutor(4) as loops:
        list(loops.map(asyncio.run, map(submit_many, range(4))))

    assert sorted(ran) == [(number, job) for number in range(4) for job in range(300)]


def test_without_an_event_loop_nothing_is_started(pool: DaemonThreads) -> None:
    ran: list[int] = []

    with pytest.raises(RuntimeError, match="no running event loop"):
        _ = pool.submit(partial(ran.append, 1))

    assert ran == []
