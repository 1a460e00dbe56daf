"""What the plugin counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from mcp2026.device_plugin.devices import Snapshot
from mcp2026.device_plugin.offers import offers


class Metrics:
    """The metrics of one plugin, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._seen: set[str] = set()
        prefix = "mcp2026_device_plugin"
        self.gpus = Gauge(f"{prefix}_gpus", "GPUs of this node", ["health"], registry=self.registry)
        self.registrations = Counter(
            f"{prefix}_registrations", "Registrations with the kubelet", ["result"], registry=self.registry
        )
        self.devices = Gauge(
            f"{prefix}_devices",
            "Devices offered to the kubelet",
            ["resource", "health"],
            registry=self.registry,
        )
        self.allocations = Counter(
            f"{prefix}_allocated_devices",
            "Devices handed to containers",
            ["resource"],
            registry=self.registry,
        )
        self.refused_allocations = Counter(
            f"{prefix}_refused_allocations",
            "Requests for parts of several GPUs that one container cannot use",
            ["resource"],
            registry=self.registry,
        )
        self.divergences = Counter(
            f"{prefix}_reservation_divergences",
            "Containers that hold other devices than were reserved for them",
            registry=self.registry,
        )
        self.refusals = Gauge(
            f"{prefix}_refused_configurations",
            "Configuration files and specs that are there and could not be taken",
            registry=self.registry,
        )
        self.preferences = Counter(
            f"{prefix}_preferences",
            "Answers to the kubelet's question which devices to take",
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
        for kind in ("reserved", "scored", "fallback"):
            self.preferences.labels(kind)

    def observe(self, snapshot: Snapshot) -> None:
        """Set the gauges to what `snapshot` says."""
        unhealthy = len(snapshot.unhealthy)
        self.gpus.labels("healthy").set(len(snapshot.machine.gpus) - unhealthy)
        self.gpus.labels("unhealthy").set(unhealthy)
        self.gpus.labels("unreadable").set(len(snapshot.unreadable))
        self.refusals.set(len(snapshot.refusals))
        offered = offers(snapshot)
        self._seen |= offered.keys()
        for resource in self._seen:
            devices = offered.get(resource, ())
            healthy = sum(device.healthy for device in devices)
            self.devices.labels(resource, "healthy").set(healthy)
            self.devices.labels(resource, "unhealthy").set(len(devices) - healthy)
