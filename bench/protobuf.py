"""The two messages of ModelInfer, written and read field by field.

The field numbers are those of `grpc_predict_v2.proto` of the Open Inference Protocol. Only what one
float32 tensor in raw contents needs is here, so that the client depends on no server's generated code.
"""

import struct
from collections.abc import Iterator

import numpy as np

from bench.errors import WrongAnswerError
from bench.exchange import Floats

METHOD = "/inference.GRPCInferenceService/ModelInfer"

_LENGTH_DELIMITED = 2
_SIZE_OF_FIXED = {1: 8, 5: 4}


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content


def infer_request(model: str, input_name: str, output_name: str, rows: Floats) -> bytes:
    """Return a ModelInferRequest with `rows` as raw input contents."""
    shape = b"".join(_varint(size) for size in rows.shape)
    tensor = _field(1, input_name.encode()) + _field(2, b"FP32") + _field(3, shape)
    wanted = _field(1, output_name.encode())
    return _field(1, model.encode()) + _field(5, tensor) + _field(6, wanted) + _field(7, rows.tobytes())


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each length-delimited field; others are passed over."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        number, kind = tag >> 3, tag & 7
        if kind == _LENGTH_DELIMITED:
            length, position = _read_varint(message, position)
            yield number, message[position : position + length]
            position += length
        elif kind == 0:
            _, position = _read_varint(message, position)
        else:
            position += _SIZE_OF_FIXED[kind]


def infer_response_output(message: bytes) -> Floats:
    """Return the first output of a ModelInferResponse, from raw or from typed contents; its shape is lost.

    Raises:
        WrongAnswerError: the message holds no float32 output.

    """
    try:
        for number, content in fields(message):
            if number == 6:
                return np.frombuffer(content, np.float32)
            if number == 5:
                for tensor_field, contents in fields(content):
                    if tensor_field == 5:
                        for kind, values in fields(contents):
                            if kind == 6:
                                return np.frombuffer(values, np.float32)
    except (IndexError, KeyError, struct.error, ValueError) as error:
        raise WrongAnswerError(f"the gRPC answer is no ModelInferResponse: {error}") from error
    raise WrongAnswerError("the gRPC answer holds no float32 output")
