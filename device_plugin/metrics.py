"""What the plugin counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from mcp2026.device_plugin.devices import Snapshot


class Metrics:
    """The metrics of one plugin, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        prefix = "mcp2026_device_plugin"
        self.gpus = Gauge(f"{prefix}_gpus", "GPUs of this node", ["health"], registry=self.registry)
        self.registrations = Counter(
            f"{prefix}_registrations", "Registrations with the kubelet", ["result"], registry=self.registry
        )
        self.allocations = Counter(
            f"{prefix}_allocated_gpus", "GPUs handed to containers", registry=self.registry
        )
        self.preferences = Counter(
            f"{prefix}_preferences",
            "Answers to the kubelet's question which GPUs to take",
            ["kind"],
            registry=self.registry,
        )
        self.publications = Counter(
            f"{prefix}_topology_publications",
            "Writes of the GPUTopology",
            ["result"],
            registry=self.registry,
        )
        for result in ("succeeded", "failed"):
            self.registrations.labels(result)
            self.publications.labels(result)
        for kind in ("scored", "fallback"):
            self.preferences.labels(kind)

    def observe(self, snapshot: Snapshot) -> None:
        """Set the gauges to what `snapshot` says."""
        unhealthy = len(snapshot.unhealthy)
        self.gpus.labels("healthy").set(len(snapshot.machine.gpus) - unhealthy)
        self.gpus.labels("unhealthy").set(unhealthy)
        self.gpus.labels("unreadable").set(len(snapshot.unreadable))
