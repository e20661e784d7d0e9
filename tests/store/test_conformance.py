"""The stores on SQLite pass what every store must pass, in a file and in memory."""

import pytest

from byline.testing import conformance
from tests.store.sqlite import SqliteFile, SqliteMemory


@pytest.mark.promise("P18")
class TestCreation(conformance.CreationConformance, SqliteFile):
    pass


@pytest.mark.promise("P18", "P19")
@pytest.mark.report(41, 45, 46)
class TestClaims(conformance.ClaimConformance, SqliteFile):
    pass


@pytest.mark.promise("P9", "P16", "P18", "P22", "P23")
@pytest.mark.report(29)
class TestAdvance(conformance.AdvanceConformance, SqliteFile):
    pass


@pytest.mark.promise("P13")
@pytest.mark.report(5, 6, 15, 17, 19, 20)
class TestDecisions(conformance.DecisionConformance, SqliteFile):
    pass


@pytest.mark.promise("P9", "P20")
class TestReconciliation(conformance.ReconciliationConformance, SqliteFile):
    pass


@pytest.mark.promise("P22")
class TestEndings(conformance.EndingConformance, SqliteFile):
    pass


class TestReads(conformance.ReadConformance, SqliteFile):
    pass


@pytest.mark.promise("P9", "P20", "P21", "P22")
class TestReleases(conformance.ReleaseConformance, SqliteFile):
    pass


@pytest.mark.promise("P23")
class TestRetention(conformance.RetentionConformance, SqliteFile):
    pass


@pytest.mark.promise("P13")
@pytest.mark.report(21)
class TestDecisionRaces(conformance.DecisionRaces, SqliteFile):
    pass


@pytest.mark.promise("P18", "P22")
class TestClaimRaces(conformance.ClaimRaces, SqliteFile):
    pass


@pytest.mark.promise("P16")
@pytest.mark.report(43)
class TestFaults(conformance.FaultConformance, SqliteFile):
    pass


class TestMemory(conformance.StoreConformance, SqliteMemory):
    rounds = 20  # one connection behind one lock: there is little to race for
