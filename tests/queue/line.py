"""One test's queue in RabbitMQ, and the workers that consume from it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from uuid import uuid4

import pytest
from kombu import Connection, Producer, Queue

from byline import Wakeup
from byline.queue.celery import CeleryWakeup
from byline.queue.taskiq import TaskiqWakeup
from tests.host import Host
from tests.queue.gate import PATIENCE, Gate
from tests.queue.program import celery_app, taskiq_broker

ROOT = Path(__file__).resolve().parents[2]
SERVER = ("127.0.0.1", 5672)
Kind = Literal["celery", "celery threads", "taskiq"]
CELERY = ("celery", "-A", "tests.queue.celery_worker", "worker", "--concurrency", "2", "--loglevel", "INFO")
CONTROL = shutil.which("rabbitmqctl", path=f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin")
LONE = ("--without-gossip", "--without-mingle", "--without-heartbeat")
COMMANDS: dict[Kind, tuple[str, ...]] = {
    "celery": (*CELERY, *LONE, "--pool", "prefork"),
    "celery threads": (*CELERY, *LONE, "--pool", "threads"),
    "taskiq": ("taskiq", "worker", "tests.queue.taskiq_worker:broker", "--workers", "1"),
}


@contextmanager
def own_vhost() -> Generator[str]:
    """The URL of a vhost that is gone afterwards."""
    try:
        socket.create_connection(SERVER, timeout=2).close()
    except OSError:
        pytest.skip("the RabbitMQ server does not answer at 127.0.0.1:5672")
    if CONTROL is None:
        pytest.skip("the RabbitMQ server is not of this machine: rabbitmqctl, which makes vhosts, is not here")
    name = f"byline_test_{os.getpid()}"
    _control("add_vhost", name)
    try:
        _control("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        yield f"amqp://guest:guest@{SERVER[0]}:{SERVER[1]}/{name}"
    finally:
        _control("delete_vhost", name)


def _control(*words: str) -> str:
    assert CONTROL is not None
    allowed = [] if os.getuid() == 0 else ["sudo", "-n"]
    asked = [*allowed, CONTROL, "--quiet", *words]
    return subprocess.run(asked, check=True, capture_output=True, text=True, timeout=30).stdout


@dataclass(slots=True)
class Worker:
    """A worker's processes."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def stop(self, number: signal.Signals) -> None:
        """Tell the process that heads it."""
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """Kill all of its processes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def ended(self) -> int:
        return self.process.wait(PATIENCE)

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")


@dataclass(slots=True)
class Line:
    """A queue of one kind, and who consumes from it."""

    kind: Kind
    url: str
    host: Host
    gate: Gate
    name: str = field(default_factory=lambda: f"queue-{uuid4().hex}")
    workers: list[Worker] = field(default_factory=list[Worker])

    def wakeup(self) -> Wakeup:
        if self.kind == "taskiq":
            return TaskiqWakeup(taskiq_broker(self.url, self.name))
        return CeleryWakeup(celery_app(self.url, self.name))

    def work(self, script: str, *, held: str = "", looks: bool = False) -> Worker:
        """Start a worker whose processes are held at these points; one that looks finds runs by itself, too."""
        program = {
            "PROGRAM_HOST": str(self.host.path),
            "PROGRAM_GATE": str(self.gate.port),
            "PROGRAM_HELD": held,
            "PROGRAM_SCRIPT": script,
            "PROGRAM_LOOKS": "yes" if looks else "no",
            "PROGRAM_URL": self.url,
            "PROGRAM_QUEUE": self.name,
        }
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        log = self.host.path.parent / f"worker-{len(self.workers)}.log"
        with log.open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", *COMMANDS[self.kind]],
                cwd=ROOT,
                env=os.environ | program | {"PYTHONPATH": paths},
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        self.workers.append(Worker(process, log))
        return self.workers[-1]

    def send(self, *arguments: object, task: str = "byline.execute") -> None:
        """Send a message as the transport would, with any arguments."""
        identity = uuid4().hex
        carried: list[object] = list(arguments)
        nothing: dict[str, object] = {}
        if self.kind == "taskiq":
            named = {"task_id": identity, "task_name": task, "labels": nothing, "args": carried, "kwargs": nothing}
            self.send_raw(json.dumps(named))
        else:
            self.send_raw(json.dumps([carried, nothing, nothing]), {"id": identity, "task": task, "lang": "py"})

    def send_raw(self, body: str, headers: dict[str, str] | None = None) -> None:
        with Connection(self.url) as connection:
            Producer(connection).publish(
                body,
                exchange="",
                routing_key=self.name,
                content_type="application/json",
                content_encoding="utf-8",
                headers=headers,
            )

    def left(self) -> list[tuple[str, str]]:
        """Take all messages out of the queue, none of which is delivered: their bodies, and what comes with them."""
        found: list[tuple[str, str]] = []
        with Connection(self.url) as connection:
            queue = Queue(self.name, channel=connection.default_channel)
            while (message := queue.get(no_ack=True)) is not None:
                body: object = message.body
                text = body.decode() if isinstance(body, bytes) else str(body)
                found.append((text, f"{message.headers} {message.properties}"))
        return found

    def unacknowledged(self) -> int:
        """How many messages the server still keeps, delivered or not."""
        listed = _control("list_queues", "-p", self.url.rpartition("/")[2], "name", "messages", "--no-table-headers")
        return next(int(number) for name, number in map(str.split, listed.splitlines()) if name == self.name)

    def clear_away(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.kill()
        self.gate.close()


@contextmanager
def line_of(kind: Kind, url: str, host: Host) -> Generator[Line]:
    line = Line(kind, url, host, Gate())
    try:
        yield line
    finally:
        line.clear_away()
