"""The three levels at which a cluster can be had, from the cheapest to the most real."""

from enum import StrEnum


class Level(StrEnum):
    """How much of Kubernetes runs."""

    CONTROL_PLANE = "control-plane"
    """etcd, API server, controller manager and scheduler. No root, no nodes."""

    NODE = "node"
    """The control plane and one real node: kubelet, containerd, runc, kube-proxy. Needs root."""

    KWOK = "kwok"
    """The control plane and nodes played by kwok: pods become Running and run nothing."""


PROGRAMS: dict[Level, tuple[str, ...]] = {
    Level.CONTROL_PLANE: ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
    Level.NODE: (
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
        "kubelet",
        "kube-proxy",
        "pause",
        "helm",
    ),
    Level.KWOK: ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok"),
}
"""The Go programs that each level starts or uses."""
