"""Brings up one real node: a bridge, containerd, the kubelet and kube-proxy beside a control plane."""

import dataclasses
import subprocess
from pathlib import Path

import yaml

from tools.cluster.cache import held
from tools.cluster.cgroups import make_cgroup
from tools.cluster.cluster import Cluster
from tools.cluster.containerd import import_archive, start_containerd
from tools.cluster.control_plane import ControlPlane, ControlPlaneOptions, start_control_plane
from tools.cluster.errors import ClusterError
from tools.cluster.go_programs import build
from tools.cluster.images import pause_image
from tools.cluster.kubeconfig import write_kubeconfig
from tools.cluster.levels import Level
from tools.cluster.network import NodeNetwork, make_bridge
from tools.cluster.node_configuration import KubeletPorts, kube_proxy_configuration, kubelet_configuration
from tools.cluster.ports import claim
from tools.cluster.processes import start
from tools.cluster.progress import Report
from tools.cluster.readiness import READY_TIMEOUT_S, HttpProbe, wait_ready
from tools.cluster.record import Record, records, state_folder
from tools.cluster.removal import mounts_under

KUBELET_ROOT = Path("/var/lib/kubelet")
"""The device-plugin socket's path below it is fixed, so a machine has room for one kubelet."""

CONTAINER_LOG_LINKS = "/var/log/containers"
"""Where the kubelet puts links to containers' logs, whatever its configuration says."""


def node_name(cluster: str) -> str:
    """Return the name of a cluster's one node."""
    return f"{cluster}-node"


def start_node(record: Record, options: ControlPlaneOptions, report: Report) -> None:
    """Bring up a control plane and a node, and return when the node is Ready and takes pods."""
    with held(state_folder() / "node.lock", lambda: report("waiting for another node to come up")):
        _claim_kubelet_root(record)
    network = make_bridge(record)
    start_containerd(record, network.bridge, network.subnet)
    import_archive(Path(record.folder), pause_image(report))
    options = dataclasses.replace(options, advertise_address=network.address)
    plane = start_control_plane(record, options, report)
    start_kubelet(record, plane, network, report)
    start_kube_proxy(record, plane, network, report)
    cluster = Cluster(record)
    name = node_name(record.name)
    cluster.wait_for(f"node {name} to register", lambda: cluster.kubectl("get", "node", name))
    cluster.wait(f"node/{name}", "condition=Ready", timeout_s=READY_TIMEOUT_S)
    cluster.wait_for("the node to take pods", lambda: not cluster.get("node", name)["spec"].get("taints"))


def start_kubelet(record: Record, plane: ControlPlane, network: NodeNetwork, report: Report) -> None:
    """Start the kubelet and return when it says that it is healthy."""
    folder = Path(record.folder)
    name = node_name(record.name)
    api_port, health_port = claim(record, 2)
    serving = plane.authority.issue("kubelet-serving", name, hosts=[network.address, name])
    client = plane.authority.issue("kubelet", f"system:node:{name}", organizations=["system:nodes"])
    authority = plane.authority.certificate
    config = write_kubeconfig(folder / "kubelet.kubeconfig", plane.api_url, authority, client)
    cgroup = make_cgroup(record, f"mcp2026-{record.name}")
    settings = folder / "kubelet.yaml"
    content = kubelet_configuration(folder, KubeletPorts(api_port, health_port), authority, serving, cgroup)
    settings.write_text(yaml.safe_dump(content, sort_keys=False))
    record.link_folders.append(CONTAINER_LOG_LINKS)
    record.save()
    arguments = [
        f"--config={settings}",
        f"--kubeconfig={config}",
        f"--root-dir={KUBELET_ROOT}",
        f"--cert-dir={folder}/pki",
        f"--hostname-override={name}",
        f"--node-ip={network.address}",
    ]
    program = start(record, "kubelet", [build("kubelet", report), *arguments])
    wait_ready(program, HttpProbe(f"http://127.0.0.1:{health_port}/healthz"), READY_TIMEOUT_S)


def start_kube_proxy(record: Record, plane: ControlPlane, network: NodeNetwork, report: Report) -> None:
    """Start kube-proxy and return when Services' addresses work from this machine and from pods."""
    folder = Path(record.folder)
    health_port, metrics_port = claim(record, 2)
    client = plane.authority.issue("kube-proxy", "system:kube-proxy")
    config = write_kubeconfig(
        folder / "kube-proxy.kubeconfig", plane.api_url, plane.authority.certificate, client
    )
    name = node_name(record.name)
    settings = folder / "kube-proxy.yaml"
    content = kube_proxy_configuration(config, name, network, health_port, metrics_port)
    settings.write_text(yaml.safe_dump(content, sort_keys=False))
    record.nft_tables += ["ip kube-proxy", "ip6 kube-proxy"]
    record.save()
    program = start(record, "kube-proxy", [build("kube-proxy", report), f"--config={settings}"])
    wait_ready(program, HttpProbe(f"http://127.0.0.1:{health_port}/healthz"), READY_TIMEOUT_S)


def _claim_kubelet_root(record: Record) -> None:
    """Put the run's own folder at the kubelet's fixed place, unless a kubelet uses that already.

    What lay there before is covered, not touched, and comes back with `down`.
    """
    others = [other.name for other in records() if other.level == Level.NODE and other.name != record.name]
    claimed = [name for name in others if str(KUBELET_ROOT) in Cluster.named(name).record.mounts]
    if claimed:
        raise ClusterError(f"one real node at a time: the cluster {claimed[0]!r} has it; take it down first")
    mounted = mounts_under(str(KUBELET_ROOT), Path("/proc/self/mountinfo").read_text())
    if mounted:
        raise ClusterError(
            f"a kubelet that is not ours uses {KUBELET_ROOT}: mounted are {', '.join(mounted)}"
        )
    own = Path(record.folder) / "kubelet"
    own.mkdir()
    KUBELET_ROOT.mkdir(parents=True, exist_ok=True)
    record.mounts.append(str(KUBELET_ROOT))
    record.save()
    for command in (
        ["mount", "--bind", str(own), str(KUBELET_ROOT)],
        ["mount", "--make-rshared", str(KUBELET_ROOT)],
    ):
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise ClusterError(f"{' '.join(command)} failed: {answer.stderr.strip()}")


def load_image(cluster: Cluster, archive: Path) -> None:
    """Load the images of an archive into the cluster's node, for pods with imagePullPolicy Never."""
    if cluster.record.level != Level.NODE:
        raise ClusterError(f"the cluster {cluster.name!r} has no real node to load images into")
    import_archive(cluster.folder, archive)
