"""The cluster that what-if starts from: read from the API server or a file, and changed as asked."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.gpu_sharing import SharingStatus
from mcp2026.api.gpu_topology import MigDevice, parse_gpu_topology
from mcp2026.cli.api_server import ApiServerError, api_server
from mcp2026.cli.errors import CommandError
from mcp2026.cli.what_if_pods import LONGEST_NAME
from mcp2026.scheduler_extender.what_if import ClusterDocuments
from mcp2026.topology.errors import MigPlanError
from mcp2026.topology.idle_machine import idle_status
from mcp2026.topology.machine import machine_from_file
from mcp2026.topology.mig.planner import plan_layout
from mcp2026.topology.mig.tables import geometry_of

TIMEOUT_SECONDS = 60
NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
PATHS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "GPUTopology": "/apis/mcp2026.io/v1alpha1/gputopologies",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
}


def from_cluster() -> ClusterDocuments:
    """Read the cluster that the kubeconfig names.

    Raises:
        CommandError: there is no usable kubeconfig, or the API server does not give what is asked.

    """
    with api_server(instead="; or give a --snapshot") as api:
        return _sorted_by_kind({kind: _read(api, path) for kind, path in PATHS.items()})


def _read(api: Any, path: str) -> list[dict[str, Any]]:
    headers = {"Accept": "application/json"}
    request = api.param_serialize("GET", path, header_params=headers, auth_settings=["BearerToken"])
    answer = api.call_api(*request, _request_timeout=TIMEOUT_SECONDS)
    content = answer.read()
    if answer.status != 200:
        raise ApiServerError(answer.status, answer.reason, f" about {path}")
    items: list[dict[str, Any]] = json.loads(content)["items"]
    return items


def from_file(path: Path) -> ClusterDocuments:
    """Read what `kubectl get nodes,pods,gputopologies,pdb -A -o json` wrote, or what --save did.

    Raises:
        CommandError: the file cannot be read, or is no list of objects.

    """
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise CommandError(f"--snapshot {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _no_snapshot(path, f"{error.reason} in {error.encoding} at byte {error.start}") from error
    except ValueError as error:
        raise _no_snapshot(path, f"not JSON: {error}") from error
    except RecursionError as error:
        raise _no_snapshot(path, "nested too deeply") from error
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise _no_snapshot(path, "no list `items`")
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in PATHS}
    for place, item in enumerate(items):
        if not _is_named(item):
            raise _no_snapshot(path, f"items[{place}] has no kind and metadata.name")
        if item["kind"] in found:
            found[item["kind"]].append(item)
    return _sorted_by_kind(found)


def _is_named(item: Any) -> bool:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return isinstance(name, str) and isinstance(item.get("kind"), str)


def _no_snapshot(path: Path, problem: str) -> CommandError:
    written = "what `kubectl get nodes,pods,gputopologies,pdb -A -o json` writes"
    return CommandError(f"--snapshot {path}: {problem}; allowed: {written}")


def to_file(documents: ClusterDocuments, path: Path) -> None:
    """Write `documents` so that `from_file` reads them.

    Raises:
        CommandError: the file cannot be written.

    """
    items = [
        {**item, "kind": kind}
        for kind, those in zip(
            PATHS, (documents.nodes, documents.pods, documents.gpu_topologies, documents.budgets), strict=True
        )
        for item in those
    ]
    try:
        path.write_text(json.dumps({"kind": "List", "items": items}), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--save {path}: {error.strerror}") from error


def _sorted_by_kind(found: Mapping[str, Sequence[dict[str, Any]]]) -> ClusterDocuments:
    return ClusterDocuments(
        nodes=tuple(found["Node"]),
        pods=tuple(found["Pod"]),
        gpu_topologies=tuple(found["GPUTopology"]),
        budgets=tuple(found["PodDisruptionBudget"]),
    )


def with_node(documents: ClusterDocuments, asked: str) -> ClusterDocuments:
    """Return `documents` with the idle node that `asked` (``NAME=FILE``, a machine in YAML) describes.

    Raises:
        CommandError: it is not of that form, or there is such a node.
        MachineFormatError: the file cannot be read.

    """
    name, separator, file = asked.partition("=")
    if not (name and separator and file):
        raise CommandError(f"--add-node {asked}: allowed: NAME=FILE, a machine as in tests/topologies")
    if not NODE_NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise CommandError(
            f"--add-node {asked}: {name} names no node; "
            f"allowed: at most {LONGEST_NAME} of a-z, 0-9, - and ., with a letter or digit at both ends"
        )
    if any(node["metadata"]["name"] == name for node in documents.nodes):
        raise CommandError(f"--add-node {asked}: the cluster has a node of this name")
    status = msgspec.to_builtins(idle_status(machine_from_file(Path(file))))
    return replace(
        documents,
        nodes=(*documents.nodes, {"metadata": {"name": name}}),
        gpu_topologies=(*documents.gpu_topologies, {"metadata": {"name": name}, "status": status}),
    )


def with_mig_layout(documents: ClusterDocuments, asked: str) -> ClusterDocuments:
    """Return `documents` with an idle GPU cut as `asked`: ``NODE:INDEX=PROFILE,PROFILE``.

    Raises:
        CommandError: it is not of that form, or there is no such GPU, or it is in use or cannot be cut so.

    """
    place, separator, profiles = asked.partition("=")
    node, colon, index = place.rpartition(":")
    names = [name.strip() for name in profiles.split(",")]
    if not (node and colon and separator and all(names) and index.isdecimal()):
        raise CommandError(f"--mig-layout {asked}: allowed: NODE:INDEX=PROFILE,… such as a:0=3g.40gb,3g.40gb")
    for document in documents.gpu_topologies:
        if document["metadata"]["name"] == node:
            changed = _cut(document, int(index), names, asked)
            rest = (changed if each is document else each for each in documents.gpu_topologies)
            return replace(documents, gpu_topologies=tuple(rest))
    raise CommandError(f"--mig-layout {asked}: the cluster has no GPUTopology {node}")


def _cut(document: Mapping[str, Any], index: int, profiles: list[str], asked: str) -> dict[str, Any]:
    try:
        status = parse_gpu_topology(dict(document)).status
    except InvalidResourceError as error:
        raise CommandError(f"--mig-layout {asked}: the node's GPUTopology cannot be read: {error}") from error
    gpu = next((each for each in status.gpus if each.index == index), None)
    if gpu is None:
        there = ", ".join(str(each.index) for each in status.gpus) or "none"
        raise CommandError(f"--mig-layout {asked}: no GPU {index}; allowed: {there}")
    if gpu.held_by is not None or gpu.allocations:
        raise CommandError(f"--mig-layout {asked}: GPU {index} is in use")
    geometry = geometry_of(gpu.product, gpu.memory_mi_b)
    if geometry is None:
        raise CommandError(f"--mig-layout {asked}: {gpu.product} cannot be cut, or how is not known")
    try:
        plan = plan_layout(geometry.profiles, (), (), profiles)
    except MigPlanError as error:
        raise CommandError(f"--mig-layout {asked}: {error}") from error
    devices = tuple(
        MigDevice(
            uuid=f"MIG-what-if-{_last_part(gpu.uuid)}-{made.start}",
            profile=made.profile.name,
            start=made.start,
            size=made.profile.size,
            memory_mi_b=made.profile.memory_mib,
        )
        for made in plan.create
    )
    cut = msgspec.structs.replace(gpu, sharing=SharingStatus(mode="MIG"), mig_devices=devices)
    gpus = tuple(cut if each is gpu else each for each in status.gpus)
    return {**document, "status": msgspec.to_builtins(msgspec.structs.replace(status, gpus=gpus))}


def _last_part(uuid: str) -> str:
    """Return what tells GPUs of a node apart, within the kubelet's limit for names of devices."""
    return uuid.rpartition("-")[2]
