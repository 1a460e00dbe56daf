"""What GPUs does this node have, how are they linked, how are they, and what happens to them? By pynvml.

`NvmlDriver` and `NvmlEvents` are the `Driver` and the `EventSource` of `mcp2026.device_plugin.driver`.
"""

from mcp2026.device_plugin.adapters.nvml.bus_ids import normal_bus_id, numa_node_from_sysfs
from mcp2026.device_plugin.adapters.nvml.driver import NvmlDriver
from mcp2026.device_plugin.adapters.nvml.events import NvmlEvents
from mcp2026.device_plugin.adapters.nvml.opening import Deadlines
from mcp2026.device_plugin.driver import Reading

__all__ = ["Deadlines", "NvmlDriver", "NvmlEvents", "Reading", "normal_bus_id", "numa_node_from_sysfs"]
