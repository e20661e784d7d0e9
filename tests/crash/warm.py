"""What the fork server does once, so that each of its processes begins quickly."""

import tempfile
from pathlib import Path

from byline.testing import memory_store
from tests.crash import program
from tests.crash.site import Site

with tempfile.TemporaryDirectory() as _folder:
    _site = Site(Path(_folder) / "host.db")
    _store = memory_store()
    _store.open()
    _site.runtime(_site.script(), store=_store)
    _store.close()

__all__ = ["program"]
