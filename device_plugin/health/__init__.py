"""How GPUs are: from what the driver tells to a condition with a reason, a taint and an event."""

from mcp2026.device_plugin.health.loop import HealthLoop, HealthMetrics
from mcp2026.device_plugin.health.probing import HealthProbe, read_snapshot

__all__ = ["HealthLoop", "HealthMetrics", "HealthProbe", "read_snapshot"]
