"""A canary and the other versions of its model, measured in the same pods and the same time."""

from dataclasses import dataclass, field

from mcp2026.api.canary import Measured

LOOK_SECONDS = 5.0
"""From one look at the pods in a step to the next, at least."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was seen since a step began, or since the operator began to look."""

    canary: Measured = field(default_factory=Measured)
    others: Measured = field(default_factory=Measured)
    """All other versions together."""
    silent: tuple[str, ...] = ()
    """Names of the pods that did not answer the last look."""
    next_look_seconds: float = LOOK_SECONDS
    """Until the next look may begin."""
