"""The device plugin as the real process, and what a test asks it; the fixtures are in `plugin_fixtures`."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

from mcp2026.device_plugin.kubelet import deviceplugin_pb2 as contract
from tests.fakes.kubelet import Endpoint
from tests.fakes.nvml import FakeNvml

TOPOLOGIES = Path(__file__).parents[1] / "topologies"
PAIRS = [f"GPU-a1004006-0000-4000-8000-00000000000{index}" for index in range(4)]
"""The GPUs of 4xa100-pcie-nvlink-pairs, which the fixture `nvml` shows."""
DEADLINE_S = 20.0


class PluginProcess:
    """A plugin that runs; `log` has what it wrote so far."""

    def __init__(self, root: Path, environment: dict[str, str], flags: list[str]) -> None:
        self.log_file = root / f"plugin-{time.monotonic_ns()}.log"
        clean = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        command = [sys.executable, "-m", "mcp2026.device_plugin", f"--kubelet-directory={root}", *flags]
        with self.log_file.open("w") as log:
            self.process = subprocess.Popen(
                command, env=clean | environment, stdout=log, stderr=log, cwd=root
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def wait_for_log(self, text: str, timeout_s: float = DEADLINE_S) -> None:
        end = time.monotonic() + timeout_s
        while text not in self.log:
            assert time.monotonic() < end, f"no {text!r} in:\n{self.log}"
            assert self.process.poll() is None, f"ended before {text!r}:\n{self.log}"
            select.select([], [], [], 0.02)

    def exit_status(self, timeout_s: float = DEADLINE_S) -> int:
        return self.process.wait(timeout_s)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.exit_status()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def metrics_port(self) -> int:
        """Return the port that `--metrics-port=0` gave."""
        self.wait_for_log('"port": ')
        return int(self.log.split('"port": ')[1].split("}")[0].split(",")[0])


class StartPlugin(Protocol):
    """What the fixture `start_plugin` gives: starts a plugin that ends with the test."""

    def __call__(
        self, nvml: FakeNvml | None, *flags: str, node: str = ..., environment: dict[str, str] = ...
    ) -> PluginProcess: ...


def preferred(
    endpoint: Endpoint, available: list[str], size: int, must_include: list[str] | None = None
) -> list[str]:
    """Ask as the kubelet does which GPUs to take."""
    container = contract.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=must_include or [], allocation_size=size
    )
    request = contract.PreferredAllocationRequest(container_requests=[container])
    answer = endpoint.plugin.GetPreferredAllocation(request, timeout=5)
    return list(answer.container_responses[0].deviceIDs)


def allocate(endpoint: Endpoint, *containers: list[str]) -> list[contract.ContainerAllocateResponse]:
    """Allocate as the kubelet does, for several containers at once."""
    request = contract.AllocateRequest(
        container_requests=[contract.ContainerAllocateRequest(devices_ids=uuids) for uuids in containers]
    )
    return list(endpoint.plugin.Allocate(request, timeout=5).container_responses)


def health(devices: dict[str, contract.Device]) -> list[str]:
    """Return the health of each of `PAIRS`."""
    return [devices[uuid].health for uuid in PAIRS]
