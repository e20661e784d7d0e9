"""What running a tool does to the world, and so what may be done when nobody knows whether it ran."""

from enum import StrEnum


class ToolEffect(StrEnum):
    """What running a tool does to the world. Ordered by how strictly it is handled."""

    READ_ONLY = "read_only"
    """Changes nothing. Runs freely, may run again."""
    IDEMPOTENT_WRITE = "idempotent_write"
    """Writes, and a repeat converges on the same state. Needs approval; may run again after a crash."""
    NON_IDEMPOTENT_WRITE = "non_idempotent_write"
    """Writes, and a repeat compounds. Needs approval; the machine never runs it again."""

    @property
    def writes(self) -> bool:
        """Whether the effect is a write."""
        return self is not ToolEffect.READ_ONLY

    def stricter(self, other: "ToolEffect") -> "ToolEffect":
        """Return the stricter of the two."""
        return max(self, other, key=_STRICTNESS.__getitem__)

    def is_stricter_than(self, other: "ToolEffect") -> bool:
        """Whether this effect asks for more care than the other."""
        return _STRICTNESS[self] > _STRICTNESS[other]


_STRICTNESS = {effect: rank for rank, effect in enumerate(ToolEffect)}
