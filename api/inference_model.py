"""The `InferenceModel` resource as typed, immutable data. The CRD in `crds/` is its schema on the server.

A test holds the two together: same fields, same defaults, same ranges.
"""

from typing import Annotated, Any, Literal

import msgspec

from mcp2026.api.conditions import Condition
from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.lifecycle import Phase
from mcp2026.api.serving import Batching


class ModelVersion(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One version: where its file lies and which share of the traffic it gets."""

    version_id: str
    uri: str
    """``pvc://<claim>/<path>``: a file on a PersistentVolumeClaim of the model's namespace."""
    weight: Annotated[int, msgspec.Meta(ge=0, le=100)] = 100
    """Percent."""
    format: Literal["ONNX"] = "ONNX"
    sha256: str | None = None


class Gpu(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """GPUs of each replica. `count` 0 serves on the CPU."""

    count: Annotated[int, msgspec.Meta(ge=0, le=16)] = 0
    sharing: Literal["Exclusive"] = "Exclusive"


class Resources(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """CPU and memory of each replica, as Kubernetes quantities."""

    requests: dict[str, str | int] = {}
    limits: dict[str, str | int] = {}


class InferenceModelSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What the user asks for."""

    versions: Annotated[tuple[ModelVersion, ...], msgspec.Meta(min_length=1, max_length=16)]
    mode: Literal["Serve"] = "Serve"
    replicas: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1
    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Server processes in each pod, each with the model in memory."""
    batching: Batching = Batching()
    gpu: Gpu = Gpu()
    resources: Resources = Resources()
    priority_class_name: str | None = None
    depends_on: Annotated[tuple[str, ...], msgspec.Meta(max_length=16)] = ()
    """Names of InferenceModels in the same namespace that must be ready or completed first."""


class Transition(msgspec.Struct, frozen=True, rename="camel"):
    """One step of the life cycle that happened, newest last in the status."""

    event: str
    from_: Phase = msgspec.field(name="from")
    to: Phase
    time: str
    """RFC 3339, UTC."""


class Traffic(msgspec.Struct, frozen=True, rename="camel"):
    """How far the newest serving revision has come: it is live on `live_on` of `of` replicas."""

    revision: int = 0
    live_on: int = 0
    of: int = 0


class InferenceModelStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the operator observed."""

    phase: Phase = Phase.PENDING
    transitions: tuple[Transition, ...] = ()
    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0
    traffic: Traffic = Traffic()
    replicas: int = 0
    ready_replicas: int = 0
    selector: str = ""
    versions: str = ""
    """For the column of `kubectl get`: ``v1=90,v2=10``."""


class InferenceModel(msgspec.Struct, frozen=True, rename="camel"):
    """One InferenceModel as read from the API server or from a file."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: InferenceModelSpec
    status: InferenceModelStatus = InferenceModelStatus()
    deleting: bool = False


def parse_inference_model(resource: dict[str, Any]) -> InferenceModel:
    """Return the typed form of a resource in Kubernetes' JSON shape.

    Raises:
        InvalidResourceError: `spec` or `status` lacks a field or has a value that the schema refuses.

    """
    metadata = resource.get("metadata") or {}
    try:
        spec = msgspec.convert(resource.get("spec") or {}, InferenceModelSpec)
        status = msgspec.convert(resource.get("status") or {}, InferenceModelStatus)
    except msgspec.ValidationError as error:
        raise InvalidResourceError(
            f"InferenceModel {metadata.get('name', '?')}", str(error), "the CRD's schema"
        ) from error
    return InferenceModel(
        namespace=metadata.get("namespace", "default"),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 1),
        spec=spec,
        status=status,
        deleting="deletionTimestamp" in metadata,
    )
