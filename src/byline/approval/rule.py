"""Does a call wait for a person? One rule, and nothing that switches it off."""

from byline.tools.protocol import ToolSpec


def needs_approval(spec: ToolSpec) -> bool:
    """Whether a call of this tool waits: every write does, and a tool may ask for it on its own."""
    return spec.effect.writes or spec.asks_approval
