"""A pytest plugin of `scripts/mutants.py`: writes down what passed, what failed first, and in whose code."""

import importlib.util
import json
import os
from pathlib import Path

import pytest


class MutantReport:
    """Gathers one session's facts, and writes them as JSON when it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.passed = 0
        self.failed: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid
        if report.passed and report.when == "call":
            self.passed += 1

    def pytest_sessionfinish(self) -> None:
        found = importlib.util.find_spec("byline")  # where it would come from; a mutant may not be importable
        facts = {
            "byline": found.origin if found is not None else "nowhere",
            "failed": self.failed,
            "passed": self.passed,
        }
        self.path.write_text(json.dumps(facts), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # under xdist, the controller hears of every test
        config.pluginmanager.register(MutantReport(Path(os.environ["BYLINE_MUTANT_REPORT"])))
