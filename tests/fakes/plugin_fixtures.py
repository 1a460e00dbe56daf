"""Fixtures: a fake kubelet, a fake of the driver, and the device plugin's process between them.

A test module asks for them by `pytest_plugins = ["tests.fakes.plugin_fixtures"]`.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.kubelet import FakeKubelet, running_kubelet
from tests.fakes.nvml import FakeNvml, build_library
from tests.fakes.plugin_process import TOPOLOGIES, PluginProcess, StartPlugin


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def kubelet_root() -> Iterator[Path]:
    """A short path: that of a Unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="kubelet-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def kubelet(kubelet_root: Path) -> Iterator[FakeKubelet]:
    with running_kubelet(kubelet_root) as kubelet:
        yield kubelet


@pytest.fixture
def nvml(tmp_path: Path, nvml_library: Path) -> FakeNvml:
    return FakeNvml(tmp_path / "pairs", TOPOLOGIES / "4xa100-pcie-nvlink-pairs.yaml", library=nvml_library)


@pytest.fixture
def start_plugin(kubelet_root: Path) -> Iterator[StartPlugin]:
    """Without an API server unless the flags say otherwise, with quick probes and quick recoveries."""
    with ExitStack() as stack:

        def start(
            nvml: FakeNvml | None,
            *flags: str,
            node: str = "node-1",
            environment: dict[str, str] | None = None,
        ) -> PluginProcess:
            variables = (nvml.environment if nvml else {}) | {"NODE_NAME": node} | (environment or {})
            configuration = kubelet_root / "configuration.yaml"
            configuration.write_text("health: {recoverAfterSeconds: 0.1}\n")
            quick = [
                "--health-interval=0.2",
                "--holders-interval=0.2",
                f"--config={configuration}",
                f"--cdi-directory={kubelet_root / 'cdi'}",
                f"--mps-directory={kubelet_root / 'mps'}",
            ]
            defaults = ["--log-format=json", "--no-publish-topology", *quick]
            process = PluginProcess(kubelet_root, variables, [*defaults, *flags])
            stack.callback(process.end)
            return process

        yield start
