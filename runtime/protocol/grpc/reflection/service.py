"""Server reflection, v1 and v1alpha, which differ in nothing but their name.

Contract: https://github.com/grpc/grpc/blob/master/doc/server-reflection.md and reflection.proto there.
"""

from collections.abc import Callable, Iterable
from functools import cached_property

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from mcp2026.api.grpc_codes import GrpcCode
from mcp2026.runtime.health import Health, Phase
from mcp2026.runtime.protocol.grpc.health import SERVICE as HEALTH
from mcp2026.runtime.protocol.grpc.reflection import health_pb2, reflection_pb2
from mcp2026.runtime.protocol.grpc.reflection.descriptors import Descriptors, published
from mcp2026.runtime.protocol.grpc.service import CallHead, Inbound, Outbound, StreamMethod, UnaryMethod

SERVICES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")

_LONGEST_SHOWN = 200
"""Of a name that is not known, in characters."""


class ReflectionService:
    """Answers questions about all services of the port, itself and the health service included."""

    def __init__(
        self,
        health: Health,
        services: Iterable[str],
        describe: Callable[[], Iterable[FileDescriptorProto]],
    ) -> None:
        """Know of `services`; `describe` returns their files, each after those that it imports.

        It is called once, at the first question: most servers are never asked.
        """
        self._health = health
        self._describe = describe
        self.names = tuple(sorted({*services, HEALTH, *SERVICES}))
        self._open: set[_Conversation] = set()
        health.watch(self._changed)

    @property
    def closing(self) -> bool:
        """Connections should end when their calls are done."""
        return self._health.leaving

    @cached_property
    def descriptors(self) -> Descriptors:
        """What is known."""
        return Descriptors([*self._describe(), *_own_files()])

    def unary(self, _path: str) -> UnaryMethod | None:
        """Return nothing: the only method is a stream."""
        return None

    def streaming(self, path: str) -> StreamMethod | None:
        """Return ServerReflectionInfo."""
        known = any(path == f"/{service}/ServerReflectionInfo" for service in SERVICES)
        return self._begin if known else None

    def _begin(self, _head: CallHead, outbound: Outbound) -> Inbound:
        return _Conversation(self, outbound, self._open)

    def _changed(self, phase: Phase) -> None:
        if phase is Phase.DRAINING:
            for conversation in list(self._open):
                conversation.end(GrpcCode.UNAVAILABLE, "the server is draining")


class _Conversation:
    """One stream of questions and answers."""

    def __init__(self, service: ReflectionService, outbound: Outbound, others: set["_Conversation"]) -> None:
        self._service = service
        self._outbound = outbound
        self._others = others
        self._seen: set[str] = set()
        """The files that this stream has carried."""
        others.add(self)

    def message(self, message: bytes) -> None:
        """Answer one question."""
        try:
            request = reflection_pb2.ServerReflectionRequest.FromString(message)
        except DecodeError as error:
            self.end(GrpcCode.INVALID_ARGUMENT, f"not a ServerReflectionRequest: {error}")
            return
        response = reflection_pb2.ServerReflectionResponse(valid_host=request.host, original_request=request)
        try:
            self._answer(request, response)
        except KeyError:
            asked = str(request).strip()[:_LONGEST_SHOWN]
            response.error_response.error_code = GrpcCode.NOT_FOUND
            response.error_response.error_message = f"nothing is known of {asked}"
        self._outbound.send(response.SerializeToString())

    def half_closed(self) -> None:
        """There are no more questions."""
        self.end(GrpcCode.OK, "")

    def cancelled(self) -> None:
        """Nobody asks any more."""
        self._others.discard(self)

    def end(self, code: GrpcCode, detail: str) -> None:
        """End the stream."""
        self._others.discard(self)
        self._outbound.finish(code, detail)

    def _answer(
        self,
        request: reflection_pb2.ServerReflectionRequest,
        response: reflection_pb2.ServerReflectionResponse,
    ) -> None:
        known = self._service.descriptors
        match request.WhichOneof("message_request"):
            case "list_services":
                for name in self._service.names:
                    response.list_services_response.service.add(name=name)
                return
            case "all_extension_numbers_of_type":
                name = request.all_extension_numbers_of_type
                response.all_extension_numbers_response.extension_number.extend(known.extension_numbers(name))
                response.all_extension_numbers_response.base_type_name = name
                return
            case "file_by_filename":
                file = known.by_name(request.file_by_filename)
            case "file_containing_symbol":
                file = known.declaring(request.file_containing_symbol)
            case "file_containing_extension":
                wanted = request.file_containing_extension
                file = known.extending(wanted.containing_type, wanted.extension_number)
            case _:
                response.error_response.error_code = GrpcCode.INVALID_ARGUMENT
                response.error_response.error_message = "the request asks nothing"
                return
        response.file_descriptor_response.file_descriptor_proto.extend(known.content(file, self._seen))


def _own_files() -> list[FileDescriptorProto]:
    versions = ("grpc.reflection.v1", "grpc.reflection.v1alpha")
    return [
        published(health_pb2.DESCRIPTOR, "grpc/health/v1/health.proto", "grpc.health.v1"),
        *(
            published(reflection_pb2.DESCRIPTOR, f"{version.replace('.', '/')}/reflection.proto", version)
            for version in versions
        ),
    ]
