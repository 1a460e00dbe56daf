"""What counts for one pod beside room and links: its promise, its QoS class, and the policy. Pure.

Unknown is neutral everywhere: a pod without a promise, a model that nobody measured, a GPU of an unknown
product change nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mcp2026.api.gpu_devices import DeviceKind
from mcp2026.api.names import MIG_RESOURCE_PREFIX
from mcp2026.api.scheduling_context import QosClass
from mcp2026.scheduler_extender.cluster_events import ObservedPod
from mcp2026.scheduler_extender.parts_placement import NOTHING, Avoided
from mcp2026.scheduler_extender.policy import DEFAULT_POLICY, Policy
from mcp2026.scheduler_extender.request import Demand
from mcp2026.scheduler_extender.snapshot import NO_CROWDS, ClusterSnapshot, Crowds, NodeGpus, Tenants
from mcp2026.topology.score import Circumstances

_ALONE = Tenants()


@dataclass(frozen=True, slots=True)
class Preferences:
    """Of one pod. `qos` None: its class is not known. `slo_us`: the p95 that it was promised, in µs."""

    policy: Policy = DEFAULT_POLICY
    qos: QosClass | None = None
    model: str = ""
    slo_us: int | None = None

    @classmethod
    def of(cls, pod: ObservedPod, policy: Policy) -> "Preferences":
        """Return those of `pod` under `policy`."""
        return cls(policy, pod.qos, pod.model, pod.slo_us)

    # ---- of GPUs ----

    def of_whole_gpus(self, gpus: NodeGpus) -> Circumstances:
        """Return what is known of each GPU of a node for a pod that has whole ones to itself."""
        slo = self.slo_us
        if slo is None or not self.policy.latency.knows(self.model):
            return self.policy.neutral
        predicted = (self._predicted_us(product, "", 0) for product in gpus.products)
        shortfalls = tuple(0 if p95 is None else min(0, slo - p95) for p95 in predicted)
        return (
            replace(self.policy.neutral, headroom_us=shortfalls) if any(shortfalls) else self.policy.neutral
        )

    def against_parts(self, gpus: NodeGpus, demand: Demand) -> Avoided:
        """Return what speaks against each GPU that is sold in parts: µs over the promise, other tenants."""
        slo = self.slo_us if self.policy.latency.knows(self.model) else None
        if slo is None and not self._keeps_apart:
            return NOTHING
        found = {}
        for part in gpus.parts.get(demand.resource, ()):
            p95 = self.predicted_us(gpus, demand, (part.position,)) if slo is not None else None
            excess = max(0, p95 - slo) if p95 is not None and slo is not None else 0
            found[part.position] = (excess, self._of_the_other_kind(_tenants(gpus, part.position)))
        return found if any(any(against) for against in found.values()) else NOTHING

    def predicted_us(self, gpus: NodeGpus, demand: Demand, taken: Iterable[int]) -> int | None:
        """Return the worst p95, in µs, predicted on the GPUs `taken` for `demand`; None: it is not known."""
        mig = demand.resource.removeprefix(MIG_RESOURCE_PREFIX) if demand.kind is DeviceKind.MIG else ""
        found = []
        for position in taken:
            product = gpus.products[position] if gpus.products else ""
            tenants = _ALONE if demand.kind is DeviceKind.GPU else _tenants(gpus, position)
            found.append(self._predicted_us(product, mig, sum(tenants)))
        return max((p95 for p95 in found if p95 is not None), default=None)

    def _predicted_us(self, product: str, mig: str, neighbours: int) -> int | None:
        return self.policy.latency.predicted_us(self.model, product, mig, neighbours)

    def with_this_pod(self, tenants: Tenants) -> Tenants:
        """Return the tenants of a GPU once the pod is one of them."""
        if self.qos is QosClass.GUARANTEED:
            return tenants._replace(guaranteed=tenants.guaranteed + 1)
        return tenants._replace(others=tenants.others + 1)

    # ---- of nodes ----

    def crowds(self, snapshot: ClusterSnapshot) -> Crowds:
        """Return the pods of the other kind."""
        if not self._keeps_apart:
            return NO_CROWDS
        return snapshot.others if self.qos is QosClass.GUARANTEED else snapshot.guaranteed

    def fullness(self, gpus: NodeGpus, demands: tuple[Demand, ...]) -> int:
        """Return how welcome it is that the node is as full as it is, in percent; 0 if it does not matter."""
        if self.policy.packing is None:
            return 0
        free, total = _room(gpus, demands[0])
        percent = 100 * free // total if total else 0
        return percent if self.policy.packing == "Spread" else -percent

    @property
    def _keeps_apart(self) -> bool:
        return self.policy.guaranteed_apart and self.qos is not None

    def _of_the_other_kind(self, tenants: Tenants) -> int:
        if not self._keeps_apart:
            return 0
        return tenants.others if self.qos is QosClass.GUARANTEED else tenants.guaranteed


NO_PREFERENCES = Preferences()


def _tenants(gpus: NodeGpus, position: int) -> Tenants:
    return gpus.tenants[position] if gpus.tenants else _ALONE


def _room(gpus: NodeGpus, demand: Demand) -> tuple[int, int]:
    """Return how many units of what `demand` asks for are free, and how many there are."""
    if demand.kind is DeviceKind.GPU:
        return gpus.available, gpus.total
    return gpus.free_parts(demand.resource), sum(part.total for part in gpus.parts.get(demand.resource, ()))
