"""The Service under which a model is reached."""

from mcp2026.api.inference_model import InferenceModel
from mcp2026.api.names import GRPC_PORT, MODEL_LABEL, REST_PORT
from mcp2026.operator.children.ownership import child_metadata
from mcp2026.operator.manifests import Manifest, with_digest

_HTTP2_WITHOUT_TLS = "kubernetes.io/h2c"
"""Tells gateways and meshes; source: the appProtocol values of Kubernetes, KEP-3726."""


def service(model: InferenceModel) -> Manifest:
    """Return the Service ``<model>``, which listens on the REST and the gRPC port."""
    return with_digest(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": child_metadata(model, "Service"),
            "spec": {
                "selector": {MODEL_LABEL: model.name},
                "ports": [
                    {"name": "http", "port": REST_PORT, "targetPort": "http", "protocol": "TCP"},
                    {
                        "name": "grpc",
                        "port": GRPC_PORT,
                        "targetPort": "grpc",
                        "protocol": "TCP",
                        "appProtocol": _HTTP2_WITHOUT_TLS,
                    },
                ],
            },
        }
    )
