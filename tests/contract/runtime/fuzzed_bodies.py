"""Requests that are nearly right, made from valid ones by a seed: the same seed gives the same requests.

Most of them are structured: a valid document in which one to three values are replaced by absurd ones, so
that they get past the parser. Some are changed byte by byte besides, so that they do not.
"""

import json
import random
from collections.abc import Iterator
from typing import Any

from mcp2026.runtime.protocol.open_inference import open_inference_pb2 as messages

Headers = tuple[tuple[bytes, bytes], ...]

MODELS = {
    "sums": "FP32",
    "fp32": "FP32",
    "int8": "INT8",
    "uint64": "UINT64",
    "bf16": "BF16",
    "bytes": "BYTES",
}
"""What the server must serve: `sums` of inputs a and b, the others with x: `open_inference_server`."""

_ELEMENT_BYTES = {"FP32": 4, "INT8": 1, "UINT64": 8, "BF16": 2}
_CONTENTS = {
    "FP32": "fp32_contents",
    "INT8": "int_contents",
    "UINT64": "uint64_contents",
    "BYTES": "bytes_contents",
}
_DEEP = "@deep@"
_WHOLE = (
    0,
    1,
    -1,
    2,
    3,
    7,
    2**31 - 1,
    2**31,
    2**32,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63),
    10**30,
)
_INT64 = (0, 1, -1, 2, 3, 2**31, 2**32, 2**61, 2**62, 2**63 - 1, -(2**63), -(2**31))
_TEXTS = (
    "",
    "x",
    "a",
    "\0",
    "FP32",
    "BYTES",
    "é" * 50,
    "\ud7ff\uffff",
    "A" * 3_000,
    "../../etc",
    "1",
    "-1",
    "%00",
    '"',
)
_ABSURD: tuple[Any, ...] = (
    *_WHOLE,
    *_TEXTS,
    *(None, True, False, 0.5, -0.0, 1e308, 5e-324, float("nan"), float("inf")),
    *([], {}, [[]], [{}], [None], [0] * 300, {"": ""}, {"a": {"b": []}}, _DEEP),
    *([-1, 4], [0, 4], [4], [1, 1, 4], [1, 4, 1, 1, 1, 1, 1, 1, 1], [2**62, 4], [2**32, 2**32], [2**63, 4]),
    *([[1, 2], [3, 4]], [[1, 2], [3]], [[1], 2], [1.5, "x"], [True, False, True, True], ["a", "b", "c", "d"]),
)


