"""The Service under which a model is reached."""

from mcp2026.api.inference_model import InferenceModel
from mcp2026.api.names import MODEL_LABEL, REST_PORT
from mcp2026.operator.children.ownership import child_metadata
from mcp2026.operator.manifests import Manifest, with_digest


def service(model: InferenceModel) -> Manifest:
    """Return the Service ``<model>``, which listens on the REST port."""
    return with_digest(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": child_metadata(model, "Service"),
            "spec": {
                "selector": {MODEL_LABEL: model.name},
                "ports": [{"name": "http", "port": REST_PORT, "targetPort": "http", "protocol": "TCP"}],
            },
        }
    )
