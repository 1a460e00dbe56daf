"""The client's messages are generated from the server's source, and both fit in one process."""

from pathlib import Path

import pytest

from mcp2026.client.open_inference import open_inference_pb2 as ours
from mcp2026.client.open_inference.generate import HERE, generate
from mcp2026.runtime.protocol.open_inference import open_inference_pb2 as theirs


def test_the_generated_code_is_up_to_date(tmp_path: Path) -> None:
    for made in generate(tmp_path):
        assert made.read_text() == (HERE / made.name).read_text(), "run make generate"


@pytest.mark.parametrize("name", sorted(theirs.DESCRIPTOR.message_types_by_name))
def test_client_and_server_have_each_message_side_by_side(name: str) -> None:
    client, server = getattr(ours, name), getattr(theirs, name)
    assert client.DESCRIPTOR.full_name == f"mcp2026.client.open_inference.{name}"
    assert [(field.name, field.number, field.type) for field in client.DESCRIPTOR.fields] == [
        (field.name, field.number, field.type) for field in server.DESCRIPTOR.fields
    ]
