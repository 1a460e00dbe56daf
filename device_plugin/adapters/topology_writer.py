"""Writes the node's `GPUTopology` to the API server by server-side apply."""

from http import HTTPStatus
from typing import Any

import msgspec

from mcp2026.api.conditions import Condition
from mcp2026.api.gpu_topology import GPUTopologyStatus
from mcp2026.api.names import API_VERSION, DEVICE_PLUGIN_FIELD_MANAGER, GPU_TOPOLOGY_PLURAL
from mcp2026.device_plugin.adapters.cluster import Cluster
from mcp2026.device_plugin.errors import ApiServerError, PublicationError
from mcp2026.device_plugin.topology_status import status_resource, topology_resource

TOPOLOGIES_PATH = f"/apis/{API_VERSION}/{GPU_TOPOLOGY_PLURAL}"


class _Metadata(msgspec.Struct):
    uid: str


class _Object(msgspec.Struct):
    metadata: _Metadata


class _Conditions(msgspec.Struct, frozen=True):
    conditions: tuple[Condition, ...] = ()


class _Topology(msgspec.Struct):
    status: _Conditions = _Conditions()


class TopologyWriter:
    """Writes the topology of the node `node_name`."""

    def __init__(self, cluster: Cluster, node_name: str) -> None:
        self._cluster = cluster
        self._node_name = node_name
        self._path = f"{TOPOLOGIES_PATH}/{node_name}"

    async def conditions(self) -> tuple[Condition, ...]:
        """Return the conditions that the object has, none if there is no object yet; raises as `write`."""
        try:
            answer = await self._cluster.get(self._path)
            return msgspec.json.decode(answer, type=_Topology).status.conditions
        except ApiServerError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return ()
            raise PublicationError(_advice(error, self._node_name)) from error
        except msgspec.DecodeError:  # conditions of another shape are written anew
            return ()

    async def write(self, status: GPUTopologyStatus) -> None:
        """Apply the object, owned by the node, and its status.

        Raises:
            PublicationError: it did not work; a later try may.

        """
        try:
            node = msgspec.json.decode(
                await self._cluster.get(f"/api/v1/nodes/{self._node_name}"), type=_Object
            )
            await self._apply(self._path, topology_resource(self._node_name, node.metadata.uid))
            await self._apply(f"{self._path}/status", status_resource(self._node_name, status))
        except ApiServerError as error:
            raise PublicationError(_advice(error, self._node_name)) from error
        except msgspec.DecodeError as error:
            raise PublicationError(f"the API server's answer cannot be read: {error}") from error

    async def _apply(self, path: str, body: dict[str, Any]) -> None:
        await self._cluster.apply(path, body, DEVICE_PLUGIN_FIELD_MANAGER)


def _advice(error: ApiServerError, node_name: str) -> str:
    if error.status == HTTPStatus.NOT_FOUND:
        return f"{error}: install the CRD of GPUTopology, and check that --node-name {node_name} is this node"
    if error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return (
            f"{error}: the service account needs get on nodes, get, list, watch, create and patch on "
            "gputopologies, patch on gputopologies/status, list and watch on pods and create on events"
        )
    return str(error)
