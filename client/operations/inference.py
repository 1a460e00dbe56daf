"""An inference: the question with its tensors, and the answer's tensors as arrays."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from mcp2026.api.batching_negotiation import NegotiatedBatching
from mcp2026.api.names import TENANT_HEADER, TRACE_HEADER
from mcp2026.client.datatypes import Array, Tensor, from_json, from_wire, to_wire
from mcp2026.client.errors import InvalidRequestError, ProtocolError
from mcp2026.client.exchange import GrpcRequest, GrpcResponse, Header, HttpRequest, HttpResponse
from mcp2026.client.open_inference import open_inference_pb2 as messages
from mcp2026.client.operations.answers import json_object, parsed, succeeded
from mcp2026.client.operations.models import model_path

_HEADER_LENGTH = "inference-header-content-length"
_METHOD = "/inference.GRPCInferenceService/ModelInfer"


class InferenceResult(Mapping[str, Array]):
    """The outputs of one inference by name, in the order of the answer, and what was said about it.

    Numbers have the dtype of the model's output, BF16 is float32, BYTES are `bytes` in an array of objects.
    """

    def __init__(
        self,
        outputs: dict[str, Array],
        *,
        model: str,
        version: str,
        request_id: str = "",
        batching: NegotiatedBatching | None = None,
        traceparent: str | None = None,
    ) -> None:
        self._outputs = outputs
        self.model = model
        self.version = version
        """Which version answered."""
        self.request_id = request_id
        self.batching = batching
        """What was negotiated for this request; None: it was on its own."""
        self.traceparent = traceparent
        """Of the server's answer, if it gave one."""

    def __getitem__(self, name: str) -> Array:
        if name not in self._outputs:
            raise KeyError(f"no output {name!r}; there are {', '.join(self._outputs)}")
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def text(self, name: str) -> npt.NDArray[np.str_]:
        """Return an output of BYTES as an array of str, decoded as UTF-8.

        Raises:
            KeyError: there is no such output.
            UnicodeDecodeError: it is no text.

        """
        array = self[name]
        return np.array([element.decode() for element in array.ravel()], dtype=np.str_).reshape(array.shape)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {array.dtype}{list(array.shape)}" for name, array in self.items())
        return f"InferenceResult({self.model}/{self.version}, {shapes})"


