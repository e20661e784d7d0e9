"""A site with runs that wait, in a folder of its own."""

from pathlib import Path

import pytest

from tests.host import Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host.db")