class Fuzzer:
    """Makes requests; all that is random comes from `seed`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    # --- bodies of each protocol

    def own_json(self) -> bytes:
        """Return a body for POST /v1/infer."""
        draw = self.random
        model = draw.choice(list(MODELS))
        if model != "sums" and draw.random() < 0.5:
            document: dict[str, Any] = {"input": self._values(model, 4), "shape": [1, 4]}
        else:
            names = ("a", "b") if model == "sums" else ("x",)
            rows = draw.randint(1, 3)
            document = {
                "inputs": {
                    name: {"data": self._values(model, 4 * rows), "shape": [rows, 4]} for name in names
                }
            }
        document["model"] = model
        for name, value in (
            ("version_id", "1"),
            ("outputs", ["sum"] if model == "sums" else ["y"]),
            ("timeout_ms", 5_000),
            ("id", "7"),
        ):
            if draw.random() < 0.3:
                document[name] = value
        return self._text(self._spoilt(document))

    def open_json(self) -> tuple[str, Headers, bytes]:
        """Return a model and a request of the Open Inference Protocol whose tensors are JSON."""
        model = self.random.choice(list(MODELS))
        return model, (), self._text(self._spoilt(self._open_document(model, binary=False)[0]))

    def open_binary(self) -> tuple[str, Headers, bytes]:
        """Return a model and a request of the Open Inference Protocol whose tensors follow the JSON."""
        draw = self.random
        model = draw.choice(list(MODELS))
        document, blobs = self._open_document(model, binary=True)
        if draw.random() < 0.6:
            document = self._spoilt(document)
        content = self._text(document) if draw.random() < 0.3 else _json(document)
        length = len(content)
        if draw.random() < 0.3:
            length = draw.choice(
                (0, 1, length - 1, length + 1, length + len(blobs), 2**31, 2**63, 10**30, -1)
            )
        if draw.random() < 0.4:
            blobs = self.changed(blobs)
        text = draw.choice((b"", b"x", b"1 2", b"1e3")) if draw.random() < 0.05 else b"%d" % length
        return model, ((b"inference-header-content-length", text),), content + blobs

    def grpc_message(self) -> bytes:
        """Return the bytes of a ModelInferRequest."""
        draw = self.random
        model = draw.choice(list(MODELS))
        kind = MODELS[model]
        request = messages.ModelInferRequest(model_name=model)
        raw = kind == "BF16" or draw.random() < 0.6
        for name in ("a", "b") if model == "sums" else ("x",):
            tensor = request.inputs.add(name=name, datatype=kind, shape=[1, 4])
            if raw:
                request.raw_input_contents.append(self._blob(kind, 4))
            else:
                values = self._values(model, 4)
                content = [value.encode() for value in values] if kind == "BYTES" else values
                getattr(tensor.contents, _CONTENTS[kind]).extend(content)
        for _ in range(draw.randint(0, 3)):
            self._spoil_message(request)
        content = request.SerializeToString()
        return self.changed(content) if draw.random() < 0.3 else content

    def grpc_body(self) -> tuple[bytes, bool]:
        """Return the body of a call, and whether its framing is as it should be."""
        message = self.grpc_message()
        draw = self.random
        if draw.random() < 0.9:
            return b"\0" + len(message).to_bytes(4, "big") + message, True
        flag = draw.choice((0, 1, 2, 255))
        length = draw.choice((0, 1, len(message) - 1, len(message) + 1, 2**31, 2**32 - 1)) % 2**32
        body = bytes((flag,)) + length.to_bytes(4, "big") + message
        return draw.choice((body, body[:3], body + body, b"")), False

    # --- bytes that are not even a request

    def frame(self, stream_id: int) -> bytes:
        """Return a frame of HTTP/2, most of them possible ones."""
        draw = self.random
        kind = draw.choice((0, 0, 1, 1, 1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 9, 16, 255))
        flags = draw.choice((0, 1, 4, 5, 8, 0x20, 0x25, 0x2D, 255))
        target = draw.choice((0, stream_id, stream_id, stream_id, 1, 2, stream_id + 2, 2**31 - 1, 2**32 - 1))
        payload = draw.choice(
            (
                b"",
                draw.randbytes(draw.choice((1, 4, 5, 6, 8, 12, 40))),
                (0).to_bytes(4, "big"),
                (2**31 - 1).to_bytes(4, "big"),
                b"\0\3\0\0\0\1",
                b"\0\4\xff\xff\xff\xff",
                b"\x83\x86\x84",
                b"\x83\x86\x04\x09/v1/infer\x41\x01a",
                b"\x82\x86\x04\x08/v1/none",
                b"\x3f\xe1\xff\xff\xff\x0f",
                b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
                b"\x40\x7f\xff\xff\xff\xff\x07",
                b"{}",
            )
        )
        length = len(payload)
        if draw.random() < 0.03:
            length = draw.choice((length + 1, max(0, length - 1), 16_384, 16_385, 2**24 - 1))
        return length.to_bytes(3, "big") + bytes((kind, flags)) + target.to_bytes(4, "big") + payload

    def raw(self) -> bytes:
        """Return what a client might begin to talk with, or noise."""
        draw = self.random
        start = draw.choice(
            (
                b'POST /v1/infer HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{"a": 1}}',
                b"POST /v1/infer HTTP/1.1\r\ntransfer-encoding: chunked\r\nhost:\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
                b"GET /metrics HTTP/1.0\r\n\r\n",
                b"GET /healthz HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\nupgrade: h2c\r\n\r\n",
                b"HEAD http://h/v2 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
                draw.randbytes(draw.choice((1, 20, 300))),
            )
        )
        for _ in range(draw.randint(0, 3)):
            start = self.changed(start)
        return start

    def changed(self, content: bytes) -> bytes:
        """Return `content` with some bytes changed, lost, added or doubled."""
        draw = self.random
        place = draw.randrange(len(content) + 1)
        match draw.randrange(7):
            case 0:
                return content[:place] + bytes((draw.randrange(256),)) + content[place + 1 :]
            case 1:
                return content[:place]
            case 2:
                return content[:place] + draw.randbytes(draw.randint(1, 9)) + content[place:]
            case 3:
                return content[:place] + content[place + draw.randint(1, 9) :]
            case 4:
                return content[:place] + content[max(0, place - 20) :]
            case 5:
                return content + draw.choice((b"\0", content, b"\xff" * 50, b"A" * 5_000))
            case _:
                flipped = bytes((content[place] ^ 1 << draw.randrange(8),)) if place < len(content) else b""
                return content[:place] + flipped + content[place + 1 :]

    # --- documents

    def _values(self, model: str, count: int) -> list[Any]:
        draw = self.random
        match MODELS[model]:
            case "BYTES":
                return [draw.choice(("", "a", "é", "long" * 20)) for _ in range(count)]
            case "FP32" | "BF16":
                return [round(draw.uniform(-9, 9), 3) for _ in range(count)]
        return [draw.randint(0, 100) for _ in range(count)]

    def _blob(self, kind: str, count: int) -> bytes:
        draw = self.random
        if kind != "BYTES":
            return draw.randbytes(count * _ELEMENT_BYTES[kind])
        if draw.random() < 0.2:
            return (2**32 - draw.randint(1, 9)).to_bytes(4, "little") + b"abc"
        return b"".join(size.to_bytes(4, "little") + b"z" * size for size in draw.choices(range(9), k=count))

    def _open_document(self, model: str, *, binary: bool) -> tuple[dict[str, Any], bytes]:
        draw = self.random
        kind = MODELS[model]
        rows = draw.randint(1, 3)
        inputs, blobs = [], []
        for name in ("a", "b") if model == "sums" else ("x",):
            tensor: dict[str, Any] = {"name": name, "datatype": kind, "shape": [rows, 4]}
            if binary:
                blobs.append(self._blob(kind, rows * 4))
                tensor["parameters"] = {"binary_data_size": len(blobs[-1])}
            else:
                tensor["data"] = self._values(model, rows * 4)
            inputs.append(tensor)
        document: dict[str, Any] = {"inputs": inputs}
        if draw.random() < 0.3:
            document["id"] = "7"
        if draw.random() < 0.3:
            document["parameters"] = draw.choice(
                (
                    {"binary_data_output": binary},
                    {"priority": 1, "timeout": 5_000_000},
                    {"sequence_id": 1, "sequence_start": True},
                    {"own": "x"},
                )
            )
        if draw.random() < 0.4:
            parameters = draw.choice(
                (
                    {},
                    {"binary_data": binary},
                    {"classification": 2},
                    {"shared_memory_region": "r", "shared_memory_byte_size": 16},
                )
            )
            document["outputs"] = [{"name": "sum" if model == "sums" else "y", "parameters": parameters}]
        return document, b"".join(blobs)

    def _spoilt(self, document: Any) -> Any:
        """Return `document` with one to three of its values replaced, removed or doubled."""
        for _ in range(self.random.randint(1, 3)):
            document = self._spoilt_once(document)
        return document

    def _spoilt_once(self, document: Any) -> Any:
        draw = self.random
        if not isinstance(document, dict | list) or not document or draw.random() < 0.05:
            return draw.choice(_ABSURD)
        if isinstance(document, list):
            document = list(document)
            place = draw.randrange(len(document))
            match draw.randrange(6):
                case 0:
                    del document[place]
                case 1:
                    document.append(document[place])
                case 2:
                    document[place] = draw.choice(_ABSURD)
                case _:
                    document[place] = self._spoilt_once(document[place])
            return document
        document = dict(document)
        name = draw.choice(list(document))
        match draw.randrange(7):
            case 0:
                del document[name]
            case 1:
                document[str(draw.choice(_TEXTS))] = document.pop(name)
            case 2:
                document[str(draw.choice(_TEXTS))] = draw.choice(_ABSURD)
            case 3:
                document[name] = draw.choice(_ABSURD)
            case _:
                document[name] = self._spoilt_once(document[name])
        return document

    def _text(self, document: Any) -> bytes:
        content = _json(document)
        return self.changed(content) if self.random.random() < 0.2 else content

    def _spoil_message(self, request: messages.ModelInferRequest) -> None:
        draw = self.random
        tensor = request.inputs[0] if request.inputs else request.inputs.add()
        text = str(draw.choice(_TEXTS))
        match draw.randrange(13):
            case 0:
                request.model_name = text
            case 1:
                request.model_version = str(draw.choice(_WHOLE))
            case 2:
                tensor.name = text
            case 3:
                tensor.datatype = draw.choice(("", "FP16", "FP64", "INT64", "BYTES", "fp32", "X" * 500))
            case 4:
                del tensor.shape[:]
                tensor.shape.extend(draw.choices(_INT64, k=draw.choice((0, 1, 2, 2, 3, 9, 70))))
            case 5:
                tensor.contents.int_contents.append(7)
            case 6:
                request.raw_input_contents.append(draw.randbytes(draw.choice((0, 1, 16))))
            case 7:
                if request.raw_input_contents:
                    request.raw_input_contents[0] = self.changed(request.raw_input_contents[0])
            case 8:
                request.outputs.add(name=draw.choice(("y", "sum", text)))
            case 9:
                request.parameters[
                    draw.choice(("timeout", "priority", "sequence_id", text))
                ].int64_param = draw.choice(_INT64)
            case 10:
                wanted = request.outputs.add(name="y")
                wanted.parameters["classification"].int64_param = draw.choice(_INT64)
            case 11:
                tensor.parameters["shared_memory_region"].string_param = text
                tensor.parameters["shared_memory_byte_size"].int64_param = draw.choice(_INT64)
            case _:
                del request.inputs[0]


def bodies(fuzzer: Fuzzer, path: bytes, count: int) -> Iterator[tuple[bytes, Headers, bytes]]:
    """Return `count` requests, path, headers and body, for "/v1/infer", or of a kind of the open protocol."""
    for _ in range(count):
        if path == b"own":
            yield b"/v1/infer", (), fuzzer.own_json()
            continue
        model, headers, body = fuzzer.open_json() if path == b"json" else fuzzer.open_binary()
        yield b"/v2/models/%b/infer" % model.encode(), headers, body


def _json(document: Any) -> bytes:
    text = json.dumps(document, ensure_ascii=False)
    if _DEEP in text:
        text = text.replace(f'"{_DEEP}"', "[" * 2_000 + "]" * 2_000)
    return text.encode("utf-8", "surrogatepass")
