"""Every name that crosses a process boundary, once. Charts, CRDs and docs are checked against these.

Source: the table "Names on the wire" of the design, and SPEC R1.6, R4.1, R4.3.
"""

from typing import Final

GROUP: Final = "mcp2026.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

INFERENCE_MODEL_KIND: Final = "InferenceModel"
INFERENCE_MODEL_PLURAL: Final = "inferencemodels"
GPU_TOPOLOGY_KIND: Final = "GPUTopology"
GPU_TOPOLOGY_PLURAL: Final = "gputopologies"

GPU_RESOURCE: Final = "mcp2026.io/gpu"
"""Extended resource: one unit is one whole GPU, held by one container alone."""
GPU_SHARED_RESOURCE: Final = "mcp2026.io/gpu-shared"
"""Extended resource: one unit is one share of a GPU in mode TimeSlice or MPS that is sold by replicas."""
GPU_MEMORY_RESOURCE: Final = "mcp2026.io/gpu-memory"
"""Extended resource: one unit is 1 GiB of a GPU in mode TimeSlice or MPS that is sold by memory."""
MIG_RESOURCE_PREFIX: Final = "mcp2026.io/mig-"
"""Extended resources: a profile follows, `mig-1g.10gb`; one unit is one MIG device. See `mig_resource`."""
GPU_ASSIGNMENT_ANNOTATION: Final = "mcp2026.io/gpu-assignment"
"""On a pod: the exact devices that were reserved for it when it was bound (`api/gpu_assignment.py`)."""
SLO_LATENCY_ANNOTATION: Final = "mcp2026.io/slo-latency-p95-ms"
"""On a pod: the latency that 95 of 100 of its requests are to stay below, in ms, such as `25` or `2.5`."""
GANG_ANNOTATION: Final = "mcp2026.io/gang"
"""On a pod: the name of the gang that it belongs to, in its namespace; its members are placed all or none."""
GANG_SIZE_ANNOTATION: Final = "mcp2026.io/gang-size"
"""On the same: how many members the gang has."""
DEVICE_UNHEALTHY_TAINT: Final = "node.kubernetes.io/device-unhealthy"
"""On a node: one of its GPUs has failed."""

DEVICE_TYPE_ANNOTATION: Final = "resource.kubernetes.io/device-type"
DEVICE_TYPE_NVIDIA: Final = "nvidia.com/gpu"
"""An annotation and not a label: a label's value may hold no slash."""

MODEL_LABEL: Final = "mcp2026.io/inference-model"
"""On every child and pod: the name of the InferenceModel that it belongs to."""
LIVE_REVISION_ANNOTATION: Final = "mcp2026.io/live-revision"
"""On the Lease of a pod's name: the traffic revision that every worker in it serves."""
FAILED_REVISION_ANNOTATION: Final = "mcp2026.io/failed-revision"
"""On the same: a newer revision that could not be served."""
REVISION_PROBLEM_ANNOTATION: Final = "mcp2026.io/revision-problem"
"""On the same: why not."""
BATCH_PROGRESS_ANNOTATION: Final = "mcp2026.io/batch-progress"
"""On the Lease of a batch pod's name: how far its run is, as JSON with `rowsDone` and `rowsTotal`."""
MANIFEST_DIGEST_ANNOTATION: Final = "mcp2026.io/manifest-digest"
"""On each child: the digest of the manifest that the operator applied; on pods: that of their template."""

MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "mcp2026-operator"
"""Also the field manager of the operator's server-side applies."""
RUNTIME_ACCOUNT_SUFFIX: Final = "-mcp2026-runtime"
"""Pods run as the service account of their model's name and this suffix: the admission policy goes by it."""
DEVICE_PLUGIN_FIELD_MANAGER: Final = "mcp2026-device-plugin"

SCHEDULER_NAME: Final = "mcp2026-scheduler"
PRIORITY_CLASS_HIGH: Final = "mcp-gpu-high"
PRIORITY_CLASS_HIGH_VALUE: Final = 1_000_000

PRIORITY_HEADER: Final = "x-mcp-priority"
"""Of a request, as a header or as gRPC metadata: 1 is served first."""
TENANT_HEADER: Final = "x-mcp-tenant-id"
"""Of a request, as a header or as gRPC metadata: who is charged for the execution."""

BATCH_CAPABLE_HEADER: Final = "x-mcp-batch-capable"
"""Of a request, as a header or as gRPC metadata: `1; max-delay-ms=20; min-size=4`, parameters optional."""
BATCHING_HEADER: Final = "mcp-batching"
"""Of a response, in the 103 and again in the final one: the negotiated result."""
TRACE_HEADER: Final = "traceparent"
"""W3C Trace Context, as a header or as gRPC metadata, of requests and responses."""
STICKY_KEY_HEADER: Final = "x-mcp-sticky-key"
"""Of a request, as a header or as gRPC metadata: requests with equal keys get the same version of a model."""
QOS_CLASS_HEADER: Final = "x-mcp-qos-class"
SLA_TOKEN_HEADER: Final = "x-mcp-sla-token"

REST_PORT: Final = 8080
GRPC_PORT: Final = 8081
METRICS_PORT: Final = 8082
HEALTH_PROBE_PORT: Final = 9090
LIVENESS_PORT: Final = 8080
"""Of the operator, which serves nothing else."""
EXTENDER_PORT: Final = 8888
"""Loopback only: the extender shares its pod with the scheduler that calls it."""

SERVING_CONFIG_KEY: Final = "serving.json"
"""The key in the ConfigMap, and so the file name, of a pod's serving configuration."""
SERVING_CONFIG_DIRECTORY: Final = "/etc/mcp2026"
MODELS_DIRECTORY: Final = "/mnt/models"
"""A claim `c` is mounted read-only at /mnt/models/c in the pod."""
MODEL_CACHE_DIRECTORY: Final = "/var/cache/mcp2026"
"""In the pod: versions that are fetched, an emptyDir."""
MODEL_CACHE_VOLUME: Final = "model-cache"
SOURCE_AUTHORIZATION_VARIABLE: Final = "MCP2026_SOURCE_AUTHORIZATION"
"""The `Authorization` header that one https source wants, `Bearer …` or `Basic …`."""
SOURCE_HOST_VARIABLE: Final = "MCP2026_SOURCE_HOST"
"""The host that is told it, and no other."""

GPU_UUIDS_VARIABLE: Final = "MCP2026_GPU_UUIDS"
"""In the container: the comma-separated UUIDs of the GPUs that it was given, in container device order."""
POD_UID_VARIABLE: Final = "MCP2026_POD_UID"
"""In the container: the UID of its pod, to which SLA tokens are bound."""
POD_NAME_VARIABLE: Final = "MCP2026_POD_NAME"
POD_NAMESPACE_VARIABLE: Final = "MCP2026_POD_NAMESPACE"
"""In the container: name and namespace of its pod, whose Lease says which revision is live."""
QOS_CLASS_VARIABLE: Final = "MCP2026_QOS_CLASS"
"""In the container: the QoS class that follows from its requests and limits."""
