"""What every test has: the promises' marker and option, and hypothesis's profiles."""

import os
import signal
from collections.abc import Iterable

import pytest
from hypothesis import settings

# Files in memory, where there are any: every commit here is a durable one, and what a killed process wrote to the
# system survives it on either. Waiting for a disk would only make the suite slower.
if os.access("/dev/shm", os.W_OK):  # noqa: S108 - pytest makes a private folder in it, as it would in the usual place
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")  # noqa: S108

# What a shell starts in the background is told to ignore the keyboard, and so would be all that it starts: but tests
# press Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("default", deadline=None)
settings.register_profile("long", deadline=None, max_examples=8_000)
settings.load_profile("ci" if os.environ.get("CI") else "default")

PROMISES = frozenset(f"P{number}" for number in range(1, 26))
REPORTS = frozenset(range(1, 47))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--promise",
        action="append",
        default=[],
        metavar="P3",
        help="run only the tests marked with this promise (may be given more than once)",
    )


def promises_of(item: pytest.Item) -> set[str]:
    """The promises a test carries, from all its markers."""
    return {str(number) for marker in item.iter_markers("promise") for number in marker.args}


def unknown_numbers(items: Iterable[pytest.Item]) -> list[str]:
    """What is written in a marker and exists nowhere: a test that carries it would hold nothing."""
    faults: list[str] = []
    for item in items:
        for name, known in (("promise", PROMISES), ("report", REPORTS)):
            faults += [
                f"{item.nodeid}: {name}{marker.args!r}"
                for marker in item.iter_markers(name)
                if not marker.args or marker.kwargs or not set(marker.args) <= known
            ]
    return faults


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    faults = unknown_numbers(items)
    if faults:
        example = 'promise("P1") to promise("P25"), report(1) to report(46)'
        raise pytest.UsageError("\n".join([f"no such promise or report (there are {example}):", *faults]))

    options: list[str] = config.getoption("--promise")  # pyright: ignore[reportAssignmentType] - the option has a default
    wanted = set(options)
    if not wanted <= PROMISES:
        raise pytest.UsageError(f"--promise takes P1 to P25, not {', '.join(sorted(wanted - PROMISES))}")
    if wanted:
        kept = [item for item in items if promises_of(item) & wanted]
        config.hook.pytest_deselected(items=[item for item in items if not promises_of(item) & wanted])
        items[:] = kept
