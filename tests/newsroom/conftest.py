"""The newsroom's site on its first day: made once, and copied for each test."""

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from byline.store.sql import SqlStore
from examples.newsroom.application import SITE_FILE
from examples.newsroom.seed import build_site
from examples.newsroom.site import Site
from tests.crash.workers import Workers
from tests.newsroom.place import Newsroom


@pytest.fixture(scope="session")
def first_day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("newsroom") / "site.db").path


@pytest.fixture
def site(first_day: Path, tmp_path: Path) -> Site:
    return Site(Path(shutil.copy(first_day, tmp_path / "site.db")))


@pytest.fixture(scope="session")
def first_place(first_day: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a newsroom with a store for its runs."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copy(first_day, folder / SITE_FILE)
    store = SqlStore(Newsroom(folder / "host.db").url)
    store.open()
    store.close()
    return folder


@pytest.fixture
def newsroom(first_place: Path, tmp_path: Path) -> Newsroom:
    shutil.copytree(first_place, tmp_path / "place")
    return Newsroom(tmp_path / "place" / "host.db")


@pytest.fixture
def workers(newsroom: Newsroom) -> Generator[Workers]:
    """Processes over the newsroom, which do not outlive the test."""
    started = Workers(newsroom)
    yield started
    started.clear_away()
