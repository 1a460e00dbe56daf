"""What the device plugin takes while nothing happens: memory and time of the processor.

The real process with the fake driver and a played kubelet, offering 400 shares of 16 GPUs (as many devices as
100 GPUs by 4), without an API server. `python -m bench plugin-footprint`.
"""

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.kubelet import running_kubelet
from tests.fakes.nvml import FakeNvml, build_library
from tests.fakes.plugin_process import TOPOLOGIES, PluginProcess

GPUS, SHARES = 16, 25
MEMORY_BAR_MIB, PROCESSOR_BAR_PERCENT = 80.0, 0.5
SETTLING_S = 12.0
"""Until start-up is over: sharing is read anew for some seconds."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Resident memory in MiB, and time of one processor in percent."""

    resident_mib: float
    processor_percent: float
    devices: int

    @property
    def within_bars(self) -> bool:
        """Whether both are below what the plugin is held to."""
        return self.resident_mib < MEMORY_BAR_MIB and self.processor_percent < PROCESSOR_BAR_PERCENT


def measure_footprint(duration_s: float) -> Footprint:
    """Run the plugin, and watch it for `duration_s` after it has settled."""
    with tempfile.TemporaryDirectory(prefix="plugin-", dir="/tmp") as folder:
        root = Path(folder)
        configuration = root / "configuration.yaml"
        configuration.write_text(f"sharing: {{mode: TimeSlice, replicas: {SHARES}}}\n")
        driver = FakeNvml(root / "driver", TOPOLOGIES / "dgx-2-16xv100.yaml", library=build_library(root))
        flags = [
            "--no-publish-topology",
            f"--config={configuration}",
            f"--mps-directory={root / 'mps'}",
            f"--cdi-directory={root / 'cdi'}",
        ]
        with running_kubelet(root) as kubelet:
            plugin = PluginProcess(root, driver.environment | {"NODE_NAME": "bench"}, flags)
            try:
                kubelet.wait(lambda: len(kubelet.endpoints) == 2, "both resources")
                time.sleep(SETTLING_S)
                before, began = _processor_s(plugin.process.pid), time.monotonic()
                time.sleep(duration_s)
                used = _processor_s(plugin.process.pid) - before
                percent = 100 * used / (time.monotonic() - began)
                devices = sum(len(endpoint.lists[-1]) for endpoint in kubelet.endpoints)
                return Footprint(_resident_mib(plugin.process.pid), percent, devices)
            finally:
                plugin.end()


def _processor_s(pid: int) -> float:
    """Return the time that the process' threads ran, as the scheduler measured it.

    The times in /proc/PID/stat are counted by the tick on many kernels: who wakes with the tick is charged
    all of it.
    """
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def _resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
