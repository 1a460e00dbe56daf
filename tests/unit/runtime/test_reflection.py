"""Reflection: what a stream of questions is answered, and that the descriptors are those of the clients."""

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2 as theirs
from tritonclient.grpc import service_pb2

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.runtime.health import Health, Phase
from mcp2026.runtime.protocol.grpc.health import HealthService
from mcp2026.runtime.protocol.grpc.reflection import reflection_pb2 as ours
from mcp2026.runtime.protocol.grpc.reflection.descriptors import whole
from mcp2026.runtime.protocol.grpc.reflection.service import SERVICES, ReflectionService
from mcp2026.runtime.protocol.grpc.service import CallHead
from mcp2026.runtime.protocol.open_inference.grpc_service import SERVICE
from mcp2026.runtime.protocol.service_files import service_files

V1 = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
INFERENCE = SERVICE.strip("/")
Request = ours.ServerReflectionRequest


class Caller:
    """Takes what a stream answers."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.ended: tuple[GrpcCode, str] | None = None

    def send(self, message: bytes) -> None:
        self.answers.append(ours.ServerReflectionResponse.FromString(message))

    def finish(self, code: GrpcCode = GrpcCode.OK, detail: str = "") -> None:
        assert self.ended is None
        self.ended = code, detail


class World:
    def __init__(self) -> None:
        self.health = Health()
        self.service = ReflectionService(self.health, [INFERENCE], service_files)

    def begin(self) -> tuple[Caller, Any]:
        caller = Caller()
        method = self.service.streaming(V1)
        assert method is not None
        return caller, method(CallHead(V1, {}, None), caller)

    def ask(self, *requests: Any) -> list[Any]:
        caller, stream = self.begin()
        for request in requests:
            stream.message(request.SerializeToString())
        stream.half_closed()
        assert caller.ended == (GrpcCode.OK, "")
        return caller.answers


@pytest.fixture
def world() -> World:
    return World()


def files(answer: Any) -> list[FileDescriptorProto]:
    contents = answer.file_descriptor_response.file_descriptor_proto
    return [FileDescriptorProto.FromString(content) for content in contents]


def test_all_services_are_listed(world: World) -> None:
    (answer,) = world.ask(Request(host="h", list_services="*"))
    names = [service.name for service in answer.list_services_response.service]
    assert names == sorted([INFERENCE, "grpc.health.v1.Health", *SERVICES])
    assert answer.valid_host == "h"
    assert answer.original_request == Request(host="h", list_services="*")


@pytest.mark.parametrize(
    ("symbol", "file"),
    [
        ("inference.GRPCInferenceService", "inference/open_inference.proto"),
        ("inference.GRPCInferenceService.ModelInfer", "inference/open_inference.proto"),
        ("inference.ModelInferRequest.InferInputTensor", "inference/open_inference.proto"),
        ("grpc.health.v1.Health", "grpc/health/v1/health.proto"),
        ("grpc.reflection.v1.ServerReflection", "grpc/reflection/v1/reflection.proto"),
        ("grpc.reflection.v1alpha.ServerReflectionRequest", "grpc/reflection/v1alpha/reflection.proto"),
    ],
)
def test_a_symbol_is_found_in_its_file(world: World, symbol: str, file: str) -> None:
    by_symbol, by_name = world.ask(Request(file_containing_symbol=symbol), Request(file_by_filename=file))
    assert [one.name for one in files(by_symbol)] == [file]
    assert files(by_name) == files(by_symbol)


@pytest.mark.parametrize(
    "request_",
    [
        Request(file_containing_symbol="inference.Nothing"),
        Request(file_by_filename="nothing.proto"),
        Request(all_extension_numbers_of_type="inference.Nothing"),
        Request(
            file_containing_extension=ours.ExtensionRequest(
                containing_type="inference.ModelConfig", extension_number=100
            )
        ),
    ],
)
def test_what_is_not_known_is_an_answer_and_the_stream_goes_on(world: World, request_: Any) -> None:
    unknown, listed = world.ask(request_, Request(list_services=""))
    assert unknown.error_response.error_code == GrpcCode.NOT_FOUND
    assert "nothing is known of" in unknown.error_response.error_message
    assert listed.list_services_response.service


def test_a_request_that_asks_nothing(world: World) -> None:
    (answer,) = world.ask(Request())
    assert answer.error_response.error_code == GrpcCode.INVALID_ARGUMENT


def test_a_message_has_no_extensions(world: World) -> None:
    (answer,) = world.ask(Request(all_extension_numbers_of_type="inference.ModelConfig"))
    assert answer.all_extension_numbers_response.base_type_name == "inference.ModelConfig"
    assert not answer.all_extension_numbers_response.extension_number


def test_bytes_that_are_no_message_end_the_stream(world: World) -> None:
    caller, stream = world.begin()
    stream.message(b"\x0a\x05a")
    assert caller.ended is not None
    assert caller.ended[0] is GrpcCode.INVALID_ARGUMENT


def test_streams_end_when_the_server_drains_and_not_before(world: World) -> None:
    (first, _), (left, stream) = world.begin(), world.begin()
    stream.cancelled()
    world.health.advance(Phase.SERVING)
    world.health.advance(Phase.LAME_DUCK)
    assert first.ended is None
    world.health.advance(Phase.DRAINING)
    assert first.ended == (GrpcCode.UNAVAILABLE, "the server is draining")
    assert left.ended is None


def test_a_file_comes_after_what_it_imports() -> None:
    names = [file.name for file in whole(service_pb2.DESCRIPTOR)]
    assert names == ["model_config.proto", "grpc_service.proto"]


def test_an_import_is_sent_with_its_file_once(world: World) -> None:
    service = ReflectionService(world.health, [INFERENCE], lambda: whole(service_pb2.DESCRIPTOR))
    caller = Caller()
    stream = service._begin(CallHead(V1, {}, None), caller)
    for name in ("inference.ModelInferRequest", "inference.ModelInferResponse"):
        stream.message(Request(file_containing_symbol=name).SerializeToString())
    first, second = (sorted(file.name for file in files(answer)) for answer in caller.answers)
    assert first == ["grpc_service.proto", "model_config.proto"]
    assert second == ["grpc_service.proto"]


def test_what_is_shown_is_the_service_of_the_clients(world: World) -> None:
    pool = DescriptorPool()
    (answer,) = world.ask(Request(file_containing_symbol=INFERENCE))
    for file in files(answer):
        pool.Add(file)
    shown = pool.FindServiceByName(INFERENCE)
    expected = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert _methods(shown) == _methods(expected)


def test_the_health_service_is_what_is_served(world: World) -> None:
    service = HealthService(world.health)
    shown = world.service.descriptors.by_name("grpc/health/v1/health.proto").services_by_name["Health"]
    for method in shown.methods:
        path = f"/{shown.full_name}/{method.name}"
        found = service.streaming(path) if method.server_streaming else service.unary(path)
        assert found is not None


def test_the_messages_are_those_of_the_clients() -> None:
    for name, message in theirs.DESCRIPTOR.message_types_by_name.items():
        fields = {field.name: (field.number, field.type, field.is_repeated) for field in message.fields}
        own = ours.DESCRIPTOR.message_types_by_name[name].fields
        assert {field.name: (field.number, field.type, field.is_repeated) for field in own} == fields


def _methods(service: Any) -> dict[str, tuple[str, str, bool, bool]]:
    return {
        method.name: (
            method.input_type.full_name,
            method.output_type.full_name,
            method.client_streaming,
            method.server_streaming,
        )
        for method in service.methods
    }
