"""Asks the kubelet which devices it may give away or gave away: whether it has noticed a new list."""

from pathlib import Path

from mcp2026.api.gpu_devices import kind_of_resource
from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.device_plugin.adapters.kubelet_client import CALL_TIMEOUT_S
from mcp2026.device_plugin.errors import KubeletError
from mcp2026.device_plugin.kubelet import podresources_pb2 as pod_resources
from mcp2026.device_plugin.resource_names import ResourceNames
from mcp2026.device_plugin.wire.client import call
from mcp2026.device_plugin.wire.messages import CallError


async def allocatable_devices(socket: Path, names: ResourceNames) -> frozenset[str] | None:
    """Return the healthy devices that the kubelet has of our resources; None if it cannot be asked that.

    Raises:
        KubeletError: the kubelet does not tell.

    """
    try:
        answer = await call(
            socket,
            "/v1.PodResourcesLister/GetAllocatableResources",
            pod_resources.AllocatableResourcesRequest(),
            pod_resources.AllocatableResourcesResponse,
            CALL_TIMEOUT_S,
        )
    except CallError as error:
        if error.code is GrpcCode.UNIMPLEMENTED:
            return None
        raise KubeletError(f"{socket}: {error}") from error
    return frozenset(
        device
        for devices in answer.devices
        if kind_of_resource(names.inside(devices.resource_name)) is not None
        for device in devices.device_ids
    )
