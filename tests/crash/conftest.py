"""A site of its own for every test, and processes that do not outlive it."""

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from byline.store.sql import SqlStore
from tests.crash.site import Site
from tests.crash.workers import Workers


@pytest.fixture(scope="session")
def empty_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a site with a store, made once: each test gets a copy."""
    folder = tmp_path_factory.mktemp("site")
    store = SqlStore(Site(folder / "host.db").url)
    store.open()
    store.close()
    return folder


@pytest.fixture
def site(empty_site: Path, tmp_path: Path) -> Site:
    shutil.copytree(empty_site, tmp_path / "site")
    return Site(tmp_path / "site" / "host.db")


@pytest.fixture
def workers(site: Site) -> Generator[Workers]:
    started = Workers(site)
    yield started
    started.clear_away()
