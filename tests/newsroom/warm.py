"""What the fork server does once for the newsroom, so that each of its processes begins quickly."""

import tempfile
from pathlib import Path

from tests.newsroom import place

with tempfile.TemporaryDirectory() as _folder:
    place.Newsroom(Path(_folder) / "host.db")

__all__ = ["place"]
