"""`taskiq worker tests.queue.taskiq_worker:broker`."""

import os

from byline.queue.taskiq import register_tasks
from tests.queue.program import runtime, taskiq_broker

broker = taskiq_broker(os.environ["PROGRAM_URL"], os.environ["PROGRAM_QUEUE"])
register_tasks(broker, runtime)
