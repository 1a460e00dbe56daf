"""Runs containerd for one node: its configuration, its pods' network, and its images."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tools.cluster.errors import ClusterError
from tools.cluster.packages import find_program
from tools.cluster.processes import start
from tools.cluster.readiness import READY_TIMEOUT_S, wait_ready
from tools.cluster.record import Record, StartedProgram

CNI_PROGRAMS = "/usr/lib/cni"
"""Where Debian's package puts the network plugins."""

IMAGE_NAMESPACE = "k8s.io"
"""The namespace in which the kubelet's side of containerd looks for images."""

PAUSE_IMAGE = "localhost/mcp2026-pause:1"
"""The image of the container that holds each pod's namespaces."""


def socket_path(folder: Path) -> Path:
    """Return where a run's containerd listens."""
    return folder / "containerd.sock"


def configuration(folder: Path) -> str:
    """Return containerd's configuration, with everything that it keeps in the run's own folder.

    `restrict_oom_score_adj`: machines without CAP_SYS_RESOURCE cannot lower a score.
    `netns_mounts_under_state_dir`: network namespaces of a killed run are found again by their place.
    """
    return f"""\
version = 2
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = "{socket_path(folder)}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/containerd/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  disable_tcp_service = true
  enable_cdi = true
  cdi_spec_dirs = ["{folder}/cdi"]

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PROGRAMS}"
    conf_dir = "{folder}/cni"

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "{folder}/containerd/runc"
"""


def pod_network(bridge: str, subnet: str, leases: Path) -> dict[str, Any]:
    """Return the network that pods are attached to: a bridge on which the node has the first address.

    In hairpin mode a pod reaches itself through its own Service.
    """
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": bridge,
                "isGateway": True,
                "hairpinMode": True,
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(leases),
                    "ranges": [[{"subnet": subnet}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
        ],
    }


def start_containerd(record: Record, bridge: str, subnet: str) -> StartedProgram:
    """Start containerd and return when it answers."""
    folder = Path(record.folder)
    for name in ("containerd", "cni", "cdi"):
        (folder / name).mkdir()
    (folder / "containerd.toml").write_text(configuration(folder))
    network = pod_network(bridge, subnet, folder / "cni-leases")
    (folder / "cni" / "10-pods.conflist").write_text(json.dumps(network, indent=1))
    containerd = find_program("containerd")
    if containerd is None:
        raise ClusterError("containerd is not installed")
    record.mounts.append(str(folder))
    record.save()
    program = start(record, "containerd", [containerd, "--config", folder / "containerd.toml"])
    wait_ready(program, lambda: _answers(folder), READY_TIMEOUT_S)
    return program


def _answers(folder: Path) -> bool:
    return socket_path(folder).exists() and _ctr(folder, "version").returncode == 0


def outside_folder(folder: Path, cni_results: Path = Path("/var/lib/cni/results")) -> list[Path]:
    """Return what a killed containerd leaves outside the run's folder, by the ids of its containers.

    Those are the sockets of its shims, whose place is fixed, and the answers of the network plugins.
    """
    found = []
    for task in folder.glob("containerd/state/io.containerd.runtime.v2.task/*/*"):
        address = task / "address"
        if address.exists():
            found.append(Path(address.read_text().removeprefix("unix://")))
        found += cni_results.glob(f"*-{task.name}-*")
    return found


def import_archive(folder: Path, archive: Path) -> None:
    """Load the images of an archive (docker-archive or OCI) into the node of a run."""
    answer = _ctr(folder, "images", "import", str(archive))
    if answer.returncode != 0:
        raise ClusterError(f"containerd does not take the image {archive}: {answer.stderr.strip()}")


def _ctr(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["ctr", "--namespace", IMAGE_NAMESPACE, "--address", str(socket_path(folder)), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
