"""Brings the taint of failed GPUs to this node, and takes it away."""

from http import HTTPStatus

import msgspec

from mcp2026.device_plugin.adapters.cluster import Cluster
from mcp2026.device_plugin.errors import ApiServerError
from mcp2026.device_plugin.health.tainting import Taint, taints_after

TRIES = 5
"""How often a write is tried that others get in between of."""


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str


class _Spec(msgspec.Struct):
    taints: list[dict[str, str]] | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


class NodeTaints:
    """The taints of the node `node_name`."""

    def __init__(self, cluster: Cluster, node_name: str) -> None:
        self._cluster = cluster
        self._path = f"/api/v1/nodes/{node_name}"

    async def bring(self, wanted: Taint | None) -> bool:
        """Make `wanted` the only taint of its key; tell whether anything had to be changed.

        Raises:
            ApiServerError: the server cannot be reached or refuses, or others change the node all the time.

        """
        for _ in range(TRIES - 1):
            try:
                return await self._try(wanted)
            except ApiServerError as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
        return await self._try(wanted)

    async def _try(self, wanted: Taint | None) -> bool:
        try:
            node = msgspec.json.decode(await self._cluster.get(self._path), type=_Node)
        except msgspec.DecodeError as error:
            raise ApiServerError(0, f"the API server's answer cannot be read: {error}") from error
        after = taints_after(node.spec.taints, wanted)
        if after is None:
            return False
        version = {"resourceVersion": node.metadata.resource_version}
        await self._cluster.merge(self._path, {"metadata": version, "spec": {"taints": after or None}})
        return True
