"""A store on PostgreSQL passes what every store must pass."""

import pytest

from byline.testing import conformance
from tests.store.servers import OnPostgresql


@pytest.mark.promise("P18")
class TestCreation(conformance.CreationConformance, OnPostgresql):
    pass


@pytest.mark.promise("P18", "P19")
@pytest.mark.report(41, 45, 46)
class TestClaims(conformance.ClaimConformance, OnPostgresql):
    pass


@pytest.mark.promise("P9", "P16", "P18", "P22", "P23")
@pytest.mark.report(29)
class TestAdvance(conformance.AdvanceConformance, OnPostgresql):
    pass


@pytest.mark.promise("P13")
@pytest.mark.report(5, 6, 15, 17, 19, 20)
class TestDecisions(conformance.DecisionConformance, OnPostgresql):
    pass


@pytest.mark.promise("P9", "P20")
class TestReconciliation(conformance.ReconciliationConformance, OnPostgresql):
    pass


@pytest.mark.promise("P22")
class TestEndings(conformance.EndingConformance, OnPostgresql):
    pass


class TestReads(conformance.ReadConformance, OnPostgresql):
    pass


@pytest.mark.promise("P9", "P20", "P21", "P22")
class TestReleases(conformance.ReleaseConformance, OnPostgresql):
    pass


@pytest.mark.promise("P23")
class TestRetention(conformance.RetentionConformance, OnPostgresql):
    pass


@pytest.mark.promise("P13")
@pytest.mark.report(21)
class TestDecisionRaces(conformance.DecisionRaces, OnPostgresql):
    pass


@pytest.mark.promise("P18", "P22")
class TestClaimRaces(conformance.ClaimRaces, OnPostgresql):
    pass


@pytest.mark.promise("P16")
@pytest.mark.report(43)
class TestFaults(conformance.FaultConformance, OnPostgresql):
    pass
