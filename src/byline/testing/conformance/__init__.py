"""What every store must pass.

Whoever makes a `RunStore` derives test classes from these and provides what `StoreCase` asks for:

    class TestMyStore(StoreConformance):
        def make_store(self, clock): ...

`StoreConformance` is all of them in one class. Needs pytest.
"""

from byline.testing.conformance.claims import ClaimConformance
from byline.testing.conformance.endings import EndingConformance
from byline.testing.conformance.faults import FaultConformance
from byline.testing.conformance.races import ClaimRaces, DecisionRaces
from byline.testing.conformance.reads import ReadConformance
from byline.testing.conformance.releases import ReleaseConformance
from byline.testing.conformance.retention import RetentionConformance
from byline.testing.conformance.segments import AdvanceConformance, CreationConformance
from byline.testing.conformance.stage import FakeClock, Stage, StoreCase
from byline.testing.conformance.verdicts import DecisionConformance, ReconciliationConformance


class StoreConformance(
    CreationConformance,
    ClaimConformance,
    AdvanceConformance,
    DecisionConformance,
    ReconciliationConformance,
    EndingConformance,
    ReadConformance,
    ReleaseConformance,
    RetentionConformance,
    DecisionRaces,
    ClaimRaces,
    FaultConformance,
):
    """All that every store must pass."""


__all__ = [
    "AdvanceConformance",
    "ClaimConformance",
    "ClaimRaces",
    "CreationConformance",
    "DecisionConformance",
    "DecisionRaces",
    "EndingConformance",
    "FakeClock",
    "FaultConformance",
    "ReadConformance",
    "ReconciliationConformance",
    "ReleaseConformance",
    "RetentionConformance",
    "Stage",
    "StoreCase",
    "StoreConformance",
]
