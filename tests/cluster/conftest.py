"""A kube-scheduler that asks the extender, for each file of tests; the control plane is that of all tests."""

import re
from collections.abc import Iterator

import pytest

from mcp2026.api.names import EXTENDER_PORT, SCHEDULER_NAME
from tests.cluster.scheduling import LABEL, ROOT, Extender, install_gpu_topologies
from tools.cluster import Cluster
from tools.cluster.control_plane import scheduler_configuration
from tools.cluster.go_programs import build
from tools.cluster.processes import end, start


@pytest.fixture(scope="module")
def extender(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    """The extender, not started, with a kube-scheduler that will ask it."""
    folder = tmp_path_factory.mktemp("scheduling")
    install_gpu_topologies(control_plane)
    extender = Extender(control_plane, folder)
    (block,) = re.findall(
        r"```yaml\n(.*?)```", (ROOT / "scheduler_extender/README.md").read_text(), re.DOTALL
    )
    here = block.replace(f"127.0.0.1:{EXTENDER_PORT}/", f"127.0.0.1:{extender.port}/")
    assert here != block
    config = folder / "scheduler.yaml"
    config.write_text(scheduler_configuration(here, control_plane.kubeconfig))
    flags = [f"--config={config}", "--secure-port=0", "--pod-max-in-unschedulable-pods-duration=15s"]
    scheduler = start(control_plane.record, SCHEDULER_NAME, [build("kube-scheduler", lambda _: None), *flags])
    yield extender
    extender.stop()
    end([scheduler.identity])


@pytest.fixture
def ready(extender: Extender) -> Iterator[Extender]:
    extender.start_ready()
    yield extender
    extender.stop()


@pytest.fixture
def clean(control_plane: Cluster) -> Iterator[None]:
    yield
    control_plane.kubectl("delete", "pods", "--selector", LABEL, "--grace-period=0", "--force")
    control_plane.kubectl("delete", "nodes,gputopologies", "--selector", LABEL)
