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


class HostPriority(msgspec.Struct, frozen=True, rename="pascal", gc=False):
    """The score of one node, 0 to `MAX_PRIORITY`."""

    host: str
    score: int


HostPriorityList = tuple[HostPriority, ...]


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """A pod to be placed and the nodes to choose from, in the order sent, each once."""

    pod: Pod
    spec: PodSpec
    node_names: tuple[str, ...]
    whole_nodes: dict[str, msgspec.Raw] | None
    """The nodes themselves, where the scheduler sent them (`nodeCacheCapable: false`)."""

    @property
    def key(self) -> str:
        """``namespace/name`` of the pod."""
        return f"{self.pod.metadata.namespace or 'default'}/{self.pod.metadata.name}"


class MetaPod(msgspec.Struct, frozen=True):
    """A victim by its UID alone, as the answer always names it."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(msgspec.Struct, frozen=True, rename="pascal"):
    """Who must go from one node, and how many disruption budgets that breaks."""

    pods: tuple[MetaPod, ...] = ()
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class ExtenderPreemptionResult(msgspec.Struct, frozen=True):
    """The victims of each node that preemption helps on; a node that is not here is none."""

    node_name_to_meta_victims: dict[str, MetaVictims] = msgspec.field(name="NodeNameToMetaVictims")


class ExtenderBindingResult(msgspec.Struct, frozen=True, rename="pascal"):
    """Empty: bound."""

    error: str = ""


@dataclass(frozen=True, slots=True)
class ProposedVictims:
    """What kube-scheduler would evict from a node, by UID; empty where it leaves that to us."""

    uids: tuple[str, ...]
    budgets_broken: int


@dataclass(frozen=True, slots=True)
class PreemptionArgs:
    """A pod that fits nowhere, and the nodes where evicting pods of lower priority may help."""

    pod: Pod
    spec: PodSpec
    proposed: dict[str, ProposedVictims]


@dataclass(frozen=True, slots=True)
class BindingArgs:
    """Which pod is to be bound to which node."""

    namespace: str
    name: str
    uid: str
    node: str


def decode_preemption(body: bytes) -> PreemptionArgs:
    """Return what the body of preempt asks; victims may be whole pods, UIDs, or none.

    Raises:
        MalformedRequestError: not JSON, no pod, a pod without a spec, or no nodes.

    """
    fields = _fields(body)
    pod, spec = _pod_with_spec(fields)
    nodes = fields.get("nodenametometavictims") or fields.get("nodenametovictims")
    if nodes is None:
        raise MalformedRequestError(
            "NodeNameToMetaVictims and NodeNameToVictims are both missing: nothing to choose from"
        )
    by_node: dict[str, msgspec.Raw] = _decode(nodes, dict[str, msgspec.Raw], "NodeNameTo…Victims")
    return PreemptionArgs(pod, spec, {node: _victims(value, node) for node, value in by_node.items()})


def _victims(value: msgspec.Raw, node: str) -> ProposedVictims:
    fields = _fields(value, f"victims of {node}")
    pods = _decode(fields.get("pods"), tuple[msgspec.Raw, ...] | None, f"Pods of {node}") or ()
    budgets = _decode(fields.get("numpdbviolations"), int | None, f"NumPDBViolations of {node}") or 0
    return ProposedVictims(tuple(_victim_uid(pod, node) for pod in pods), budgets)


def _victim_uid(value: msgspec.Raw, node: str) -> str:
    """Return the UID of a whole pod (in its metadata) or of a meta pod."""
    fields = _fields(value, f"a victim on {node}")
    if "uid" in fields:
        uid: str = _decode(fields["uid"], str, f"UID of a victim on {node}")
    else:
        uid = _decode(value, Pod, f"a victim on {node}").metadata.uid
    if not uid:
        raise MalformedRequestError(f"a victim on {node} has no UID")
    return uid


def decode_binding(body: bytes) -> BindingArgs:
    """Return what the body of bind asks.

    Raises:
        MalformedRequestError: not JSON, or a member is missing.

    """
    fields = _fields(body)
    texts: dict[str, str] = {}
    for member in ("PodName", "PodNamespace", "PodUID", "Node"):
        texts[member] = _decode(fields.get(member.lower()), str | None, member) or ""
        if not texts[member]:
            raise MalformedRequestError(f"{member} is missing: the body is no ExtenderBindingArgs")
    return BindingArgs(texts["PodNamespace"], texts["PodName"], texts["PodUID"], texts["Node"])


def _pod_with_spec(fields: dict[str, msgspec.Raw]) -> tuple[Pod, PodSpec]:
    pod = _decode(fields.get("pod"), Pod | None, "Pod")
    if pod is None:
        raise MalformedRequestError("Pod is missing: the body is no arguments of the extender protocol")
    if pod.spec is None:
        raise MalformedRequestError(f"Pod {pod.metadata.name or '?'} has no spec")
    return pod, pod.spec


def decode_args(body: bytes) -> ExtenderArgs:
    """Return what the body of filter or prioritize asks.

    Raises:
        MalformedRequestError: not JSON, no pod, a pod without a spec, or no nodes.

    """
    fields = _fields(body)
    pod, spec = _pod_with_spec(fields)
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
        pod=pod,
        spec=spec,
        node_names=tuple(dict.fromkeys(names)),
        whole_nodes=whole,
    )


Result = ExtenderFilterResult | HostPriorityList | ExtenderPreemptionResult | ExtenderBindingResult


def encode(result: Result | dict[str, Any]) -> bytes:
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