class Inference:
    """The question for one inference, an `Operation`."""

    idempotent = True

    def __init__(
        self,
        inputs: Mapping[str, npt.ArrayLike | Tensor],
        *,
        model: str,
        version: str | None = None,
        outputs: tuple[str, ...] = (),
        priority: int | None = None,
        tenant: str | None = None,
        request_id: str = "",
        headers: tuple[Header, ...] = (),
        batchable: bool = True,
    ) -> None:
        """Check the question and make tensors of its arrays.

        Raises:
            InvalidRequestError: it cannot be asked.

        """
        if not model:
            raise InvalidRequestError("model: is empty", field="model", allowed="the name of a model")
        if not isinstance(inputs, Mapping):
            raise InvalidRequestError(
                f"inputs: {type(inputs).__name__} has no names",
                field="inputs",
                allowed='arrays by the names of the inputs: {"input": array}',
            )
        if priority is not None and not 0 <= priority < 2**63:
            raise InvalidRequestError(
                f"priority: {priority} is out of range",
                field="priority",
                allowed="from 1, first is 1; 0: default",
            )
        if tenant is not None and not (0 < len(tenant) <= 63 and tenant.isascii() and tenant.isprintable()):
            raise InvalidRequestError(
                f"tenant: {tenant[:64]!r} is no id", field="tenant", allowed="1 to 63 characters of ASCII"
            )
        self._model = model
        self._version = version or ""
        self._inputs = {name: to_wire(name, value) for name, value in inputs.items()}
        self._outputs = outputs
        self._priority = priority or 0
        self._request_id = request_id
        self._batchable = batchable
        self._headers = headers if tenant is None else (*headers, (TENANT_HEADER, tenant))

    def http_request(self, timeout: float) -> HttpRequest:
        """Return the question in the binary form of the Open Inference Protocol."""
        parameters: dict[str, int | bool] = {"timeout": max(int(timeout * 1e6), 1)}
        if self._priority:
            parameters["priority"] = self._priority
        document: dict[str, Any] = {
            "inputs": [
                {
                    "name": name,
                    "shape": tensor.shape,
                    "datatype": tensor.datatype,
                    "parameters": {"binary_data_size": len(tensor.content)},
                }
                for name, tensor in self._inputs.items()
            ]
        }
        if self._request_id:
            document["id"] = self._request_id
        if self._outputs:
            document["outputs"] = [
                {"name": name, "parameters": {"binary_data": True}} for name in self._outputs
            ]
        else:
            parameters["binary_data_output"] = True
        document["parameters"] = parameters
        head = msgspec.json.encode(document)
        path = model_path(self._model, self._version)
        headers = (
            ("content-type", "application/octet-stream"),
            (_HEADER_LENGTH, str(len(head))),
            *self._headers,
        )
        body = (head, *(tensor.content for tensor in self._inputs.values()))
        return HttpRequest("POST", f"{path}/infer", headers, body, self._batchable)

    def http_answer(self, response: HttpResponse) -> InferenceResult:
        """Return the outputs in `response`.

        Raises:
            ClientError: it says that the inference failed, or it is malformed.

        """
        body = memoryview(succeeded(response).body)
        head_length = len(body)
        if _HEADER_LENGTH in response.headers:
            text = response.headers[_HEADER_LENGTH]
            if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= len(body)):
                raise ProtocolError(f"{_HEADER_LENGTH}: {text[:32]!r} of {len(body)} bytes")
            head_length = int(text)
        document = json_object(body[:head_length])
        binary = body[head_length:]
        arrays: dict[str, Array] = {}
        try:
            for output in document["outputs"]:
                name, datatype, shape = output["name"], output["datatype"], output["shape"]
                size = (output.get("parameters") or {}).get("binary_data_size")
                if size is None:
                    arrays[name] = from_json(name, datatype, shape, output["data"])
                else:
                    if not 0 <= size <= len(binary):
                        raise ProtocolError(f"output {name} has {size} bytes, but {len(binary)} are left")
                    arrays[name] = from_wire(name, datatype, shape, binary[:size])
                    binary = binary[size:]
        except (AttributeError, KeyError, TypeError) as error:
            raise ProtocolError(f"the answer's outputs are malformed: {error!r}") from error
        if len(binary):
            raise ProtocolError(f"the answer has {len(binary)} bytes that belong to no output")
        return InferenceResult(
            arrays,
            model=str(document.get("model_name") or self._model),
            version=str(document.get("model_version") or ""),
            request_id=str(document.get("id") or ""),
            batching=response.batching,
            traceparent=response.headers.get(TRACE_HEADER),
        )

    def grpc_request(self, timeout: float) -> GrpcRequest:
        """Return the question with its tensors as raw contents."""
        request = messages.ModelInferRequest(
            model_name=self._model, model_version=self._version, id=self._request_id
        )
        request.parameters["timeout"].int64_param = max(int(timeout * 1e6), 1)
        if self._priority:
            request.parameters["priority"].uint64_param = self._priority
        for name, tensor in self._inputs.items():
            request.inputs.add(name=name, datatype=tensor.datatype, shape=tensor.shape)
            request.raw_input_contents.append(bytes(tensor.content))
        for name in self._outputs:
            request.outputs.add(name=name)
        message = request.SerializeToString(deterministic=True)
        return GrpcRequest(_METHOD, message, self._headers, self._batchable)

    def grpc_answer(self, response: GrpcResponse) -> InferenceResult:
        """Return the outputs in `response`.

        Raises:
            ProtocolError: it is malformed.

        """
        answer = parsed(messages.ModelInferResponse(), response.message)
        raw = answer.raw_output_contents
        if len(raw) != len(answer.outputs):
            raise ProtocolError(f"the answer has {len(answer.outputs)} outputs and {len(raw)} raw contents")
        arrays = {
            output.name: from_wire(output.name, output.datatype, tuple(output.shape), bytearray(content))
            for output, content in zip(answer.outputs, raw, strict=True)
        }
        return InferenceResult(
            arrays,
            model=answer.model_name,
            version=answer.model_version,
            request_id=answer.id,
            batching=response.batching,
            traceparent=response.metadata.get(TRACE_HEADER),
        )
