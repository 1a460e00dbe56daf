"""What reflection shows of the services of the gRPC port."""

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from mcp2026.api.contract import native_pb2
from mcp2026.runtime.protocol.grpc.reflection.descriptors import published, whole
from mcp2026.runtime.protocol.open_inference import open_inference_pb2


def service_files() -> list[FileDescriptorProto]:
    """Return the files that describe the services, each after those that it imports."""
    return [
        published(open_inference_pb2.DESCRIPTOR, "inference/open_inference.proto", "inference"),
        *whole(native_pb2.DESCRIPTOR),
    ]
