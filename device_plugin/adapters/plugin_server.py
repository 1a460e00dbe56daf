"""The DevicePlugin service on the plugin's Unix socket: translates between the contract and the decisions."""

import asyncio
import errno
import logging
import socket
import stat
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from pathlib import Path

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.device_plugin.allocation import Grant
from mcp2026.device_plugin.allocator import Allocator
from mcp2026.device_plugin.devices import Device
from mcp2026.device_plugin.errors import DevicePluginError, SocketInUseError
from mcp2026.device_plugin.inventory import Inventory
from mcp2026.device_plugin.kubelet import deviceplugin_pb2 as contract
from mcp2026.device_plugin.offers import offers
from mcp2026.device_plugin.registration import SocketIdentity
from mcp2026.device_plugin.wire.messages import CallError
from mcp2026.device_plugin.wire.server import GrpcServer, methods_of

log = logging.getLogger(__name__)

GRACE_S = 0.5
"""For answers under way when the server stops."""

SERVICE = contract.DESCRIPTOR.services_by_name["DevicePlugin"]


def socket_identity(path: Path) -> SocketIdentity | None:
    """Return what tells this socket from a later one at the same path; None where there is no socket."""
    try:
        status = path.stat()
    except OSError:
        return None
    if not stat.S_ISSOCK(status.st_mode):
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


class DevicePluginService:
    """Answers the kubelet for one `resource`; decides nothing. `tell` is called when `streams` changes."""

    def __init__(
        self, resource: str, inventory: Inventory, allocator: Allocator, tell: Callable[[], None]
    ) -> None:
        self._resource = resource
        self._inventory = inventory
        self._allocator = allocator
        self._tell = tell
        self.streams = 0
        """How many ListAndWatch streams are open."""

    async def GetDevicePluginOptions(  # noqa: N802  (the contract's name, as those below)
        self, _request: contract.Empty
    ) -> contract.DevicePluginOptions:
        """Return what the plugin can do."""
        return plugin_options()

    async def ListAndWatch(  # noqa: N802
        self, _request: contract.Empty
    ) -> AsyncIterator[contract.ListAndWatchResponse]:
        """Send the whole device list, now and at every change."""
        self.streams += 1
        self._tell()
        try:
            snapshot = self._inventory.snapshot
            sent: tuple[Device, ...] | None = None
            while True:
                devices = offers(snapshot).get(self._resource, ())
                if devices != sent:
                    yield device_list_message(devices)
                    sent = devices
                snapshot = await self._inventory.next_after(snapshot)
        finally:
            self.streams -= 1
            self._tell()

    async def GetPreferredAllocation(  # noqa: N802
        self, request: contract.PreferredAllocationRequest
    ) -> contract.PreferredAllocationResponse:
        """Return the best set for each container. Never an error: that would fail the pod's admission."""
        return contract.PreferredAllocationResponse(
            container_responses=[
                contract.ContainerPreferredAllocationResponse(
                    deviceIDs=self._allocator.prefer(
                        self._resource,
                        list(container.available_deviceIDs),
                        list(container.must_include_deviceIDs),
                        container.allocation_size,
                    )
                )
                for container in request.container_requests
            ]
        )

    async def Allocate(  # noqa: N802
        self, request: contract.AllocateRequest
    ) -> contract.AllocateResponse:
        """Return what each container needs to use its devices.

        An error only where every answer would be wrong: parts of several GPUs that one container cannot use.
        """
        grants = []
        for container in request.container_requests:
            try:
                grants.append(self._allocator.allocate(self._resource, list(container.devices_ids)))
            except DevicePluginError as error:
                raise CallError(GrpcCode.FAILED_PRECONDITION, str(error)) from error
        return contract.AllocateResponse(container_responses=[_grant_message(each) for each in grants])

    async def PreStartContainer(  # noqa: N802
        self, _request: contract.PreStartContainerRequest
    ) -> contract.PreStartContainerResponse:
        """Do nothing: the options say that it need not be called."""
        return contract.PreStartContainerResponse()


def plugin_options() -> contract.DevicePluginOptions:
    """Return what the plugin can do: it has preferences, and needs no call before a container starts."""
    return contract.DevicePluginOptions(get_preferred_allocation_available=True, pre_start_required=False)


def device_list_message(devices: Iterable[Device]) -> contract.ListAndWatchResponse:
    """Return the message with the whole list `devices`."""
    return contract.ListAndWatchResponse(devices=[_device_message(device) for device in devices])


def _device_message(device: Device) -> contract.Device:
    topology = None
    if device.numa_node is not None:
        topology = contract.TopologyInfo(nodes=[contract.NUMANode(ID=device.numa_node)])
    return contract.Device(
        ID=device.id, health="Healthy" if device.healthy else "Unhealthy", topology=topology
    )


def _grant_message(given: Grant) -> contract.ContainerAllocateResponse:
    return contract.ContainerAllocateResponse(
        envs=given.environment,
        mounts=[
            contract.Mount(
                container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only
            )
            for mount in given.mounts
        ],
        devices=[
            contract.DeviceSpec(container_path=node, host_path=node, permissions="rw")
            for node in given.device_nodes
        ],
        cdi_devices=[contract.CDIDevice(name=name) for name in given.cdi_devices],
    )


class PluginServer:
    """Serves a `DevicePluginService` on a socket that may have to be made anew."""

    def __init__(self, path: Path, plugin: DevicePluginService) -> None:
        self._path = path
        self._plugin = plugin
        self._server: GrpcServer | None = None
        self._identity: SocketIdentity | None = None

    @property
    def socket_present(self) -> bool:
        """Whether the socket that this server listens on is still at its path."""
        return self._identity is not None and socket_identity(self._path) == self._identity

    async def start(self) -> None:
        """Serve, on a new socket; a server that ran before ends first.

        Raises:
            SocketInUseError: somebody else is at the path.

        """
        await self.stop()
        await asyncio.to_thread(_clear_path, self._path)
        server = GrpcServer(methods_of(self._plugin, SERVICE))
        try:
            await server.start(self._path)
        except OSError as error:
            raise SocketInUseError(self._path, f"not to be listened on ({error})") from error
        self._server = server
        self._identity = socket_identity(self._path)
        log.info("serving the kubelet on %s", self._path, extra={"socket": str(self._path)})

    async def stop(self) -> None:
        """End all streams, stop serving and remove the socket, if it is still ours."""
        if self._server is None:
            return
        ours = self.socket_present
        await self._server.stop(GRACE_S)
        self._server = self._identity = None
        if ours:
            with suppress(OSError):  # whoever starts next clears what was left
                self._path.unlink(missing_ok=True)


def _clear_path(path: Path) -> None:
    """Remove the socket of a process that ended; refuse where something lives at `path`."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketInUseError(path, "not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError as error:
            if error.errno not in (errno.ECONNREFUSED, errno.ENOENT):
                raise SocketInUseError(path, f"in an unclear state ({error})", served=True) from error
        else:
            raise SocketInUseError(path, "served by another process", served=True)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise SocketInUseError(path, f"left behind and cannot be removed ({error.strerror})") from error


def remove_left_sockets(directory: Path, pattern: str) -> None:
    """Remove sockets that fit `pattern` and that nobody serves: a plugin that was killed left them."""
    for path in directory.glob(pattern):
        with suppress(SocketInUseError, OSError):
            _clear_path(path)
