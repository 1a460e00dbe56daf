"""The bridge that joins a node with its pods, and the kernel settings that go with it."""

import ipaddress
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.cluster.errors import ClusterError
from tools.cluster.record import Record

CANDIDATES = ipaddress.ip_network("10.244.0.0/16")
"""Where the pods' addresses are taken from: the first of these networks that the machine does not use."""

INTERFACE_PREFIX = "mcp"
"""Linux allows 15 characters for the name of an interface."""

SYSCTLS = {"net.ipv4.ip_forward": "1"}
"""What a node needs of the kernel: pods reach what is not on their bridge through the node."""


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """One node's bridge. The node's own address on it is the first one of the pods' network."""

    bridge: str
    subnet: str
    address: str


def choose_subnet(in_use: Iterable[str]) -> ipaddress.IPv4Network:
    """Return the first network of 256 addresses that overlaps with none in use."""
    taken = [ipaddress.ip_network(text, strict=False) for text in in_use]
    for subnet in CANDIDATES.subnets(new_prefix=24):
        if not any(other.version == 4 and subnet.overlaps(other) for other in taken):
            return ipaddress.IPv4Network(subnet)
    raise ClusterError(f"all of {CANDIDATES} is in use on this machine")


def make_bridge(record: Record) -> NodeNetwork:
    """Make and record the bridge of a run, and let the kernel forward to and from it."""
    subnet = choose_subnet(_addresses_in_use())
    network = NodeNetwork(INTERFACE_PREFIX + record.run_id[:10], str(subnet), str(subnet[1]))
    record.interfaces.append(network.bridge)
    for name in SYSCTLS:
        record.sysctls[name] = _sysctl(name).read_text().strip()
    record.save()
    _ip("link", "add", network.bridge, "type", "bridge")
    _ip("address", "add", f"{network.address}/{subnet.prefixlen}", "dev", network.bridge)
    _ip("link", "set", network.bridge, "up")
    for name, value in SYSCTLS.items():
        _sysctl(name).write_text(value)
    return network


def _sysctl(name: str) -> Path:
    return Path("/proc/sys", *name.split("."))


def _addresses_in_use() -> list[str]:
    interfaces = json.loads(_ip("-json", "address", "show"))
    return [
        f"{address['local']}/{address['prefixlen']}"
        for interface in interfaces
        for address in interface.get("addr_info", ())
        if "local" in address
    ]


def _ip(*arguments: str) -> str:
    answer = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise ClusterError(f"ip {' '.join(arguments)} failed: {answer.stderr.strip()}")
    return answer.stdout
