"""`celery -A tests.queue.celery_worker worker`."""

import os

from byline.queue.celery import register_tasks
from tests.queue.program import celery_app, runtime

app = celery_app(os.environ["PROGRAM_URL"], os.environ["PROGRAM_QUEUE"])
register_tasks(app, runtime)
