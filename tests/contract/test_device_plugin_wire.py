"""The plugin's own gRPC speaks with that of others, whatever they send: grpcio is at the other end."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.device_plugin.kubelet import deviceplugin_pb2 as contract
from mcp2026.device_plugin.kubelet import deviceplugin_pb2_grpc as service
from mcp2026.device_plugin.kubelet import podresources_pb2 as pod_resources
from mcp2026.device_plugin.kubelet import podresources_pb2_grpc as pod_resources_service
from mcp2026.device_plugin.wire.client import LARGEST_ANSWER, call
from mcp2026.device_plugin.wire.messages import CallError
from mcp2026.device_plugin.wire.server import LARGEST_REQUEST, GrpcServer, methods_of

DEADLINE_S = 20.0
LIST = "/v1.PodResourcesLister/List"
MANY = [contract.Device(ID=f"GPU-{number:032d}::{number}", health="Healthy") for number in range(20_000)]
"""About 1 MiB, many times what may be sent before the receiver makes room."""


class Devices:
    """A device plugin by the names of the contract."""

    def __init__(self) -> None:
        self.streams = 0
        self.changed = asyncio.Condition()
        self.more = asyncio.Event()

    async def _note(self, change: int) -> None:
        async with self.changed:
            self.streams += change
            self.changed.notify_all()

    async def until_streams(self, number: int) -> None:
        async with self.changed, asyncio.timeout(DEADLINE_S):
            await self.changed.wait_for(lambda: self.streams == number)

    async def GetDevicePluginOptions(self, _request: contract.Empty) -> contract.DevicePluginOptions:
        raise CallError(GrpcCode.FAILED_PRECONDITION, "keine 5 % für dich\nund mehr")

    async def ListAndWatch(self, _request: contract.Empty) -> AsyncIterator[contract.ListAndWatchResponse]:
        await self._note(1)
        try:
            yield contract.ListAndWatchResponse(devices=MANY)
            await self.more.wait()
            yield contract.ListAndWatchResponse()
        finally:
            await asyncio.shield(self._note(-1))

    async def GetPreferredAllocation(
        self, request: contract.PreferredAllocationRequest
    ) -> contract.PreferredAllocationResponse:
        raise ValueError("a fault of ours")

    async def Allocate(self, request: contract.AllocateRequest) -> contract.AllocateResponse:
        environment = {"N": str(len(request.container_requests[0].devices_ids))}
        answer = contract.ContainerAllocateResponse(envs=environment)
        return contract.AllocateResponse(container_responses=[answer])

    async def PreStartContainer(
        self, _request: contract.PreStartContainerRequest
    ) -> contract.PreStartContainerResponse:
        await asyncio.Event().wait()
        return contract.PreStartContainerResponse()


class Pods(pod_resources_service.PodResourcesListerServicer):
    """A kubelet that lists as `answer` says."""

    def __init__(self, answer: Callable[[Any], Awaitable[pod_resources.ListPodResourcesResponse]]) -> None:
        self._answer = answer

    async def List(self, _request: Any, context: Any) -> pod_resources.ListPodResourcesResponse:
        return await self._answer(context)


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wire-", dir="/tmp") as folder:
        yield Path(folder) / "a.sock"


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[tuple[Devices, Any, GrpcServer, grpc.aio.Channel]]:
    devices = Devices()
    server = GrpcServer(methods_of(devices, contract.DESCRIPTOR.services_by_name["DevicePlugin"]))
    await server.start(path)
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(f"unix://{path}", options=options) as channel:
        yield devices, service.DevicePluginStub(channel), server, channel  # type: ignore[no-untyped-call]
        await server.stop(0.0)


@asynccontextmanager
async def kubelet(path: Path, answer: Any) -> AsyncIterator[None]:
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    pod_resources_service.add_PodResourcesListerServicer_to_server(Pods(answer), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"unix://{path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(0.0)


async def listed(path: Path, timeout_s: float = DEADLINE_S) -> pod_resources.ListPodResourcesResponse:
    request = pod_resources.ListPodResourcesRequest()
    return await call(path, LIST, request, pod_resources.ListPodResourcesResponse, timeout_s)


# ---- calls that are answered ----


async def test_a_list_that_is_larger_than_the_window_arrives_whole_and_a_change_after_it(path: Path) -> None:
    async with served(path) as (devices, plugin, _, _channel):
        stream = plugin.ListAndWatch(contract.Empty(), timeout=DEADLINE_S)
        assert list((await stream.read()).devices) == MANY
        devices.more.set()
        assert not (await stream.read()).devices
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK
        await devices.until_streams(0)


async def test_requests_that_are_larger_than_the_window_arrive_whole_beside_each_other(path: Path) -> None:
    async with served(path) as (_, plugin, _, _channel):

        async def allocated(number: int) -> str:
            container = contract.ContainerAllocateRequest(devices_ids=[each.ID for each in MANY[:number]])
            request = contract.AllocateRequest(container_requests=[container])
            answer = await plugin.Allocate(request, timeout=DEADLINE_S)
            return str(answer.container_responses[0].envs["N"])

        assert await asyncio.gather(*map(allocated, (1, 20_000, 3))) == ["1", "20000", "3"]


async def test_a_call_that_ends_with_an_error_tells_it_letter_for_letter(path: Path) -> None:
    async with served(path) as (_, plugin, _, _channel):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await plugin.GetDevicePluginOptions(contract.Empty(), timeout=DEADLINE_S)
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert caught.value.details() == "keine 5 % für dich\nund mehr"


async def test_a_fault_of_ours_ends_the_call_and_nothing_else(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(path) as (_, plugin, _, _channel):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await plugin.GetPreferredAllocation(contract.PreferredAllocationRequest(), timeout=DEADLINE_S)
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert "a fault of ours" in caplog.text
        with pytest.raises(grpc.aio.AioRpcError):
            await plugin.GetDevicePluginOptions(contract.Empty(), timeout=DEADLINE_S)


@pytest.mark.parametrize(
    ("method", "body", "code"),
    [
        pytest.param(
            "/v1beta1.DevicePlugin/Nothing", b"", grpc.StatusCode.UNIMPLEMENTED, id="an unknown method"
        ),
        pytest.param(
            "/v1beta1.DevicePlugin/Allocate", b"\xff", grpc.StatusCode.INTERNAL, id="not the message"
        ),
        pytest.param(
            "/v1beta1.DevicePlugin/Allocate",
            bytes(LARGEST_REQUEST + 1),
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            id="too large a message",
        ),
    ],
)
async def test_what_cannot_be_answered_is_refused_by_name(
    method: str, body: bytes, code: grpc.StatusCode, path: Path
) -> None:
    async with served(path) as (_, _, _, channel):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(method)(body, timeout=DEADLINE_S)
        assert caught.value.code() is code


# ---- calls that are given up ----


async def test_a_stream_that_the_caller_cancels_is_known_to_have_ended(path: Path) -> None:
    async with served(path) as (devices, plugin, _, _channel):
        stream = plugin.ListAndWatch(contract.Empty())
        await stream.read()
        await devices.until_streams(1)
        stream.cancel()
        await devices.until_streams(0)


async def test_a_stream_whose_caller_goes_is_known_to_have_ended_even_in_the_midst_of_a_list(
    path: Path,
) -> None:
    async with served(path) as (devices, plugin, _, channel):
        stream = plugin.ListAndWatch(contract.Empty())
        await devices.until_streams(1)
        await channel.close()
        await devices.until_streams(0)
        del stream


async def test_stopping_ends_streams_and_takes_no_new_calls(path: Path) -> None:
    async with served(path) as (devices, plugin, server, _channel):
        stream = plugin.ListAndWatch(contract.Empty())
        await stream.read()
        waiting = asyncio.ensure_future(plugin.PreStartContainer(contract.PreStartContainerRequest()))
        await devices.until_streams(1)
        await server.stop(0.1)
        assert devices.streams == 0
        for call_under_way in (stream.read(), waiting):
            with pytest.raises(grpc.aio.AioRpcError):
                await call_under_way
        with pytest.raises(CallError) as caught:
            await listed(path)
        assert caught.value.code is GrpcCode.UNAVAILABLE


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="HTTP/1.1"),
        pytest.param(b"\x00" * 64, id="zeros"),
        pytest.param(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x04\x08\x00\x00\x00\x00\x00" + bytes(4),
            id="a window that grows by nothing",
        ),
    ],
)
async def test_a_peer_that_breaks_the_protocol_is_left(sent: bytes, path: Path) -> None:
    async with served(path) as (_, plugin, _, _channel), asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(sent)
        await reader.read()  # until it is closed
        writer.close()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await plugin.GetDevicePluginOptions(contract.Empty(), timeout=DEADLINE_S)
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION, "others are served on"


# ---- what the plugin calls ----


async def test_an_answer_that_is_larger_than_the_window_arrives_whole(path: Path) -> None:
    pods = [pod_resources.PodResources(name=f"pod-{number}", namespace="x" * 100) for number in range(20_000)]

    async def answer(_context: Any) -> pod_resources.ListPodResourcesResponse:
        return pod_resources.ListPodResourcesResponse(pod_resources=pods)

    async with kubelet(path, answer):
        assert list((await listed(path)).pod_resources) == pods


async def test_an_answer_that_is_too_large_is_refused(path: Path) -> None:
    async def answer(_context: Any) -> pod_resources.ListPodResourcesResponse:
        pod = pod_resources.PodResources(name="x" * (LARGEST_ANSWER + 1))
        return pod_resources.ListPodResourcesResponse(pod_resources=[pod])

    async with kubelet(path, answer):
        with pytest.raises(CallError) as caught:
            await listed(path)
        assert caught.value.code is GrpcCode.RESOURCE_EXHAUSTED


async def test_an_error_of_the_kubelet_is_told_letter_for_letter(path: Path) -> None:
    async def answer(context: Any) -> pod_resources.ListPodResourcesResponse:
        await context.abort(grpc.StatusCode.NOT_FOUND, "nichts für 5 %")
        raise AssertionError

    async with kubelet(path, answer):
        with pytest.raises(CallError, match="NOT_FOUND: nichts für 5 %") as caught:
            await listed(path)
        assert caught.value.code is GrpcCode.NOT_FOUND


async def test_a_kubelet_that_does_not_answer_is_waited_for_no_longer_than_asked(path: Path) -> None:
    async def answer(_context: Any) -> pod_resources.ListPodResourcesResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with kubelet(path, answer):
        with pytest.raises(CallError) as caught:
            await listed(path, timeout_s=0.3)
        assert caught.value.code is GrpcCode.DEADLINE_EXCEEDED


async def test_a_socket_that_is_not_there_or_hangs_up_is_unavailable(path: Path) -> None:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    with pytest.raises(CallError, match=r"UNAVAILABLE: .*No such file"):
        await listed(path)
    async with await asyncio.start_unix_server(hang_up, str(path)):
        with pytest.raises(CallError) as caught:
            await listed(path)
    assert caught.value.code is GrpcCode.UNAVAILABLE
