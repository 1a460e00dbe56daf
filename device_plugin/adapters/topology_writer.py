"""Writes the node's `GPUTopology` to the API server by server-side apply. Blocking: call it from a thread."""

from typing import Any

import urllib3
from kubernetes import client, config

from mcp2026.api.gpu_topology import GPUTopologyStatus
from mcp2026.api.names import DEVICE_PLUGIN_FIELD_MANAGER, GPU_TOPOLOGY_PLURAL, GROUP, VERSION
from mcp2026.device_plugin.errors import PublicationError
from mcp2026.device_plugin.topology_status import status_resource, topology_resource

REQUEST_TIMEOUT_S = 10.0
APPLY = "application/apply-patch+yaml"


class TopologyWriter:
    """Writes the topology of the node `node_name`."""

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name
        self._api: client.ApiClient | None = None

    def write(self, status: GPUTopologyStatus) -> None:
        """Apply the object, owned by the node, and its status.

        Raises:
            PublicationError: it did not work; a later try may.

        """
        try:
            if self._api is None:
                self._api = _connect()
            node: Any = client.CoreV1Api(self._api).read_node(
                self._node_name, _request_timeout=REQUEST_TIMEOUT_S
            )
            custom_objects = client.CustomObjectsApi(self._api)
            for patch, body in (
                (
                    custom_objects.patch_cluster_custom_object,
                    topology_resource(self._node_name, node.metadata.uid),
                ),
                (
                    custom_objects.patch_cluster_custom_object_status,
                    status_resource(self._node_name, status),
                ),
            ):
                self._apply(patch, body)
        except client.ApiException as error:
            self._disconnect()
            raise PublicationError(_advice(error, self._node_name)) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self._disconnect()
            raise PublicationError(f"the API server cannot be reached: {error}") from error

    def _disconnect(self) -> None:
        if self._api is not None:
            self._api.close()  # type: ignore[no-untyped-call]  # untyped
            self._api = None

    def _apply(self, patch: Any, body: dict[str, Any]) -> None:
        patch(
            GROUP,
            VERSION,
            GPU_TOPOLOGY_PLURAL,
            self._node_name,
            body,
            field_manager=DEVICE_PLUGIN_FIELD_MANAGER,
            force=True,
            _content_type=APPLY,
            _request_timeout=REQUEST_TIMEOUT_S,
        )


def _connect() -> client.ApiClient:
    """Connect as the pod's service account, or outside a cluster as the kubeconfig says."""
    configuration = client.Configuration()
    try:
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # untyped
        except config.ConfigException:
            config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # untyped
    except Exception as error:  # a file of another shape makes the client stumble anyhow
        raise PublicationError(
            f"neither a service account of a pod nor a usable kubeconfig file is there ({error}): run in a "
            "pod with a service account, or with --no-publish-topology"
        ) from error
    configuration.retries = False
    return client.ApiClient(configuration)


def _advice(error: client.ApiException, node_name: str) -> str:
    what = f"{error.status} {error.reason}"
    if error.status == 404:
        return f"{what}: install the CRD of GPUTopology, and check that --node-name {node_name} is this node"
    if error.status in (401, 403):
        return f"{what}: the service account needs get on nodes, create and patch on gputopologies(/status)"
    return f"{what}: {error.body}"
