"""A promised latency that was changed reaches the pods that wait for a node, without a new pod template."""

from mcp2026.api.inference_model import InferenceModel
from mcp2026.api.names import SLO_LATENCY_ANNOTATION
from mcp2026.operator.actions import AnnotatePod
from mcp2026.operator.children.pod import promised_latency
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import at, is_scheduled, staying


def promises_renewed(model: InferenceModel, pods: tuple[Manifest, ...]) -> list[AnnotatePod]:
    """Return what gives those of `pods` that are not bound yet the promise of today.

    On one that is bound stays the promise by which its node was chosen. A run of mode Batch has none.
    """
    promised = promised_latency(model)
    return [
        AnnotatePod(pod, SLO_LATENCY_ANNOTATION, promised)
        for pod in staying(pods)
        if not is_scheduled(pod)
        and at(pod, "spec", "nodeName") is None
        and at(pod, "metadata", "annotations", SLO_LATENCY_ANNOTATION) != promised
    ]
