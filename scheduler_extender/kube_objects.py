"""What we read of Kubernetes' own objects: a few fields, in the JSON shape of the API server.

Everything else in a pod or node is skipped while decoding, which is what keeps large lists cheap.
"""

import msgspec

Quantity = str | int | float


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Of ObjectMeta."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class ResourceRequirements(msgspec.Struct, frozen=True, rename="camel"):
    """Amounts by resource name."""

    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """A container, an init container, or (an init container that always restarts) a sidecar."""

    name: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Of PodSpec."""

    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    node_name: str | None = None
    priority: int | None = None


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Of PodStatus."""

    phase: str | None = None


class Pod(msgspec.Struct, frozen=True, rename="camel"):
    """A pod; `spec` is absent only in a broken request."""

    metadata: Metadata = Metadata()
    spec: PodSpec | None = None
    status: PodStatus | None = None


class SelectorRequirement(msgspec.Struct, frozen=True, rename="camel"):
    """Of LabelSelector: `operator` is In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    """Which labels are meant; an empty selector means all."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[SelectorRequirement, ...] | None = None


class BudgetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Of PodDisruptionBudget; without a selector it protects nothing."""

    selector: LabelSelector | None = None


class BudgetStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Of PodDisruptionBudget. `disrupted_pods` are being evicted and counted already."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(msgspec.Struct, frozen=True, rename="camel"):
    """How many of the pods that it selects may be away."""

    metadata: Metadata = Metadata()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class Node(msgspec.Struct, frozen=True, rename="camel"):
    """A node: the cache needs to know only that it exists."""

    metadata: Metadata = Metadata()
