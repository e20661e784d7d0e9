"""The databases on servers, each made once for a process of tests."""

from collections.abc import Generator
from pathlib import Path

import pytest
from sqlalchemy import URL

from tests.host import Host
from tests.store.servers import MARIADB, POSTGRESQL, database, upgraded


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host.db")


@pytest.fixture(scope="session")
def postgresql() -> Generator[URL]:
    with database(POSTGRESQL) as url:
        yield upgraded(url)


@pytest.fixture(scope="session")
def mariadb() -> Generator[URL]:
    with database(MARIADB) as url:
        yield upgraded(url)
