"""What the device plugin takes while nothing happens: memory and time of the processor.

The real process with the fake driver and a played kubelet, offering 400 shares of 16 GPUs (as many devices as
100 GPUs by 4), without an API server. `python -m bench plugin-footprint`.

How dear a wake is depends on the machine: a quiet virtual one may take a millisecond until the processor is
back and its caches are warm, a busy one some ten microseconds. So a bystander is watched in the same seconds,
an event loop with a timer that wakes as often as the plugin and does nothing. What the plugin takes beyond it
is its own; what both take is the machine's.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.kubelet import running_kubelet
from tests.fakes.nvml import FakeNvml, build_library
from tests.fakes.plugin_process import TOPOLOGIES, PluginProcess

GPUS, SHARES = 16, 25
MEMORY_BAR_MIB, PROCESSOR_BAR_PERCENT = 80.0, 0.5
SETTLING_S = 22.0
"""Until start-up is over, in which sharing is read anew for some seconds and the kubelet is asked often."""
COUNTING_S = 10.0
"""At the end of the settling: two looks of the plugin at its GPUs, from which the bystander gets its pace."""
BYSTANDER = """
import asyncio, sys
async def wake(pause_s):
    while True:
        await asyncio.sleep(pause_s)
asyncio.run(wake(float(sys.argv[1])))
"""
_NS = 1e9


@dataclass(frozen=True, slots=True)
class Use:
    """What a process did: time of one processor in percent, wakes per second of all and of its main thread.

    A wake is a voluntary context switch. Those of threads that live for one call are not counted, their time
    is.
    """

    processor_percent: float
    wakes: float
    main_wakes: float

    @property
    def wake_us(self) -> float:
        """Time of the processor for one wake, in microseconds."""
        return self.processor_percent / 100 / self.wakes * 1e6 if self.wakes else 0.0


@dataclass(frozen=True, slots=True)
class Footprint:
    """Resident memory in MiB, what plugin and bystander did, and calls into the driver per second."""

    resident_mib: float
    plugin: Use
    bystander: Use
    driver_calls: float
    devices: int

    @property
    def within_bars(self) -> bool:
        """Whether both are below what the plugin is held to."""
        return self.resident_mib < MEMORY_BAR_MIB and self.plugin.processor_percent < PROCESSOR_BAR_PERCENT


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
                time.sleep(SETTLING_S - COUNTING_S)
                pid = plugin.process.pid
                (pace,) = _watch([pid], COUNTING_S)
                with _bystander(pace.wakes) as beside:
                    calls = len(driver.calls())
                    used, bystander = _watch([pid, beside], duration_s)
                    calls = len(driver.calls()) - calls
                devices = sum(len(endpoint.lists[-1]) for endpoint in kubelet.endpoints)
                return Footprint(_resident_mib(pid), used, bystander, calls / duration_s, devices)
            finally:
                plugin.end()


@contextmanager
def _bystander(wakes: float) -> Iterator[int]:
    """A process that wakes so often each second and does nothing else; yields its number."""
    process = subprocess.Popen([sys.executable, "-c", BYSTANDER, str(1 / max(wakes, 0.1))])
    try:
        time.sleep(1.0)  # it starts
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _watch(pids: list[int], duration_s: float) -> list[Use]:
    """Return what each process does meanwhile."""
    before, began = [_reading(pid) for pid in pids], time.monotonic()
    time.sleep(duration_s)
    after, took_s = [_reading(pid) for pid in pids], time.monotonic() - began
    return [_use(*each, took_s) for each in zip(pids, before, after, strict=True)]


def _use(pid: int, before: "_Reading", after: "_Reading", took_s: float) -> Use:
    woken = {thread: count - before.switches.get(thread, 0) for thread, count in after.switches.items()}
    percent = 100 * (after.processor_s - before.processor_s) / took_s
    return Use(percent, sum(woken.values()) / took_s, woken[pid] / took_s)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Time that all threads ran so far, ended ones too, and voluntary switches by thread."""

    processor_s: float
    switches: Mapping[int, int]


def _reading(pid: int) -> _Reading:
    """Read both from the scheduler.

    The times in /proc/PID/stat are counted by the tick on many kernels: who wakes with the tick is charged
    all of it. The clock is that of clock_getcpuclockid(3), which Python has for threads alone.
    """
    clock = (~pid << 3) | 2
    threads = Path(f"/proc/{pid}/task").iterdir()
    switches = {int(thread.name): _voluntary_switches(thread) for thread in threads}
    return _Reading(time.clock_gettime_ns(clock) / _NS, switches)


def _voluntary_switches(thread: Path) -> int:
    lines = (thread / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def _resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
