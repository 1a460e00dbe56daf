"""The bodies that the servers understand, and how their answers are read."""

import base64
import json
from collections.abc import Mapping

import numpy as np

from bench import protobuf
from bench.exchange import Decode, Floats

Headers = tuple[tuple[str, str], ...]
Message = tuple[Headers, bytes, Decode]
"""Headers and body of the request, and how to read the answer."""

METHOD = protobuf.METHOD
"""The method that gRPC clients call."""

JSON_TYPE: Headers = (("content-type", "application/json"),)
OCTET_TYPE: Headers = (("content-type", "application/octet-stream"),)
JSON_LENGTH = "inference-header-content-length"
"""Says how many bytes of a body are JSON; the tensors follow (Open Inference Protocol, binary extension)."""


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _shortest(rows: Floats) -> list[float]:
    """Return the values as the shortest decimals that bring back the same float32, as clients send them."""
    return [float(str(value)) for value in rows.ravel()]


def flat(rows: Floats) -> Message:
    """`{"input": [flat], "shape": […]}`, answered by `{"output": [flat], …}`: MCP 2026's own."""
    body = _json({"input": _shortest(rows), "shape": list(rows.shape)})
    return JSON_TYPE, body, _decode_output


def nested(rows: Floats) -> Message:
    """`{"input": [[row], …]}`, answered by `{"output": [[row], …]}`."""
    values = np.array(_shortest(rows)).reshape(rows.shape).tolist()
    return JSON_TYPE, _json({"input": values}), _decode_output


def _decode_output(_headers: Mapping[str, str], body: bytes) -> Floats:
    return np.array(json.loads(body)["output"], np.float32)


def base64_in_json(rows: Floats) -> Message:
    """`{"input": base64, "shape": […]}`, answered the same way, for servers that take no raw bodies."""
    body = _json({"input": base64.b64encode(rows.tobytes()).decode(), "shape": list(rows.shape)})

    def decode(_headers: Mapping[str, str], answer: bytes) -> Floats:
        return np.frombuffer(base64.b64decode(json.loads(answer)["output"]), np.float32)

    return JSON_TYPE, body, decode


def octets(rows: Floats) -> Message:
    """Return the tensor's bytes alone, float32 little-endian, both ways."""
    return OCTET_TYPE, rows.tobytes(), lambda _headers, body: np.frombuffer(body, np.float32)


def v2_json(rows: Floats) -> Message:
    """Open Inference Protocol with `data` in JSON."""
    tensor = {"name": "input", "shape": list(rows.shape), "datatype": "FP32", "data": _shortest(rows)}
    return JSON_TYPE, _json({"inputs": [tensor]}), _decode_v2


def _decode_v2(_headers: Mapping[str, str], body: bytes) -> Floats:
    return np.array(json.loads(body)["outputs"][0]["data"], np.float32)


def v2_binary(rows: Floats) -> Message:
    """Open Inference Protocol with the binary extension, both ways, as tritonclient asks for all outputs."""
    data = rows.tobytes()
    tensor = {
        "name": "input",
        "shape": list(rows.shape),
        "datatype": "FP32",
        "parameters": {"binary_data_size": len(data)},
    }
    head = _json({"inputs": [tensor], "parameters": {"binary_data_output": True}})
    return (*OCTET_TYPE, (JSON_LENGTH, str(len(head)))), head + data, _decode_v2_binary


def _decode_v2_binary(headers: Mapping[str, str], body: bytes) -> Floats:
    if (length := headers.get(JSON_LENGTH)) is None:
        return _decode_v2(headers, body)
    return np.frombuffer(body[int(length) :], np.float32)


def v2_grpc(model: str, rows: Floats) -> Message:
    """ModelInfer with raw contents."""
    message = protobuf.infer_request(model, "input", "output", rows)
    return (), message, lambda _headers, answer: protobuf.infer_response_output(answer)


def v2_shared_memory(rows: Floats, region: str, output_bytes: int, read_output: Decode) -> Message:
    """Open Inference Protocol with input and output in one registered region: the input, then the output."""
    size = rows.nbytes
    tensor = {
        "name": "input",
        "shape": list(rows.shape),
        "datatype": "FP32",
        "parameters": {"shared_memory_region": region, "shared_memory_byte_size": size},
    }
    wanted = {
        "name": "output",
        "parameters": {
            "shared_memory_region": region,
            "shared_memory_offset": size,
            "shared_memory_byte_size": output_bytes,
        },
    }
    return JSON_TYPE, _json({"inputs": [tensor], "outputs": [wanted]}), read_output
