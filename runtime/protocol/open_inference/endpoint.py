"""What HTTP and gRPC of this protocol stand on."""

from dataclasses import dataclass, field

from mcp2026.runtime.context.observer import RequestObserver, plain_observer
from mcp2026.runtime.health import Health
from mcp2026.runtime.inference import InferenceService
from mcp2026.runtime.metrics.runtime_metrics import RuntimeMetrics
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.protocol.open_inference.administration import Administration
from mcp2026.runtime.protocol.open_inference.requests import Limits
from mcp2026.runtime.shared_memory.regions import SharedMemoryRegions


@dataclass(eq=False)
class Endpoint:
    """One way into the protocol, and the parts of the worker behind it."""

    health: Health
    metrics: RuntimeMetrics
    service: InferenceService
    store: ModelStore
    regions: SharedMemoryRegions
    administration: Administration
    limits: Limits
    observer: RequestObserver = field(default_factory=plain_observer)

    def __post_init__(self) -> None:
        """Begin to count."""
        self.failures = self.metrics.version()
        """Counts requests that failed before their model was known."""
        self.contexts = self.observer.contexts
