"""The sync mirror where it cannot work: on an event loop, and in a forked child. It says so, and does not hang."""

import os

import pytest

from byline import RuntimeClosed
from tests.host import Host


async def test_it_does_not_open_on_an_event_loop(host: Host) -> None:
    with pytest.raises(RuntimeClosed, match="async with runtime"), host.runtime(["Done."]).sync:
        raise AssertionError("never open")


@pytest.mark.filterwarnings(
    "ignore:.*fork:DeprecationWarning"
)  # Python 3.12 warns of just this: the child has no threads
def test_a_forked_child_is_told_to_open_its_own(host: Host) -> None:
    with host.runtime(["Done."]).sync as runtime:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                runtime.list_runs()
            except RuntimeClosed as refused:
                os.write(writing, str(refused).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as told:
            assert "opened before a fork" in told.read()
        os.waitpid(child, 0)
        assert runtime.list_runs() == []
