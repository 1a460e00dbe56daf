"""Calls to the kubelet: registration, and the list of who holds which device."""

from pathlib import Path

import grpc

from mcp2026.api.gpu_devices import kind_of_resource
from mcp2026.api.gpu_topology import Holder
from mcp2026.device_plugin.adapters.plugin_server import plugin_options, socket_identity
from mcp2026.device_plugin.errors import KubeletError
from mcp2026.device_plugin.holdings import Held
from mcp2026.device_plugin.kubelet import deviceplugin_pb2 as contract
from mcp2026.device_plugin.kubelet import deviceplugin_pb2_grpc as service
from mcp2026.device_plugin.kubelet import podresources_pb2 as pod_resources
from mcp2026.device_plugin.kubelet import podresources_pb2_grpc as pod_resources_service
from mcp2026.device_plugin.registration import SocketIdentity
from mcp2026.device_plugin.resource_names import ResourceNames

CONTRACT_VERSION = "v1beta1"
CALL_TIMEOUT_S = 10.0
"""The kubelet dials back within Register, for at most 10 s."""
LARGEST_ANSWER = 16 * 1024 * 1024
"""Bytes; the pod-resources answer of a full node is above gRPC's default."""


class RegistrationError(KubeletError):
    """The kubelet did not take the registration; `str()` says why."""


async def register(kubelet_socket: Path, endpoint: str, resource_name: str) -> None:
    """Tell the kubelet that `resource_name` is served on the socket `endpoint` beside its own.

    Raises:
        RegistrationError: it did not answer, or refused.

    """
    request = contract.RegisterRequest(
        version=CONTRACT_VERSION, endpoint=endpoint, resource_name=resource_name, options=plugin_options()
    )
    async with grpc.aio.insecure_channel(f"unix://{kubelet_socket}") as channel:
        try:
            stub = service.RegistrationStub(channel)  # type: ignore[no-untyped-call]  # untyped
            await stub.Register(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise RegistrationError(f"{error.code().name}: {error.details()}") from error


class PodResources:
    """The kubelet's pod-resources API on `socket`, over one connection. For one event loop."""

    def __init__(self, socket: Path, names: ResourceNames) -> None:
        self._socket = socket
        self._names = names
        self._kubelet: SocketIdentity | None = None
        self._channel: grpc.aio.Channel | None = None

    async def held(self) -> tuple[Held, ...]:
        """Return what containers hold of resources with our prefix.

        Raises:
            KubeletError: the kubelet does not tell.

        """
        channel = await self._connected()
        try:
            stub = pod_resources_service.PodResourcesListerStub(channel)  # type: ignore[no-untyped-call]  # untyped
            answer = await stub.List(pod_resources.ListPodResourcesRequest(), timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            await self.close()
            raise KubeletError(f"{self._socket}: {error.code().name}: {error.details()}") from error
        names = self._names
        return tuple(
            Held(
                names.inside(devices.resource_name),
                Holder(pod.namespace, pod.name, container.name),
                tuple(devices.device_ids),
            )
            for pod in answer.pod_resources
            for container in pod.containers
            for devices in container.devices
            if kind_of_resource(names.inside(devices.resource_name)) is not None
        )

    async def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close()

    async def _connected(self) -> grpc.aio.Channel:
        kubelet = socket_identity(self._socket)
        if kubelet is None:
            raise KubeletError(
                f"no pod-resources socket at {self._socket}: mount the host's {self._socket.parent} into the "
                "pod (hostPath)"
            )
        if self._channel is None or kubelet != self._kubelet:
            await self.close()
            options = [("grpc.max_receive_message_length", LARGEST_ANSWER)]
            self._channel = grpc.aio.insecure_channel(f"unix://{self._socket}", options=options)
            self._kubelet = kubelet
        return self._channel


async def held_devices(socket: Path, names: ResourceNames) -> tuple[Held, ...]:
    """Ask once what containers hold; raises as `PodResources.held`."""
    once = PodResources(socket, names)
    try:
        return await once.held()
    finally:
        await once.close()
