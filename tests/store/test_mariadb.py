"""A store on MariaDB passes what every store must pass."""

import pytest

from byline.testing import conformance
from tests.store.servers import OnMariadb


@pytest.mark.promise("P18")
class TestCreation(conformance.CreationConformance, OnMariadb):
    pass


@pytest.mark.promise("P18", "P19")
@pytest.mark.report(41, 45, 46)
class TestClaims(conformance.ClaimConformance, OnMariadb):
    pass


@pytest.mark.promise("P9", "P16", "P18", "P22", "P23")
@pytest.mark.report(29)
class TestAdvance(conformance.AdvanceConformance, OnMariadb):
    pass


@pytest.mark.promise("P13")
@pytest.mark.report(5, 6, 15, 17, 19, 20)
class TestDecisions(conformance.DecisionConformance, OnMariadb):
    pass


@pytest.mark.promise("P9", "P20")
class TestReconciliation(conformance.ReconciliationConformance, OnMariadb):
    pass


@pytest.mark.promise("P22")
class TestEndings(conformance.EndingConformance, OnMariadb):
    pass


class TestReads(conformance.ReadConformance, OnMariadb):
    pass


@pytest.mark.promise("P9", "P20", "P21", "P22")
class TestReleases(conformance.ReleaseConformance, OnMariadb):
    pass


@pytest.mark.promise("P23")
class TestRetention(conformance.RetentionConformance, OnMariadb):
    pass


@pytest.mark.promise("P13")
@pytest.mark.report(21)
class TestDecisionRaces(conformance.DecisionRaces, OnMariadb):
    pass


@pytest.mark.promise("P18", "P22")
class TestClaimRaces(conformance.ClaimRaces, OnMariadb):
    pass


@pytest.mark.promise("P16")
@pytest.mark.report(43)
class TestFaults(conformance.FaultConformance, OnMariadb):
    pass
