"""The `InferenceModel` resource as typed, immutable data. The CRD in `crds/` is its schema on the server.

A test holds the two together: same fields, same defaults, same ranges.
"""

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal

import msgspec

from mcp2026.api.batch_run import Batch, BatchStatus, check_batch
from mcp2026.api.canary import Canary, CanaryStatus, check_canary, effective_weights, status_of
from mcp2026.api.conditions import Condition
from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.gpu_devices import kind_of_resource, mig_resource
from mcp2026.api.gpu_sharing import MigProfileName
from mcp2026.api.kubernetes_names import SecretName
from mcp2026.api.lifecycle import Phase
from mcp2026.api.names import GPU_MEMORY_RESOURCE, GPU_RESOURCE, GPU_SHARED_RESOURCE
from mcp2026.api.quality_of_service import QualityOfService, check_quality_of_service
from mcp2026.api.schema_errors import explain
from mcp2026.api.serving import Batching
from mcp2026.api.sources import MODEL_PATTERN, MODEL_TEXT, is_remote
from mcp2026.api.stopping import EndedServer, LogArchive, check_log_archive

NAME_PATTERN: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
NAME_MAX_LENGTH: Final = 50
"""Children and pods add up to 13 characters, and a Service's name and a label's value hold 63."""
VERSION_ID_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
SHA256_PATTERN: Final = r"^[0-9a-f]{64}$"
QUANTITY_PATTERN: Final = r"^[0-9]+(\.[0-9]{1,3})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"

BATCH_ALONE: Final = (
    "with mode Batch: one version, 1 replica, 1 worker; of batching maxBatchSize alone; no qos, slo, canary, "
    "allowIncompatible, stopped, logArchive or credentialsSecret; a version on a claim"
)
"""What the API server says as well."""

VersionId = Annotated[
    str,
    msgspec.Meta(
        pattern=VERSION_ID_PATTERN,
        max_length=63,
        description="at most 63 lower-case letters, digits and dashes, a letter or digit at both ends",
    ),
]
ModelUri = Annotated[
    str,
    msgspec.Meta(
        pattern=MODEL_PATTERN,
        max_length=1024,
        description=MODEL_TEXT,
    ),
]
Sha256 = Annotated[
    str, msgspec.Meta(pattern=SHA256_PATTERN, description="the digest as 64 lower-case hex digits")
]
ModelName = Annotated[
    str,
    msgspec.Meta(
        pattern=NAME_PATTERN,
        max_length=NAME_MAX_LENGTH,
        description="at most 50 lower-case letters, digits and dashes, a letter first and no dash last",
    ),
]
Quantity = Annotated[
    str,
    msgspec.Meta(pattern=QUANTITY_PATTERN, max_length=32, description="a quantity such as 500m, 2 or 4Gi"),
]
PriorityClassName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]


