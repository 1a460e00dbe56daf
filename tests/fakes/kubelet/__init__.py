"""A kubelet as a device plugin sees it: the real gRPC contracts on Unix sockets below a folder of the test's.

It behaves as the device manager of Kubernetes 1.34: starting wipes the sockets in `device-plugins`, Register
dials the plugin back before it answers, and the device list is watched until the stream ends.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from mcp2026.device_plugin.kubelet import deviceplugin_pb2 as contract
from mcp2026.device_plugin.kubelet import deviceplugin_pb2_grpc as service
from mcp2026.device_plugin.kubelet import podresources_pb2 as pod_resources
from mcp2026.device_plugin.kubelet import podresources_pb2_grpc as pod_resources_service


@dataclass
class Endpoint:
    """One registered plugin: its request, its options, and every device list that it sent."""

    request: contract.RegisterRequest
    options: contract.DevicePluginOptions
    plugin: service.DevicePluginStub
    channel: grpc.Channel
    lists: list[dict[str, contract.Device]] = field(default_factory=list)
    ended: bool = False


class FakeKubelet(service.RegistrationServicer, pod_resources_service.PodResourcesListerServicer):
    """The kubelet whose root is `root`. All that it saw may be read while `changed` is held, or by `wait`."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "device-plugins"
        self.pod_resources_directory = root / "pod-resources"
        self.changed = threading.Condition()
        self.endpoints: list[Endpoint] = []
        self.refusal = ""
        self.pods: list[pod_resources.PodResources] = []
        self.answered_lists = 0
        """How often it was asked who holds what."""
        self._servers: list[grpc.Server] = []

    # ---- life ----

    def start(self, with_pod_resources: bool = True) -> None:
        """Wipe the plugins' folder and listen anew."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for path in self.directory.iterdir():
            path.unlink()
        registration = grpc.server(ThreadPoolExecutor(8))
        service.add_RegistrationServicer_to_server(self, registration)  # type: ignore[no-untyped-call]  # untyped
        self._listen(registration, self.directory / "kubelet.sock")
        if with_pod_resources:
            self.pod_resources_directory.mkdir(parents=True, exist_ok=True)
            lister = grpc.server(ThreadPoolExecutor(2))
            pod_resources_service.add_PodResourcesListerServicer_to_server(self, lister)  # type: ignore[no-untyped-call]  # untyped
            self._listen(lister, self.pod_resources_directory / "kubelet.sock")

    def _listen(self, server: grpc.Server, path: Path) -> None:
        server.add_insecure_port(f"unix://{path}")
        server.start()
        self._servers.append(server)

    def stop(self) -> None:
        """Close all connections and stop listening; the sockets of plugins stay."""
        with self.changed:
            endpoints = list(self.endpoints)
        for endpoint in endpoints:
            endpoint.channel.close()
        for server in self._servers:
            server.stop(None).wait()
        self._servers.clear()

    def restart(self) -> None:
        """End and start again, as after an upgrade of the node."""
        self.stop()
        self.start()

    # ---- what the plugin calls ----

    def Register(self, request: contract.RegisterRequest, context: grpc.ServicerContext) -> contract.Empty:
        if self.refusal:
            context.abort(grpc.StatusCode.UNKNOWN, self.refusal)
        channel = grpc.insecure_channel(f"unix://{self.directory / request.endpoint}")
        try:
            grpc.channel_ready_future(channel).result(timeout=10)
        except grpc.FutureTimeoutError:
            context.abort(grpc.StatusCode.UNKNOWN, f"failed to dial device plugin: {request.endpoint}")
        plugin = service.DevicePluginStub(channel)  # type: ignore[no-untyped-call]  # untyped
        options = plugin.GetDevicePluginOptions(contract.Empty(), timeout=10)
        endpoint = Endpoint(request, options, plugin, channel)
        with self.changed:
            self.endpoints.append(endpoint)
            self.changed.notify_all()
        threading.Thread(target=self._watch, args=(endpoint,), daemon=True).start()
        return contract.Empty()

    def List(
        self, request: pod_resources.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> pod_resources.ListPodResourcesResponse:
        with self.changed:
            self.answered_lists += 1
            self.changed.notify_all()
            return pod_resources.ListPodResourcesResponse(pod_resources=self.pods)

    def GetAllocatableResources(
        self, request: pod_resources.AllocatableResourcesRequest, context: grpc.ServicerContext
    ) -> pod_resources.AllocatableResourcesResponse:
        """Name the healthy devices of the latest registration of each resource."""
        with self.changed:
            latest = {endpoint.request.resource_name: endpoint for endpoint in self.endpoints}
            return pod_resources.AllocatableResourcesResponse(
                devices=[
                    pod_resources.ContainerDevices(
                        resource_name=name,
                        device_ids=[
                            uuid for uuid, it in endpoint.lists[-1].items() if it.health == "Healthy"
                        ],
                    )
                    for name, endpoint in latest.items()
                    if endpoint.lists and not endpoint.ended
                ]
            )

    def _watch(self, endpoint: Endpoint) -> None:
        with suppress(grpc.RpcError, ValueError):
            for answer in endpoint.plugin.ListAndWatch(contract.Empty()):
                with self.changed:
                    endpoint.lists.append({device.ID: device for device in answer.devices})
                    self.changed.notify_all()
        with self.changed:
            endpoint.ended = True
            self.changed.notify_all()

    # ---- what a test does ----

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = 20.0) -> Any:
        """Return what `condition` gives as soon as that is true."""
        with self.changed:
            result = self.changed.wait_for(condition, timeout_s)
        assert result, f"not within {timeout_s} s: {what}"
        return result

    def wait_until(self, condition: Callable[[], Any], what: str, timeout_s: float = 20.0) -> None:
        """Wait for something that happens outside the kubelet, and so tells nobody."""
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
            time.sleep(0.02)

    def endpoint(self, number: int = 1) -> Endpoint:
        """Return the `number`th registration, once it has sent its first device list."""
        self.wait(lambda: len(self.endpoints) >= number, f"registration {number}")
        endpoint = self.endpoints[number - 1]
        self.wait(lambda: endpoint.lists, f"the first device list of registration {number}")
        return endpoint

    def stays(self, condition: Callable[[], bool], duration_s: float) -> bool:
        """Tell whether `condition` holds during the whole of `duration_s`."""
        end = time.monotonic() + duration_s
        with self.changed:
            while condition():
                left = end - time.monotonic()
                if left <= 0:
                    return True
                self.changed.wait(left)
        return False

    def hold(
        self, pod: str, uuids: list[str], namespace: str = "default", container: str = "runtime"
    ) -> None:
        """From now on pod-resources tells that a container of `pod` holds `uuids`."""
        devices = pod_resources.ContainerDevices(resource_name="mcp2026.io/gpu", device_ids=uuids)
        resources = pod_resources.ContainerResources(name=container, devices=[devices])
        with self.changed:
            self.pods.append(
                pod_resources.PodResources(name=pod, namespace=namespace, containers=[resources])
            )


@contextmanager
def running_kubelet(root: Path) -> Iterator[FakeKubelet]:
    """A kubelet that runs during the block."""
    kubelet = FakeKubelet(root)
    kubelet.start()
    try:
        yield kubelet
    finally:
        kubelet.stop()
