"""The grounds on which every race is run."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.races.crew import Crew, Ground, Threads
from tests.races.stage import Site


@pytest.fixture(scope="session")
def crew() -> Generator[Crew, None, None]:
    running = Crew()
    yield running
    running.close()


@pytest.fixture(params=["threads", "processes"])
def ground(request: pytest.FixtureRequest) -> Ground:
    """Contestants that share nothing but the database's file."""
    if request.param == "processes":
        crew: Crew = request.getfixturevalue("crew")
        return crew
    return Threads()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)