class ModelVersion(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One version: where its file lies and which share of the traffic it gets."""

    version_id: VersionId
    uri: ModelUri
    """``pvc://<claim>/<path>``: a file on a PersistentVolumeClaim of the model's namespace. Else the pods
    fetch it, which needs `sha256`."""
    weight: Annotated[int, msgspec.Meta(ge=0, le=100)] = 100
    """Percent."""
    format: Literal["ONNX", "IR"] = "ONNX"
    """What the user says of the file; the runtime tells by its content."""
    sha256: Sha256 | None = None
    labels: Annotated[tuple[VersionId, ...], msgspec.Meta(max_length=8)] = ()
    """More names of the version; ids and labels are names of one kind, and each stands for one version."""


class Gpu(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """GPUs of each replica, whole or in parts. `count` 0 serves on the CPU."""

    count: Annotated[int, msgspec.Meta(ge=0, le=16)] = 0
    sharing: Literal["Exclusive", "Shared", "MIG"] = "Exclusive"
    memory_gi_b: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = msgspec.field(
        name="memoryGiB", default=None
    )
    mig_profile: MigProfileName | None = None

    @property
    def request(self) -> tuple[str, int] | None:
        """The extended resource of a replica's container, and how much of it; None for none."""
        if not self.count:
            return None
        if self.mig_profile is not None:
            return mig_resource(self.mig_profile), self.count
        if self.memory_gi_b is not None:
            return GPU_MEMORY_RESOURCE, self.memory_gi_b
        return (GPU_SHARED_RESOURCE if self.sharing == "Shared" else GPU_RESOURCE), self.count


class ServiceLevel(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What was promised to those who ask the model."""

    latency_p95_ms: Annotated[float, msgspec.Meta(ge=0.001, le=600_000)]
    """Of the whole request in the server, in ms."""


class Resources(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """CPU and memory of each replica, as Kubernetes quantities."""

    requests: Annotated[
        dict[str, Quantity | Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=16)
    ] = {}
    limits: Annotated[
        dict[str, Quantity | Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=16)
    ] = {}


class InferenceModelSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What the user asks for."""

    versions: Annotated[tuple[ModelVersion, ...], msgspec.Meta(min_length=1, max_length=16)]
    mode: Literal["Serve", "Batch"] = "Serve"
    """Serve answers requests until it is stopped or deleted; Batch runs one data set and ends."""
    batch: Batch | None = None
    """The data set, with mode Batch and only then."""
    stopped: bool = False
    """The servers drain, archive their logs and end. Cannot be taken back."""
    log_archive: LogArchive | None = None
    """None: nothing is archived, and a model that is stopped stays Succeeded."""
    replicas: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1
    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Server processes in each pod, each with the model in memory."""
    canary: Canary | None = None
    """A plan by which one version takes over, in place of the weights above."""
    allow_incompatible: bool = False
    """Serve versions though their inputs or outputs differ from those of the version that is served."""
    batching: Batching = Batching()
    qos: QualityOfService = QualityOfService()
    slo: ServiceLevel | None = None
    """With mode Serve: the scheduler ranks nodes by it. A change restarts nothing."""
    credentials_secret: SecretName | None = None
    """With mode Serve: its keys become environment of the servers, for versions that are fetched."""
    gpu: Gpu = Gpu()
    resources: Resources = Resources()
    priority_class_name: PriorityClassName | None = None
    depends_on: Annotated[tuple[ModelName, ...], msgspec.Meta(max_length=16)] = ()
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
    canary: CanaryStatus | None = None
    """Where the canary of the spec stands."""
    batch: BatchStatus | None = None
    """How far the run of mode Batch is."""
    ended_servers: tuple[EndedServer, ...] = ()
    """Of a model that is stopped, in the order in which they were heard of."""


class InferenceModel(msgspec.Struct, frozen=True, rename="camel"):
    """One InferenceModel as read from the API server or from a file."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: InferenceModelSpec
    status: InferenceModelStatus = InferenceModelStatus()
    deleting: bool = False

    @property
    def canary(self) -> CanaryStatus | None:
        """Where the canary of the spec stands: a new plan at its beginning, without one None."""
        return status_of(self.spec.canary, self.status.canary)

    @property
    def weights(self) -> dict[str, int]:
        """The percent that each version gets now, by id."""
        asked = {version.version_id: version.weight for version in self.spec.versions}
        return effective_weights(asked, self.canary)

    @property
    def served_versions(self) -> tuple[ModelVersion, ...]:
        """The versions that pods load: all but a canary that they could not serve."""
        gone = self.canary.plan.version if self.canary is not None and self.canary.withdrawn else None
        return tuple(version for version in self.spec.versions if version.version_id != gone)

    @property
    def versions_column(self) -> str:
        """The versions and their shares for `kubectl get`: ``v1=90,v2=10``."""
        return ",".join(f"{version_id}={weight}" for version_id, weight in self.weights.items())


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """What is read of the metadata; the rest is anybody's."""

    name: str = ""
    namespace: str = "default"
    uid: str = ""
    generation: int = 1
    deletion_timestamp: str | None = None


def claim_and_path(uri: str) -> tuple[str, PurePosixPath]:
    """Split ``pvc://<claim>/<path>`` into the claim's name and the path below its root."""
    claim, _, path = uri.removeprefix("pvc://").partition("/")
    return claim, PurePosixPath(path)


def parse_inference_model(resource: dict[str, Any]) -> InferenceModel:
    """Return the typed form of a resource in Kubernetes' JSON shape.

    Raises:
        InvalidResourceError: a field is missing, unknown or refused by the schema, or two fields contradict.

    """
    document = resource.get("metadata") or {}
    try:
        metadata = msgspec.convert(document, _Metadata)
    except msgspec.ValidationError as error:
        raise explain(error, document, _Metadata, "metadata") from error
    document = resource.get("spec") or {}
    try:
        spec = msgspec.convert(document, InferenceModelSpec)
    except msgspec.ValidationError as error:
        raise explain(error, document, InferenceModelSpec, "spec") from error
    check_inference_model(metadata.name, spec)
    return InferenceModel(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        spec=spec,
        status=parse_status(resource),
        deleting=metadata.deletion_timestamp is not None,
    )


def parse_status(resource: dict[str, Any]) -> InferenceModelStatus:
    """Return the typed status of a resource, whether its spec is good or not.

    Raises:
        InvalidResourceError: the schema refuses a field of the status.

    """
    document = resource.get("status") or {}
    try:
        return msgspec.convert(document, InferenceModelStatus)
    except msgspec.ValidationError as error:
        raise explain(error, document, InferenceModelStatus, "status") from error


def check_inference_model(name: str, spec: InferenceModelSpec) -> None:
    """Check the rules that span several fields: the CRD has the same ones in CEL.

    Raises:
        InvalidResourceError: the first rule that does not hold.

    """
    if not re.match(NAME_PATTERN, name) or len(name) > NAME_MAX_LENGTH:
        raise InvalidResourceError(
            "metadata.name",
            f"{name!r} is not allowed",
            "at most 50 lower-case letters, digits and dashes, a letter first and no dash last",
        )
    ids = [version.version_id for version in spec.versions]
    if len(set(ids)) != len(ids):
        raise InvalidResourceError("spec.versions", f"{', '.join(ids)} repeats an id", "each versionId once")
    _check_labels(spec.versions)
    if spec.canary is not None:
        check_canary(spec.canary, tuple(ids))
    total = sum(version.weight for version in spec.versions)
    if total != 100:
        raise InvalidResourceError("spec.versions", f"the weights sum to {total}", "weights that sum to 100")
    for position, version in enumerate(spec.versions):
        if is_remote(version.uri):
            if version.sha256 is None:
                raise InvalidResourceError(
                    f"spec.versions[{position}].sha256",
                    f"is not given, and {version.uri.partition('?')[0]!r} is fetched",
                    "the digest of the file, wherever it is not pvc://",
                )
        elif {".", ".."} & set(version.uri.split("/")):
            raise InvalidResourceError(
                f"spec.versions[{position}].uri",
                f"{version.uri!r} has . or .. as a segment",
                "pvc://<claim>/<path> without . or .. as a segment",
            )
    if spec.batching.min_batch_size > spec.batching.max_batch_size:
        raise InvalidResourceError(
            "spec.batching.minBatchSize",
            f"{spec.batching.min_batch_size} is above maxBatchSize {spec.batching.max_batch_size}",
            f"1 to maxBatchSize ({spec.batching.max_batch_size})",
        )
    check_quality_of_service("spec.qos", spec.qos)
    for kind, quantities in (("requests", spec.resources.requests), ("limits", spec.resources.limits)):
        for resource in quantities:
            if kind_of_resource(resource) is not None:
                raise InvalidResourceError(
                    f"spec.resources.{kind}", f"{resource} is set here", "GPUs by spec.gpu alone"
                )
    _check_gpu(spec.gpu)
    if name in spec.depends_on:
        raise InvalidResourceError("spec.dependsOn", f"{name} depends on itself", "names of other models")
    if len(set(spec.depends_on)) != len(spec.depends_on):
        raise InvalidResourceError("spec.dependsOn", "a name is repeated", "each name once")
    if spec.log_archive is not None:
        check_log_archive(spec.log_archive)
        secrets = {spec.credentials_secret, spec.log_archive.credentials_secret} - {None}
        if len(secrets) > 1:
            raise InvalidResourceError(
                "spec.logArchive.credentialsSecret",
                "is another one than spec.credentialsSecret",
                "one Secret for both: its keys become environment of the servers",
            )
    _check_mode(spec)


def _check_gpu(gpu: Gpu) -> None:
    if gpu.memory_gi_b is not None and not (gpu.sharing == "Shared" and gpu.count == 1):
        raise InvalidResourceError(
            "spec.gpu.memoryGiB", f"{gpu.memory_gi_b} is given", "with sharing Shared and count 1 alone"
        )
    if (gpu.mig_profile is not None) != (gpu.sharing == "MIG"):
        problem = "is not given" if gpu.mig_profile is None else f"{gpu.mig_profile} is given"
        raise InvalidResourceError("spec.gpu.migProfile", problem, "with sharing MIG, and with it alone")


def _check_labels(versions: tuple[ModelVersion, ...]) -> None:
    names = [name for version in versions for name in (version.version_id, *version.labels)]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidResourceError(
            "spec.versions",
            f"{', '.join(repeated)} names more than one version, or one of them twice",
            "labels that are neither a versionId nor another label",
        )


def _check_mode(spec: InferenceModelSpec) -> None:
    if (spec.mode == "Batch") != (spec.batch is not None):
        there = "is not given" if spec.batch is None else f"is given with mode {spec.mode}"
        raise InvalidResourceError("spec.batch", there, "with mode Batch, and with it alone")
    if spec.batch is None:
        return
    check_batch(spec.batch)
    batching = spec.batching
    without_effect = {
        "versions": len(spec.versions) == 1,
        "replicas": spec.replicas == 1,
        "workers": spec.workers == 1,
        "allowIncompatible": not spec.allow_incompatible,
        "batching": batching == Batching(max_batch_size=batching.max_batch_size),
        "qos": spec.qos == QualityOfService(),
        "slo": spec.slo is None,
        "stopped": not spec.stopped,
        "logArchive": spec.log_archive is None,
        "credentialsSecret": spec.credentials_secret is None,
        "versions[0].uri": not is_remote(spec.versions[0].uri),
    }
    for field, fits in without_effect.items():
        if not fits:
            raise InvalidResourceError(
                f"spec.{field}", "it means nothing to a run over a data set", BATCH_ALONE
            )
