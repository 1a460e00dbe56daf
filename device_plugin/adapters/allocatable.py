"""Asks the kubelet which devices it may give away or gave away: whether it has noticed a new list."""

from pathlib import Path

import grpc

from mcp2026.api.gpu_devices import kind_of_resource
from mcp2026.device_plugin.adapters.kubelet_client import CALL_TIMEOUT_S, LARGEST_ANSWER
from mcp2026.device_plugin.errors import KubeletError
from mcp2026.device_plugin.kubelet import podresources_pb2 as pod_resources
from mcp2026.device_plugin.kubelet import podresources_pb2_grpc as pod_resources_service
from mcp2026.device_plugin.resource_names import ResourceNames


async def allocatable_devices(socket: Path, names: ResourceNames) -> frozenset[str] | None:
    """Return the healthy devices that the kubelet has of our resources; None if it cannot be asked that.

    Raises:
        KubeletError: the kubelet does not tell.

    """
    options = [("grpc.max_receive_message_length", LARGEST_ANSWER)]
    async with grpc.aio.insecure_channel(f"unix://{socket}", options=options) as channel:
        try:
            stub = pod_resources_service.PodResourcesListerStub(channel)  # type: ignore[no-untyped-call]  # untyped
            request = pod_resources.AllocatableResourcesRequest()
            answer = await stub.GetAllocatableResources(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise KubeletError(f"{socket}: {error.code().name}: {error.details()}") from error
    return frozenset(
        device
        for devices in answer.devices
        if kind_of_resource(names.inside(devices.resource_name)) is not None
        for device in devices.device_ids
    )
