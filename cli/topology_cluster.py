"""Reads a node's `GPUTopology` from the cluster that the kubeconfig names."""

from http import HTTPStatus
from typing import Any

from mcp2026.api.names import GPU_TOPOLOGY_PLURAL, GROUP, VERSION
from mcp2026.cli.api_server import ApiServerError, api_server
from mcp2026.cli.errors import CommandError
from mcp2026.topology.machine import Description, description_from_document

TIMEOUT_SECONDS = 10


def description_of_node(node: str, context: str | None = None) -> Description:
    """Return the machine that the `GPUTopology` of `node` describes.

    `context` is one of the kubeconfig; None: the current one.

    Raises:
        CommandError: there is no usable kubeconfig, the API server does not answer, or it has no such object.
        MachineFormatError: the object cannot be read.

    """
    return description_from_document(f"GPUTopology {node}", _resource(node, context))


def _resource(node: str, context: str | None) -> Any:
    from kubernetes import client

    try:
        with api_server(context) as connection:
            return client.CustomObjectsApi(connection).get_cluster_custom_object(
                GROUP,
                VERSION,
                GPU_TOPOLOGY_PLURAL,
                node,
                _request_timeout=TIMEOUT_SECONDS,
            )
    except CommandError as error:
        if isinstance(error, ApiServerError) and error.status == HTTPStatus.NOT_FOUND:
            raise CommandError(
                f"--node {node}: the cluster has no GPUTopology of this name: is it a node, and does the "
                "device plugin run there?"
            ) from error
        raise CommandError(f"--node {node}: {error}") from error
