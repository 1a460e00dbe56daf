"""An InferenceModel from a file, as the API server would hold it: checked, with defaults and an identity."""

import uuid
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import yaml

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.inference_model import InferenceModel, parse_inference_model
from mcp2026.api.names import API_VERSION, INFERENCE_MODEL_KIND
from mcp2026.api.yaml_errors import NOT_YAML
from mcp2026.cli.errors import CommandError
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.progress import timestamp


def read_model(path: Path) -> tuple[Manifest, InferenceModel]:
    """Return the one InferenceModel in `path`, as resource and typed.

    Raises:
        CommandError: the file cannot be read, holds something else, or its content is refused.

    """
    try:
        documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise CommandError(f"{path} is nested too deeply; allowed: one InferenceModel") from error
    except NOT_YAML as error:
        raise CommandError(f"{path} is not YAML: {error}") from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise CommandError(f"{path} holds {len(documents)} documents; allowed: one InferenceModel")
    resource = documents[0]
    kind = (resource.get("apiVersion"), resource.get("kind"))
    if kind != (API_VERSION, INFERENCE_MODEL_KIND):
        raise CommandError(
            f"{path}: {kind[1]} of {kind[0]} is not served; allowed: {INFERENCE_MODEL_KIND} of {API_VERSION}"
        )
    try:
        model = parse_inference_model(resource)
    except InvalidResourceError as error:
        raise CommandError(f"{path}: {error}") from error
    return _as_stored(resource, model), model


def _as_stored(resource: Manifest, model: InferenceModel) -> Manifest:
    metadata = {
        **resource["metadata"],
        "namespace": model.namespace,
        "uid": str(uuid.uuid4()),
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": timestamp(datetime.now(UTC)),
    }
    return {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_MODEL_KIND,
        "metadata": metadata,
        "spec": msgspec.to_builtins(model.spec),
    }
