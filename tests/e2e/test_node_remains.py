"""A node whose owner was killed leaves mounts, namespaces, cgroups and a bridge: the next run removes all."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.cluster import Cluster
from tools.cluster.cache import held
from tools.cluster.cgroups import hierarchies, members
from tools.cluster.fixtures import node_turn
from tools.cluster.processes import of_run
from tools.cluster.removal import mounts_under, sweep

pytestmark = pytest.mark.node

POD = """
apiVersion: v1
kind: Pod
metadata: {name: idle}
spec:
  containers: [{name: idle, image: "localhost/mcp2026-pause:1", imagePullPolicy: Never}]
"""


def test_the_next_run_removes_what_a_killed_node_left() -> None:
    name = f"killed-{os.getpid()}"
    script = (
        "import signal; from tools.cluster import Level, up; "
        f"up({name!r}, Level.NODE, owned=True); print('up', flush=True); signal.pause()"
    )
    with held(node_turn()):
        owner = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
        )
        assert owner.stdout is not None
        assert owner.stdout.readline().strip() == "up"
        cluster = Cluster.named(name)
        cluster.apply(POD)
        cluster.wait("pod/idle", "condition=Ready")
        owner.send_signal(signal.SIGKILL)
        owner.wait()

        record = cluster.record
        (cgroup,), (bridge,) = record.cgroups, record.interfaces
        assert len(members(cgroup)) == 2
        assert any(mounts_under(folder, mountinfo()) for folder in record.mounts)
        assert Path("/sys/class/net", bridge).exists()

        sweep(lambda _: None)
        assert members(cgroup) == []
        assert not any((hierarchy / cgroup).exists() for hierarchy in hierarchies())
        assert of_run(record.run_id) == []
        assert not any(mounts_under(folder, mountinfo()) for folder in record.mounts)
        assert not Path("/sys/class/net", bridge).exists()
        tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
        assert "kube-proxy" not in tables
        assert not cluster.folder.exists()


def mountinfo() -> str:
    return Path("/proc/self/mountinfo").read_text()
