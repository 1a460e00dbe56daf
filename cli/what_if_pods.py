"""The pods that what-if places, from a file: Pods, and what makes pods."""

from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import yaml

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.schema_errors import explain
from mcp2026.api.yaml_errors import NOT_YAML
from mcp2026.cli.errors import CommandError
from mcp2026.scheduler_extender.cluster_events import ObservedPod, observed_pod
from mcp2026.scheduler_extender.errors import InvalidQuantityError
from mcp2026.scheduler_extender.kube_objects import Pod
from mcp2026.scheduler_extender.request import demands_of

LONGEST_NAME = 253
"""Characters of a name in Kubernetes."""

_Shape = TypeVar("_Shape")
_Count = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
_OWNERS = ("Deployment", "StatefulSet", "ReplicaSet", "Job")
_ALLOWED = ", ".join(("Pod", *_OWNERS))


class _Marks(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What of a pod's metadata has a say in where it goes."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Metadata(_Marks, kw_only=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
    namespace: str = "default"


class _Template(msgspec.Struct, kw_only=True):
    spec: dict[str, Any]
    metadata: _Marks | None = None


class _PodDocument(msgspec.Struct):
    metadata: _Metadata
    spec: dict[str, Any]


class _OwnerSpec(msgspec.Struct, kw_only=True):
    template: _Template
    replicas: _Count | None = None
    parallelism: _Count | None = None


class _OwnerDocument(msgspec.Struct):
    metadata: _Metadata
    spec: _OwnerSpec


def pods_from_file(path: Path) -> list[ObservedPod]:
    """Return the pods in a YAML file of one or more documents; a Deployment or Job gives its template's pods.

    Raises:
        CommandError: the file cannot be read, has no pods, or one that Kubernetes would not take.

    """
    try:
        documents = list(yaml.safe_load_all(path.read_bytes()))
    except OSError as error:
        raise CommandError(f"-f {path}: {error.strerror}") from error
    except NOT_YAML as error:
        raise CommandError(f"-f {path}: not YAML: {error}") from error
    try:
        pods = [pod for document in documents if document is not None for pod in _pods_of(document)]
    except (InvalidResourceError, InvalidQuantityError) as error:
        raise CommandError(f"-f {path}: {error}") from error
    if not pods:
        raise CommandError(f"-f {path}: no pods; allowed: {_ALLOWED}")
    return pods


def _pods_of(document: Any) -> list[ObservedPod]:
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == "Pod":
        pod = _converted(document, _PodDocument, kind)
        return [_pod(pod.metadata.name, pod.metadata.namespace, pod.metadata, pod.spec)]
    if kind in _OWNERS:
        owner = _converted(document, _OwnerDocument, kind)
        metadata, template = owner.metadata, owner.spec.template
        count = owner.spec.parallelism if kind == "Job" else owner.spec.replicas
        return [
            _pod(
                f"{metadata.name}-{number}", metadata.namespace, template.metadata or _Marks(), template.spec
            )
            for number in range(1 if count is None else count)
        ]
    raise InvalidResourceError("kind", "is missing" if kind is None else repr(kind), _ALLOWED)


def _pod(name: str, namespace: str, marks: _Marks, spec: dict[str, Any]) -> ObservedPod:
    """Return the pod as the extender would see it before it is bound.

    Raises:
        InvalidResourceError, InvalidQuantityError: the API server would refuse it.

    """
    document = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"what-if-{namespace}-{name}",
            "labels": marks.labels,
            "annotations": marks.annotations,
        },
        "spec": {key: value for key, value in spec.items() if key != "nodeName"},
    }
    pod = _converted(document, Pod, f"pod {namespace}/{name}")
    if pod.spec is not None:
        demands_of(pod.spec)
    return observed_pod(pod)


def _converted(document: Any, shape: type[_Shape], root: str) -> _Shape:
    try:
        return msgspec.convert(document, shape)
    except msgspec.ValidationError as error:
        raise explain(error, document, shape, root) from error
