"""What the workers' processes and the tests build alike: the applications of Celery and Taskiq, and the runtime.

Where the host is, which script the model plays and which queue is meant come from the environment.
"""

import os
from pathlib import Path

from celery import Celery
from taskiq_aio_pika import AioPikaBroker, QueueType
from taskiq_aio_pika import Queue as TaskiqQueue

from byline import AgentRuntime
from byline.models.scripted import Turn
from byline.testing import call
from tests.host import Settings
from tests.queue.gate import GatedHost

LEASE = 1.5
"""Seconds; short, since tests wait for what a dead process held."""

READ = call("read_page", page_id=42)
SET = call("set_description", page_id=42, description="We are open.")
ADD = call("add_element", page_id=42, text="Come in.")
SCRIPTS: dict[str, list[Turn]] = {
    "add": [[ADD], "Added."],
    "add and read": [[ADD], [READ], "Both."],
    "set and add": [[SET, ADD], "Both."],
}


def celery_app(url: str, queue: str) -> Celery:
    app: Celery = Celery("tests", broker=url)
    app.conf.update(
        task_default_queue=queue,
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=2.0,
        worker_enable_remote_control=False,
        worker_prefetch_multiplier=1,
    )
    return app


def taskiq_broker(url: str, queue: str) -> AioPikaBroker:
    return AioPikaBroker(url, task_queues=[TaskiqQueue(name=queue, type=QueueType.CLASSIC)])


def runtime() -> AgentRuntime:
    """A worker's."""
    host = GatedHost(Path(os.environ["PROGRAM_HOST"]), int(os.environ["PROGRAM_GATE"]), os.environ["PROGRAM_HELD"])
    settings: Settings = {
        "execution": "queued",
        "lease": LEASE,
        "beat": LEASE / 4,
        "listener_timeout": 30.0,
        "recover": os.environ["PROGRAM_LOOKS"] == "yes",
    }
    return host.know(host.runtime(SCRIPTS[os.environ["PROGRAM_SCRIPT"]], **settings))
