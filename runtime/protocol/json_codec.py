"""JSON bodies: bytes to tensors and back.

Numbers are decoded by msgspec straight into lists of the input's type, so `true`, `"1"`, a nested list and
a missing value are all refused with their place in the document. Requests in the usual form, in a shape
that was served before, take a shorter way (`json_form.py`); what that does not take is read again from the
beginning. A body that is refused is held against the contract first (`infer_rules.py`), then against the
model.
"""

import re
import struct
import weakref
from typing import Any

import msgspec
import numpy as np

from mcp2026.runtime.errors import RequestError, invalid
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import LoadedVersion, ServedModel, rows_of_a_run
from mcp2026.runtime.model.signature import MAX_DIMENSIONS, STRING, TensorSpec, check_shape, count_rows
from mcp2026.runtime.model.store import ModelStore
from mcp2026.runtime.protocol.infer_rules import broken_rule
from mcp2026.runtime.protocol.json_form import DECODERS, HELD_OTHERWISE, MISSING, Decode, UsualBody, UsualForm
from mcp2026.runtime.protocol.json_turns import LARGE_BODY, InTurns, at_once, read_list, write_list
from mcp2026.runtime.protocol.open_inference.datatypes import bf16_from_fp32, fp32_from_bf16

_RAW_EMPTY = msgspec.Raw()


class TensorBody(msgspec.Struct, forbid_unknown_fields=True):
    """One named input."""

    data: msgspec.Raw
    shape: list[int | float]
    """Whole numbers, which JSON may write as `1.0`."""


class InferBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/infer`."""

    input: msgspec.Raw = _RAW_EMPTY
    shape: list[int | float] = MISSING
    inputs: dict[str, TensorBody] = MISSING
    outputs: list[str] = MISSING
    """Which outputs the answer shall hold; all if missing."""
    model: str = MISSING
    version_id: str = MISSING
    timeout_ms: float = MISSING
    id: str = MISSING
    """Returned unchanged."""


class InferRequest(msgspec.Struct, frozen=True, gc=False):
    """A request that fits the model."""

    model: ServedModel
    version: LoadedVersion
    form: UsualForm
    inputs: tuple[Array, ...]
    rows: int
    outputs: tuple[int, ...]
    """Indexes of the outputs asked for."""
    timeout_ns: int
    id: str | None
    simple: bool
    """It was asked in the form for one input, and is answered in the form for one output if it can be."""


_BODY = msgspec.json.Decoder(InferBody)
_LISTS: dict[str, msgspec.json.Decoder[Any]] = {
    "f": msgspec.json.Decoder(list[float]),
    "i": msgspec.json.Decoder(list[int]),
    "u": msgspec.json.Decoder(list[int]),
    "b": msgspec.json.Decoder(list[bool]),
    "O": msgspec.json.Decoder(list[str]),
}
_KINDS = {
    "f": "finite numbers",
    "i": "whole numbers",
    "u": "whole numbers from 0",
    "b": "true and false",
    "O": "strings",
}


class JsonCodec:
    """Reads requests for the models of one process, and writes their answers."""

    def __init__(self, store: ModelStore, max_timeout_ns: int) -> None:
        self._store = store
        self._max_timeout_ns = max_timeout_ns
        self._forms: dict[int, UsualForm] = {}
        """By the identity of the version, while it lives."""
        self._decode: Decode = DECODERS["f"]
        """For the kind of elements that came last."""

    def decode(self, body: bytes, sticky_key: bytes | None = None) -> InferRequest:
        """Return the request in `body`, checked against the version that it will run on.

        Where it names no version, `sticky_key` decides on one, else the weights do.

        Raises:
            RequestError: the body is not JSON, lacks something, or does not fit the model.

        """
        try:
            usual = self._decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return at_once(self.decode_in_turns(body, sticky_key))
        try:
            return self._usual(body, usual, sticky_key)
        except RequestError as error:
            raise (at_once(broken_rule(body)) or error) from error

    def _usual(self, body: bytes, usual: UsualBody[Any], sticky_key: bytes | None) -> InferRequest:
        model = self._store.only(usual.model)
        version = model.version(usual.version_id, sticky_key)
        form = self._forms.get(id(version))
        if form is None or form.config is not model.config:
            form = self._form(model, version)
        values, shape = usual.input, usual.shape
        known = form.known.get(shape)
        if known is None or known.values != len(values) or form.decode is not self._decode:
            return at_once(self._fit(_parse(body), model, version, form))
        try:
            memory = known.pack(*values)
        except (OverflowError, struct.error):
            return at_once(self._fit(_parse(body), model, version, form))
        return InferRequest(
            model,
            version,
            form,
            (np.ndarray(shape, form.dtype, memory),),
            known.rows,
            form.all_outputs if usual.outputs is None else _outputs(usual.outputs, version.signature.outputs),
            self._max_timeout_ns
            if usual.timeout_ms is None
            else _timeout(usual.timeout_ms, self._max_timeout_ns),
            usual.id,
            True,
        )

    def decode_in_turns(self, body: bytes, sticky_key: bytes | None = None) -> InTurns[InferRequest]:
        """Do the same for a large body, with pauses."""
        try:
            document = _parse(body)
            yield
            model = self._store.only(document.model)
            version = model.version(document.version_id, sticky_key)
            return (yield from self._fit(document, model, version, self._form(model, version)))
        except RequestError as error:
            raise ((yield from broken_rule(body)) or error) from error

    def encode(self, request: InferRequest, outputs: list[Array]) -> bytes:
        """Return the body of the answer.

        Raises:
            RequestError: a string of an output is not UTF-8, which JSON cannot carry.

        """
        form = request.form
        if request.simple and request.id is None and len(request.outputs) == 1:
            (index,) = request.outputs
            array = outputs[index]
            return b'%b,"output":%b%b' % (form.start, form.values[index](array), form.end(index, array.shape))
        return at_once(self.encode_in_turns(request, outputs))

    def encode_in_turns(self, request: InferRequest, outputs: list[Array]) -> InTurns[bytes]:
        """Do the same for a large answer, with pauses; `outputs` must stay as they are meanwhile."""
        form = request.form
        start = form.start
        if request.id is not None:
            start += b',"id":' + msgspec.json.encode(request.id)
        lists = []
        for index in request.outputs:
            values = yield from write_list(form.values[index], outputs[index])
            lists.append(values + form.end(index, outputs[index].shape))
        if request.simple and len(lists) == 1:
            return b'%b,"output":%b' % (start, lists[0])
        specs = request.version.signature.outputs
        names = [msgspec.json.encode(specs[index].name) for index in request.outputs]
        named = [b'%b:{"data":%b' % pair for pair in zip(names, lists, strict=True)]
        return b'%b,"outputs":{%b}}' % (start, b",".join(named))

    def _form(self, model: ServedModel, version: LoadedVersion) -> UsualForm:
        form = self._forms.get(id(version))
        if form is None or form.config is not model.config:
            if form is None:
                weakref.finalize(version, self._forms.pop, id(version))
            form = self._forms[id(version)] = UsualForm(version, model.config)
        return form

    def _fit(
        self, document: InferBody, model: ServedModel, version: LoadedVersion, form: UsualForm
    ) -> InTurns[InferRequest]:
        """Check whatever `document` says against the version."""
        signature = version.signature
        simple = document.inputs is None
        tensors = _tensors(document, signature.inputs)
        arrays = []
        for spec, tensor in zip(signature.inputs, tensors, strict=True):
            arrays.append((yield from _array(spec, tensor, "" if simple else f"inputs.{spec.name}.")))
        rows = count_rows(signature, arrays, rows_of_a_run(model.config))
        outputs = _outputs(document.outputs, signature.outputs)
        timeout_ns = _timeout(document.timeout_ms, self._max_timeout_ns)
        if simple and form.decode is not None:
            form.learn(arrays[0].shape, arrays[0].size, rows)
            self._decode = form.decode
        return InferRequest(
            model, version, form, tuple(arrays), rows, outputs, timeout_ns, document.id, simple
        )


def _parse(body: bytes) -> InferBody:
    try:
        return _BODY.decode(body)
    except msgspec.ValidationError as error:
        raise _misfit(error, "") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _malformed(body, error) from error
    except RecursionError as error:
        raise invalid("body", "is nested too deeply", "one JSON object", "type") from error


def _tensors(document: InferBody, specs: tuple[TensorSpec, ...]) -> list[TensorBody]:
    """Return the request's tensors in the order of the model's inputs."""
    names = ", ".join(spec.name for spec in specs)
    flat = bytes(document.input)
    if document.inputs is not None:
        if flat or document.shape is not None:
            raise invalid("input", "stands beside inputs", "either inputs, or input and shape", "not")
        for name in document.inputs:
            if not any(spec.name == name for spec in specs):
                raise invalid(
                    f"inputs.{name[:64]}", "the model has no such input", names, "additionalProperties"
                )
        for spec in specs:
            if spec.name not in document.inputs:
                raise invalid(f"inputs.{spec.name}", "is missing", names, "required")
        return [document.inputs[spec.name] for spec in specs]
    if len(specs) != 1:
        raise invalid("inputs", f"is missing; the model has {len(specs)} inputs", names, "required")
    if not flat:
        raise invalid("input", "is missing", f"a flat list of {_KINDS[specs[0].dtype.kind]}", "required")
    if document.shape is None:
        raise invalid("shape", "is missing", f"{specs[0].wire_shape} (-1: any size from 1)", "required")
    return [TensorBody(document.input, document.shape)]


def _array(spec: TensorSpec, tensor: TensorBody, prefix: str) -> InTurns[Array]:
    field = f"{prefix}data" if prefix else "input"
    shape = _sizes(tensor.shape, f"{prefix}shape")
    kind = "f" if spec.datatype == "BF16" else spec.dtype.kind
    text = bytes(tensor.data)
    if len(text) > LARGE_BODY and spec.datatype not in HELD_OTHERWISE:
        array = yield from read_list(text, spec.dtype, _LISTS[kind].decode)
        if array is not None:
            check_shape(spec, shape, array.size, f"{prefix}shape")
            return array.reshape(shape)
    try:
        values = _LISTS[kind].decode(text)
    except msgspec.DecodeError as error:
        raise _misfit(error, field, f"a flat list of {_KINDS[kind]}") from error
    check_shape(spec, shape, len(values), f"{prefix}shape")
    return _flat_array(spec, kind, values, field).reshape(shape)


def _sizes(shape: list[int | float], field: str) -> list[int]:
    if len(shape) > MAX_DIMENSIONS:
        problem = f"has {len(shape)} dimensions"
        raise invalid(field, problem, f"at most {MAX_DIMENSIONS} dimensions", "maxItems")
    sizes = [int(size) for size in shape]
    if sizes != shape:
        raise invalid(field, "holds a fraction", "whole numbers", "type")
    return sizes


def _flat_array(spec: TensorSpec, kind: str, values: list[Any], field: str) -> Array:
    if kind == "O":
        strings = np.empty(len(values), STRING)
        strings[:] = [value.encode() for value in values]
        return strings
    try:
        with np.errstate(over="ignore"):
            array = np.array(values, np.float32 if spec.datatype == "BF16" else spec.dtype)
    except OverflowError:
        limits = np.iinfo(spec.dtype)
        problem, allowed = f"holds a number that {spec.dtype.name} cannot", f"{limits.min} to {limits.max}"
        rule = "minimum" if min(values) < limits.min else "maximum"
        raise invalid(field, problem, allowed, rule) from None
    exact = array
    if spec.datatype == "BF16":
        array = bf16_from_fp32(exact)
        exact = fp32_from_bf16(array)
    if kind == "f" and not np.isfinite(exact).all():
        raise invalid(field, f"holds a number too large for {spec.dtype_name}", "finite numbers", "maximum")
    return array


def _outputs(names: list[str] | None, specs: tuple[TensorSpec, ...]) -> tuple[int, ...]:
    if names is None:
        return tuple(range(len(specs)))
    index = {spec.name: position for position, spec in enumerate(specs)}
    unknown = [name for name in names if name not in index]
    if unknown or not names or len(set(names)) != len(names):
        problem = f"the model has no output {unknown[0][:64]!r}" if unknown else "is empty or names one twice"
        rule = "enum" if unknown else "uniqueItems" if names else "minItems"
        raise invalid("outputs", problem, ", ".join(index), rule)
    return tuple(index[name] for name in names)


def _timeout(timeout_ms: float | None, max_timeout_ns: int) -> int:
    if timeout_ms is None:
        return max_timeout_ns
    timeout_ns = timeout_ms * 1e6
    if not 0 < timeout_ns <= max_timeout_ns:
        allowed = f"more than 0, up to {max_timeout_ns / 1e6:g}"
        rule = "maximum" if timeout_ns > 0 else "exclusiveMinimum"
        raise invalid("timeout_ms", f"{timeout_ms:g} is out of range", allowed, rule)
    return max(1, int(timeout_ns))


_PLACE = re.compile(r" - at `(?:key in )?\$\.?(.*)`$")
_BYTE = re.compile(r"\(byte (\d+)\)")
_NOT_A_NUMBER = re.compile(rb"[-+]?(?:NaN|nan|Infinity|Inf|inf)\b")
_KEY = re.compile(rb'"([^"\\]{1,64})"\s*:')


def _misfit(error: Exception, prefix: str, allowed: str = "see the API in runtime/README.md") -> RequestError:
    """Turn msgspec's words about a value of the wrong kind into field and problem."""
    text = str(error)
    place = _PLACE.search(text)
    field = prefix + (place.group(1) if place else "")
    return invalid(field or "body", text[: place.start()] if place else text, allowed, "type")


def _malformed(body: bytes, error: Exception) -> RequestError:
    """Return the error for a body that is not JSON; NaN and infinities are named, with their field."""
    position = _BYTE.search(str(error))
    if position is not None:
        offset = int(position.group(1))
        # The parser stops inside the word or before it, depending on the sign.
        found = next((m for m in _NOT_A_NUMBER.finditer(body, max(0, offset - 2), offset + 16)), None)
        if found is not None and found.start() <= offset:
            keys = _KEY.findall(body, 0, offset)
            field = keys[-1].decode("utf-8", "replace") if keys else "body"
            word = found.group().decode()
            return invalid(
                field, f"{word} at byte {found.start()} is not a number in JSON", "finite numbers", "type"
            )
    return invalid("body", str(error) if body.strip() else "is empty", "one JSON object", "type")
