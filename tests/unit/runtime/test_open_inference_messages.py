"""Our messages are those of the clients, field by field; the generated code is that of the .proto file."""

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from tritonclient.grpc import service_pb2, service_pb2_grpc

from mcp2026.runtime.protocol.open_inference import open_inference_pb2
from mcp2026.runtime.protocol.open_inference.grpc_service import SERVICE, OpenInferenceService
from mcp2026.runtime.protocol.open_inference.wire import RAW_INPUTS, RAW_OUTPUTS
from tests.unit.runtime.loaded_versions import metrics_for

OURS = open_inference_pb2.DESCRIPTOR
THEIRS = {
    **service_pb2.DESCRIPTOR.message_types_by_name,
    **service_pb2.DESCRIPTOR.dependencies[0].message_types_by_name,
}
PARTLY = {"ModelConfig", "ModelInput", "ModelOutput", "ModelInstanceGroup"}
"""Of these only what is answered is described; all other messages are whole."""


def shape(field: FieldDescriptor) -> tuple[object, ...]:
    kind = field.message_type or field.enum_type
    group = field.containing_oneof
    return (field.name, field.type, field.is_repeated, kind and kind.name, group and group.name)


def compare(ours: Descriptor, theirs: Descriptor) -> None:
    ours_by_number = {number: shape(field) for number, field in ours.fields_by_number.items()}
    theirs_by_number = {number: shape(field) for number, field in theirs.fields_by_number.items()}
    if ours.name in PARTLY:
        assert ours_by_number.items() <= theirs_by_number.items(), ours.name
    else:
        assert ours_by_number == theirs_by_number, ours.name
    for nested in ours.nested_types:
        compare(nested, theirs.nested_types_by_name[nested.name])
    for enum in ours.enum_types:
        compare_values(enum, theirs.enum_types_by_name[enum.name])


def compare_values(ours: EnumDescriptor, theirs: EnumDescriptor) -> None:
    assert [(v.name, v.number) for v in ours.values] == [(v.name, v.number) for v in theirs.values]


@pytest.mark.parametrize("name", sorted(OURS.message_types_by_name))
def test_a_message_has_the_fields_that_clients_know(name: str) -> None:
    compare(OURS.message_types_by_name[name], THEIRS[name])


def test_every_message_of_the_service_is_there() -> None:
    assert set(service_pb2.DESCRIPTOR.message_types_by_name) <= set(OURS.message_types_by_name)


def test_the_datatypes_have_their_numbers() -> None:
    config = service_pb2.DESCRIPTOR.dependencies[0]
    compare_values(OURS.enum_types_by_name["DataType"], config.enum_types_by_name["DataType"])


def test_every_method_of_the_clients_is_served() -> None:
    methods = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods
    served = OpenInferenceService(None, metrics_for(), *[None] * 5)  # type: ignore[arg-type]
    for method in methods:
        find = served.streaming if method.client_streaming else served.unary
        assert find(f"/{method.containing_service.full_name}/{method.name}") is not None, method.name
    assert served.unary(SERVICE + "Nothing") is None
    assert service_pb2_grpc.GRPCInferenceServiceStub


def test_the_fields_that_are_read_and_written_by_hand_have_these_numbers() -> None:
    request, response = service_pb2.ModelInferRequest, service_pb2.ModelInferResponse
    assert request.RAW_INPUT_CONTENTS_FIELD_NUMBER == RAW_INPUTS
    assert response.RAW_OUTPUT_CONTENTS_FIELD_NUMBER == RAW_OUTPUTS
