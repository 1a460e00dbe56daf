"""The CDI specification of a node's GPUs, and the names by which a runtime finds them in it. Pure.

Source: the Container Device Interface's SPEC.md, version 0.5.0, the first with all that is used here.
"""

import re
from typing import Any, Final

from mcp2026.api.names import GROUP
from mcp2026.device_plugin.device_nodes import HostNodes
from mcp2026.device_plugin.devices import Snapshot

CDI_VERSION: Final = "0.5.0"
CDI_KIND: Final = f"{GROUP}/gpu"
"""Vendor and class. The same whatever the prefix of the resources is: it is ours alone."""
LIBRARIES_IN_CONTAINER: Final = "/usr/local/nvidia/lib64"
"""Where images made from NVIDIA's look for the driver's libraries."""

_NAME = re.compile(r"[A-Za-z0-9]([-_.:A-Za-z0-9]*[A-Za-z0-9])?")


def cdi_name(uuid: str) -> str:
    """Return the name under which a runtime knows the GPU or MIG device `uuid`."""
    return f"{CDI_KIND}={uuid}"


def specification(snapshot: Snapshot, nodes: HostNodes, driver_libraries: str = "") -> dict[str, Any]:
    """Return the specification: each GPU and each MIG device by UUID.

    A device without a node on this host is left out, as is one whose UUID is no name in CDI (MIG devices of
    drivers before R470). `driver_libraries` is a folder of the host, or empty.
    """
    uuids = [
        *(gpu.uuid for gpu in snapshot.machine.gpus),
        *(instance.uuid for instances in snapshot.mig_instances.values() for instance in instances),
    ]
    found = {
        uuid: nodes.of_mig_device(snapshot, uuid)
        if uuid in snapshot.gpu_of_mig_device
        else nodes.of_gpu(snapshot, uuid)
        for uuid in uuids
        if _NAME.fullmatch(uuid)
    }
    mounts = [
        {
            "hostPath": driver_libraries,
            "containerPath": LIBRARIES_IN_CONTAINER,
            "options": ["ro", "nosuid", "nodev", "bind"],
        }
    ]
    return {
        "cdiVersion": CDI_VERSION,
        "kind": CDI_KIND,
        "containerEdits": {"deviceNodes": _device_nodes(nodes.control())}
        | ({"mounts": mounts} if driver_libraries else {}),
        "devices": [
            {"name": uuid, "containerEdits": {"deviceNodes": _device_nodes(paths)}}
            for uuid, paths in found.items()
            if paths
        ],
    }


def device_names(document: dict[str, Any]) -> frozenset[str]:
    """Return the UUIDs that the specification `document` knows."""
    return frozenset(device["name"] for device in document["devices"])


def _device_nodes(paths: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"path": path, "permissions": "rw"} for path in paths]
