"""Reflection as real clients use it: grpcurl, and the descriptor database of grpcio-reflection."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from mcp2026.runtime.protocol.native.operations import operations
from tests.contract.runtime.server_process import PATIENCE, Server
from tools.cluster.errors import ClusterError
from tools.cluster.go_programs import build


@pytest.fixture(scope="session")
def grpcurl() -> Path:
    try:
        return build("grpcurl", lambda _line: None)
    except (ClusterError, OSError) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"grpcurl cannot be built here: {error}")


@pytest.fixture(scope="module")
def server(shared: Callable[[str], Server]) -> Server:
    return shared("mlp")


def run(grpcurl: Path, server: Server, *arguments: str, flags: tuple[str, ...] = ()) -> str:
    target = f"127.0.0.1:{server.grpc_port}"
    command: list[Any] = [grpcurl, "-plaintext", *flags, target, *arguments]
    told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_grpcurl_lists_and_describes_every_service(grpcurl: Path, server: Server) -> None:
    services = run(grpcurl, server, "list").split()
    assert {
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "inference.GRPCInferenceService",
        *(operation.service for operation in operations()),
    } == set(services)
    for service in services:
        methods = run(grpcurl, server, "list", service).split()
        assert methods
        assert f"service {service.rpartition('.')[2]}" in run(grpcurl, server, "describe", service)
        for method in methods:
            assert "rpc " in run(grpcurl, server, "describe", method)


def test_grpcurl_calls_without_a_protoset(grpcurl: Path, server: Server) -> None:
    asked = ("-d", json.dumps({"name": "mlp"}))
    told = run(grpcurl, server, "inference.GRPCInferenceService/ModelMetadata", flags=asked)
    assert json.loads(told)["inputs"][0] == {"name": "input", "datatype": "FP32", "shape": ["-1", "64"]}
    assert json.loads(run(grpcurl, server, "grpc.health.v1.Health/Check")) == {"status": "SERVING"}


def test_the_database_of_grpcio_reflection(server: Server) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert "inference.GRPCInferenceService" in database.get_services()
        pool = DescriptorPool(database)
        method = pool.FindServiceByName("inference.GRPCInferenceService").methods_by_name["ServerReady"]
        call = channel.unary_unary(
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        assert call(GetMessageClass(method.input_type)(), timeout=PATIENCE).ready
