"""The messages of config.pbtxt are Triton's, field by field."""

from typing import Any

from google.protobuf import descriptor_pb2
from tritonclient.grpc import model_config_pb2 as theirs

from mcp2026.runtime.model.triton import model_config_pb2 as ours


def test_names_numbers_and_types_are_those_of_the_client() -> None:
    assert _described(ours, "mcp2026.triton") == _described(theirs, "inference")


def test_a_message_of_the_client_is_read_by_ours() -> None:
    sent = theirs.ModelConfig(name="m", max_batch_size=8)
    sent.dynamic_batching.preferred_batch_size.extend([4, 8])
    sent.parameters["p"].string_value = "v"
    assert str(ours.ModelConfig.FromString(sent.SerializeToString())) == str(sent)


def _described(module: Any, package: str) -> list[str]:
    """Return every field of every message and every value of every enum, sorted."""
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    assert file.package == package
    lines = [f"{enum.name}.{value.name}={value.number}" for enum in file.enum_type for value in enum.value]
    for message in file.message_type:
        lines += _lines(message, message.name, f".{package}.")
    return sorted(lines)


def _lines(message: Any, name: str, prefix: str) -> list[str]:
    lines = [f"{name}.{value.name}={value.number}" for enum in message.enum_type for value in enum.value]
    for field in message.field:
        one_of = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
        kind = field.type_name.removeprefix(prefix)
        lines.append(f"{name}.{field.name}={field.number} {field.label} {field.type} {kind} {one_of}")
    for nested in message.nested_type:
        lines += _lines(nested, f"{name}.{nested.name}", prefix)
    return lines
