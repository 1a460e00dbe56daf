"""The extender protocol, version 1, as bytes: what kube-scheduler sends and what it reads.

Kubernetes' types (`k8s.io/kube-scheduler/extender/v1`) have no JSON tags: Go sends its field names and
reads them in any letter case. So do we. Pod and Node inside have their usual JSON names.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from mcp2026.scheduler_extender.errors import MalformedRequestError
from mcp2026.scheduler_extender.kube_objects import Node, Pod, PodSpec

MAX_PRIORITY = 10
"""`MaxExtenderPriority` of the protocol."""


class NodeList(msgspec.Struct, frozen=True):
    """Whole nodes, handed back as the bytes in which they came."""

    items: tuple[msgspec.Raw, ...] = ()


class ExtenderFilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    """Which nodes fit. `node_names` or `nodes` is given, in the way in which the scheduler asked."""

    nodes: NodeList | None = None
    node_names: tuple[str, ...] | None = None
    failed_nodes: dict[str, str] = {}
    """Node → reason, where preempting pods might help."""
    failed_and_unresolvable_nodes: dict[str, str] = {}
    """Node → reason, where it cannot."""
    error: str = ""


class HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    """The score of one node, 0 to `MAX_PRIORITY`."""

    host: str
    score: int


HostPriorityList = tuple[HostPriority, ...]


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """A pod to be placed and the nodes to choose from, in the order sent, each once."""

    namespace: str
    name: str
    spec: PodSpec
    node_names: tuple[str, ...]
    whole_nodes: dict[str, msgspec.Raw] | None
    """The nodes themselves, where the scheduler sent them (`nodeCacheCapable: false`)."""


def decode_args(body: bytes) -> ExtenderArgs:
    """Return what the body of filter or prioritize asks.

    Raises:
        MalformedRequestError: not JSON, no pod, a pod without a spec, or no nodes.

    """
    fields = _fields(body)
    pod = _decode(fields.get("pod"), Pod | None, "Pod")
    if pod is None:
        raise MalformedRequestError("Pod is missing: the body is no ExtenderArgs")
    if pod.spec is None:
        raise MalformedRequestError(f"Pod {pod.metadata.name or '?'} has no spec")
    names = _decode(fields.get("nodenames"), tuple[str, ...] | None, "NodeNames")
    whole: dict[str, msgspec.Raw] | None = None
    if names is None:
        node_list = _fields(fields["nodes"], "Nodes") if fields.get("nodes") else {}
        items = _decode(node_list.get("items"), tuple[msgspec.Raw, ...] | None, "Nodes.items")
        if items is None:
            raise MalformedRequestError("NodeNames and Nodes are both missing: nothing to choose from")
        whole = {_node_name(item): item for item in items}
        names = tuple(whole)
    return ExtenderArgs(
        namespace=pod.metadata.namespace or "default",
        name=pod.metadata.name,
        spec=pod.spec,
        node_names=tuple(dict.fromkeys(names)),
        whole_nodes=whole,
    )


def encode(result: ExtenderFilterResult | HostPriorityList | dict[str, Any]) -> bytes:
    """Return `result` as JSON with Go's field names."""
    return msgspec.json.encode(result)


def _fields(body: bytes | msgspec.Raw, what: str = "the body") -> dict[str, msgspec.Raw]:
    """Return the members of a JSON object under lower-case names; a null member counts as absent."""
    members = _decode(body, dict[str, msgspec.Raw] | None, what) or {}
    return {name.lower(): value for name, value in members.items() if bytes(value) != b"null"}


def _decode(value: bytes | msgspec.Raw | None, form: Any, what: str) -> Any:
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequestError(f"{what}: {error}") from error


def _node_name(node: msgspec.Raw) -> str:
    name: str = _decode(node, Node, "Nodes.items").metadata.name
    if not name:
        raise MalformedRequestError("Nodes.items: a node has no metadata.name")
    return name
