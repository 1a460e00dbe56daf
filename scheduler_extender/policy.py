"""What a cluster's owner may decide about where pods go; the order of the bands is fixed (0115). Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from mcp2026.topology.bands import NOTHING_KNOWN, Circumstances
from mcp2026.topology.demand import DEFAULT_MIX, DemandMix

Packing = Literal["Spread", "Pack"]
GANG_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class MeasuredLatency:
    """The p95 of a model, in µs, as it was measured with so many other pods on the GPU.

    `product` is the GPU's as the driver names it; empty: any. `mig` is the profile of a MIG device; empty:
    the whole GPU, or shares of it.
    """

    model: str
    product: str
    mig: str
    neighbours: int
    p95_us: int


class LatencyModel:
    """Predicts the p95 of a model from what was measured."""

    def __init__(self, measured: Iterable[MeasuredLatency] = ()) -> None:
        self._by_place: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
        for row in measured:
            rows = self._by_place.setdefault((row.model, row.product, row.mig), [])
            rows.append((row.neighbours, row.p95_us))
            rows.sort(reverse=True)
        self._models = frozenset(model for model, _, _ in self._by_place)

    def knows(self, model: str) -> bool:
        """Tell whether anything was measured of `model`."""
        return model in self._models

    def predicted_us(self, model: str, product: str, mig: str, neighbours: int) -> int | None:
        """Return the p95 to expect, in µs; None where nothing says so.

        With a number of neighbours that was not measured, it is that of the most measured below it: more
        neighbours make nothing faster.
        """
        rows = self._by_place.get((model, product, mig)) or self._by_place.get((model, "", mig)) or ()
        return next((p95 for measured, p95 in rows if measured <= neighbours), None)


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy in force. Without `packing`, nodes that all else finds equal stay equal."""

    packing: Packing | None = None
    mix: DemandMix = DEFAULT_MIX
    guaranteed_apart: bool = True
    latency: LatencyModel = field(default_factory=LatencyModel)
    gang_deadline_s: float = GANG_DEADLINE_S
    nodes_to_score: int | None = None
    """How many of the nodes that fit are handed on to kube-scheduler, the best; None: all."""
    neutral: Circumstances = field(init=False)
    """What is known of a machine where nothing is known of its GPUs."""

    def __post_init__(self) -> None:
        neutral = NOTHING_KNOWN if self.mix == DEFAULT_MIX else Circumstances(mix=self.mix)
        object.__setattr__(self, "neutral", neutral)


DEFAULT_POLICY = Policy()


class PolicyInForce:
    """The policy by which the next decision is made; a new configuration replaces it."""

    def __init__(self, policy: Policy = DEFAULT_POLICY) -> None:
        self.policy = policy

    def replace(self, policy: Policy) -> None:
        """Let decisions from now on be made by `policy`."""
        self.policy = policy
