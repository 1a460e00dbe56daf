"""Calls to the kubelet: registration, and the list of who holds which device."""

from pathlib import Path

from mcp2026.api.gpu_devices import kind_of_resource
from mcp2026.api.gpu_topology import Holder
from mcp2026.device_plugin.adapters.plugin_server import plugin_options, socket_identity
from mcp2026.device_plugin.errors import KubeletError
from mcp2026.device_plugin.holdings import Held
from mcp2026.device_plugin.kubelet import deviceplugin_pb2 as contract
from mcp2026.device_plugin.kubelet import podresources_pb2 as pod_resources
from mcp2026.device_plugin.resource_names import ResourceNames
from mcp2026.device_plugin.wire.client import call
from mcp2026.device_plugin.wire.messages import CallError

CONTRACT_VERSION = "v1beta1"
CALL_TIMEOUT_S = 10.0
"""The kubelet dials back within Register, for at most 10 s."""


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
    try:
        await call(kubelet_socket, "/v1beta1.Registration/Register", request, contract.Empty, CALL_TIMEOUT_S)
    except CallError as error:
        raise RegistrationError(str(error)) from error


async def held_devices(socket: Path, names: ResourceNames) -> tuple[Held, ...]:
    """Ask the kubelet's pod-resources API on `socket` what containers hold of resources with our prefix.

    Raises:
        KubeletError: the kubelet does not tell.

    """
    if socket_identity(socket) is None:
        raise KubeletError(
            f"no pod-resources socket at {socket}: mount the host's {socket.parent} into the pod (hostPath)"
        )
    request = pod_resources.ListPodResourcesRequest()
    try:
        answer = await call(
            socket,
            "/v1.PodResourcesLister/List",
            request,
            pod_resources.ListPodResourcesResponse,
            CALL_TIMEOUT_S,
        )
    except CallError as error:
        raise KubeletError(f"{socket}: {error}") from error
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
