"""Reads a node's `GPUTopology` from the cluster that the kubeconfig names."""

from typing import Any

from mcp2026.api.names import GPU_TOPOLOGY_PLURAL, GROUP, VERSION
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
    from kubernetes import client, config
    from urllib3.exceptions import HTTPError

    configuration = client.Configuration()
    try:
        config.load_kube_config(context=context, client_configuration=configuration)  # type: ignore[no-untyped-call]  # untyped
    except config.ConfigException as error:
        raise CommandError(f"--node {node}: no usable kubeconfig: {error}") from error
    configuration.retries = 0
    with client.ApiClient(configuration) as connection:
        try:
            return client.CustomObjectsApi(connection).get_cluster_custom_object(
                GROUP,
                VERSION,
                GPU_TOPOLOGY_PLURAL,
                node,
                _request_timeout=TIMEOUT_SECONDS,
            )
        except client.ApiException as error:
            if error.status == 404:
                raise CommandError(
                    f"--node {node}: the cluster has no GPUTopology of this name: is it a node, and does the "
                    "device plugin run there?"
                ) from error
            raise CommandError(
                f"--node {node}: the API server answers {error.status} {error.reason}"
            ) from error
        except (HTTPError, OSError) as error:
            raise CommandError(f"--node {node}: the API server does not answer: {error}") from error
