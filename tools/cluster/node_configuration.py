"""What the kubelet and kube-proxy of the one node are told, as data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.cluster.certificates import KeyPair
from tools.cluster.containerd import socket_path
from tools.cluster.network import NodeNetwork


@dataclass(frozen=True, slots=True)
class KubeletPorts:
    """Where the kubelet answers: the API server's calls, and health checks on loopback."""

    api: int
    health: int


def kubelet_configuration(
    folder: Path, ports: KubeletPorts, authority: Path, serving: KeyPair, cgroup: str
) -> dict[str, Any]:
    """Return a KubeletConfiguration for a machine that does much else besides.

    Pods are evicted only when memory or disk is all but gone; images are never collected; nothing is
    expected of systemd; what the kubelet writes outside its root goes to the run's own folder.
    """
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "port": ports.api,
        "readOnlyPort": 0,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": ports.health,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "containerRuntimeEndpoint": f"unix://{socket_path(folder)}",
        "podLogsDir": str(folder / "pod-logs"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": ["pods"],
        "failSwapOn": False,
        "failCgroupV1": False,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "resolvConf": "/etc/resolv.conf",
        "clusterDomain": "cluster.local",
        "nodeStatusUpdateFrequency": "5s",
        "registerNode": True,
        "serializeImagePulls": False,
        "maxPods": 110,
    }


def kube_proxy_configuration(
    kubeconfig: Path, node: str, network: NodeNetwork, health_port: int, metrics_port: int
) -> dict[str, Any]:
    """Return a KubeProxyConfiguration in nftables mode that leaves the machine's connection limits alone."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": node,
        "clusterCIDR": network.subnet,
        "bindAddress": network.address,
        "healthzBindAddress": f"127.0.0.1:{health_port}",
        "metricsBindAddress": f"127.0.0.1:{metrics_port}",
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }
