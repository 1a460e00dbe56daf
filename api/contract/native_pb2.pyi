from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InferRequest(_message.Message):
    __slots__ = ("model", "version_id", "input", "shape", "inputs", "outputs", "timeout_ms", "id")
    class InputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: InputTensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[InputTensor, _Mapping]] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    model: str
    version_id: str
    input: Values
    shape: Shape
    inputs: _containers.MessageMap[str, InputTensor]
    outputs: _containers.RepeatedScalarFieldContainer[str]
    timeout_ms: float
    id: str
    def __init__(self, model: _Optional[str] = ..., version_id: _Optional[str] = ..., input: _Optional[_Union[Values, _Mapping]] = ..., shape: _Optional[_Union[Shape, _Mapping]] = ..., inputs: _Optional[_Mapping[str, InputTensor]] = ..., outputs: _Optional[_Iterable[str]] = ..., timeout_ms: _Optional[float] = ..., id: _Optional[str] = ...) -> None: ...

class Values(_message.Message):
    __slots__ = ("numbers", "integers", "unsigned_integers", "booleans", "strings")
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    INTEGERS_FIELD_NUMBER: _ClassVar[int]
    UNSIGNED_INTEGERS_FIELD_NUMBER: _ClassVar[int]
    BOOLEANS_FIELD_NUMBER: _ClassVar[int]
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    numbers: _containers.RepeatedScalarFieldContainer[float]
    integers: _containers.RepeatedScalarFieldContainer[int]
    unsigned_integers: _containers.RepeatedScalarFieldContainer[int]
    booleans: _containers.RepeatedScalarFieldContainer[bool]
    strings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, numbers: _Optional[_Iterable[float]] = ..., integers: _Optional[_Iterable[int]] = ..., unsigned_integers: _Optional[_Iterable[int]] = ..., booleans: _Optional[_Iterable[bool]] = ..., strings: _Optional[_Iterable[str]] = ...) -> None: ...

class Shape(_message.Message):
    __slots__ = ("sizes",)
    SIZES_FIELD_NUMBER: _ClassVar[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sizes: _Optional[_Iterable[int]] = ...) -> None: ...

class InputTensor(_message.Message):
    __slots__ = ("data", "shape")
    DATA_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    data: Values
    shape: Shape
    def __init__(self, data: _Optional[_Union[Values, _Mapping]] = ..., shape: _Optional[_Union[Shape, _Mapping]] = ...) -> None: ...

class InferResponse(_message.Message):
    __slots__ = ("model", "version_id", "id", "output", "shape", "dtype", "outputs")
    class OutputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: OutputTensor
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[OutputTensor, _Mapping]] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version_id: str
    id: str
    output: Values
    shape: OutputShape
    dtype: str
    outputs: _containers.MessageMap[str, OutputTensor]
    def __init__(self, model: _Optional[str] = ..., version_id: _Optional[str] = ..., id: _Optional[str] = ..., output: _Optional[_Union[Values, _Mapping]] = ..., shape: _Optional[_Union[OutputShape, _Mapping]] = ..., dtype: _Optional[str] = ..., outputs: _Optional[_Mapping[str, OutputTensor]] = ...) -> None: ...

class OutputShape(_message.Message):
    __slots__ = ("sizes",)
    SIZES_FIELD_NUMBER: _ClassVar[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sizes: _Optional[_Iterable[int]] = ...) -> None: ...

class OutputTensor(_message.Message):
    __slots__ = ("data", "shape", "dtype")
    DATA_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    data: Values
    shape: OutputShape
    dtype: str
    def __init__(self, data: _Optional[_Union[Values, _Mapping]] = ..., shape: _Optional[_Union[OutputShape, _Mapping]] = ..., dtype: _Optional[str] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ModelList(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "revision", "max_batch_size", "versions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    revision: int
    max_batch_size: int
    versions: _containers.RepeatedCompositeFieldContainer[Version]
    def __init__(self, name: _Optional[str] = ..., revision: _Optional[int] = ..., max_batch_size: _Optional[int] = ..., versions: _Optional[_Iterable[_Union[Version, _Mapping]]] = ...) -> None: ...

class Version(_message.Message):
    __slots__ = ("version_id", "weight", "batched", "inputs", "outputs", "uri", "owner_email")
    VERSION_ID_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    BATCHED_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    OWNER_EMAIL_FIELD_NUMBER: _ClassVar[int]
    version_id: str
    weight: int
    batched: bool
    inputs: _containers.RepeatedCompositeFieldContainer[TensorDescription]
    outputs: _containers.RepeatedCompositeFieldContainer[TensorDescription]
    uri: str
    owner_email: str
    def __init__(self, version_id: _Optional[str] = ..., weight: _Optional[int] = ..., batched: _Optional[bool] = ..., inputs: _Optional[_Iterable[_Union[TensorDescription, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[TensorDescription, _Mapping]]] = ..., uri: _Optional[str] = ..., owner_email: _Optional[str] = ...) -> None: ...

class TensorDescription(_message.Message):
    __slots__ = ("name", "dtype", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class RegisterVersionRequest(_message.Message):
    __slots__ = ("request_id", "model", "version_id", "uri", "weight", "owner_email")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_ID_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    OWNER_EMAIL_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    version_id: str
    uri: str
    weight: int
    owner_email: str
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., version_id: _Optional[str] = ..., uri: _Optional[str] = ..., weight: _Optional[int] = ..., owner_email: _Optional[str] = ...) -> None: ...

class RegisteredVersion(_message.Message):
    __slots__ = ("request_id", "model", "version_id", "weight", "revision")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_ID_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    version_id: str
    weight: int
    revision: int
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., version_id: _Optional[str] = ..., weight: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...

class DescribeModelRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class RetireVersionRequest(_message.Message):
    __slots__ = ("model", "version_id")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_ID_FIELD_NUMBER: _ClassVar[int]
    model: str
    version_id: str
    def __init__(self, model: _Optional[str] = ..., version_id: _Optional[str] = ...) -> None: ...

class RetiredVersion(_message.Message):
    __slots__ = ("model", "version_id", "revision")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    model: str
    version_id: str
    revision: int
    def __init__(self, model: _Optional[str] = ..., version_id: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class GetBatchingRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Batching(_message.Message):
    __slots__ = ("offer", "sessions", "batches", "carriers", "worker", "worker_sessions")
    OFFER_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    CARRIERS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    WORKER_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    offer: BatchingOffer
    sessions: _containers.RepeatedCompositeFieldContainer[BatchingSession]
    batches: BatchesByCause
    carriers: _containers.RepeatedCompositeFieldContainer[BatchingCarrier]
    worker: int
    worker_sessions: int
    def __init__(self, offer: _Optional[_Union[BatchingOffer, _Mapping]] = ..., sessions: _Optional[_Iterable[_Union[BatchingSession, _Mapping]]] = ..., batches: _Optional[_Union[BatchesByCause, _Mapping]] = ..., carriers: _Optional[_Iterable[_Union[BatchingCarrier, _Mapping]]] = ..., worker: _Optional[int] = ..., worker_sessions: _Optional[int] = ...) -> None: ...

class BatchingOffer(_message.Message):
    __slots__ = ("max_delay_ms", "min_size", "min_size_limit")
    MAX_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIN_SIZE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    max_delay_ms: int
    min_size: int
    min_size_limit: int
    def __init__(self, max_delay_ms: _Optional[int] = ..., min_size: _Optional[int] = ..., min_size_limit: _Optional[int] = ...) -> None: ...

class BatchingSession(_message.Message):
    __slots__ = ("connection", "carrier", "offer", "negotiated", "requests", "since")
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    CARRIER_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    NEGOTIATED_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    connection: int
    carrier: str
    offer: BatchingValues
    negotiated: BatchingValues
    requests: int
    since: str
    def __init__(self, connection: _Optional[int] = ..., carrier: _Optional[str] = ..., offer: _Optional[_Union[BatchingValues, _Mapping]] = ..., negotiated: _Optional[_Union[BatchingValues, _Mapping]] = ..., requests: _Optional[int] = ..., since: _Optional[str] = ...) -> None: ...

class BatchingValues(_message.Message):
    __slots__ = ("max_delay_ms", "min_size")
    MAX_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    max_delay_ms: int
    min_size: int
    def __init__(self, max_delay_ms: _Optional[int] = ..., min_size: _Optional[int] = ...) -> None: ...

class BatchesByCause(_message.Message):
    __slots__ = ("size", "delay", "deadline", "drain", "idle", "full")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    size: int
    delay: int
    deadline: int
    drain: int
    idle: int
    full: int
    def __init__(self, size: _Optional[int] = ..., delay: _Optional[int] = ..., deadline: _Optional[int] = ..., drain: _Optional[int] = ..., idle: _Optional[int] = ..., full: _Optional[int] = ...) -> None: ...

class BatchingCarrier(_message.Message):
    __slots__ = ("carrier", "open", "begun", "requests", "refused")
    CARRIER_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    carrier: str
    open: int
    begun: int
    requests: int
    refused: int
    def __init__(self, carrier: _Optional[str] = ..., open: _Optional[int] = ..., begun: _Optional[int] = ..., requests: _Optional[int] = ..., refused: _Optional[int] = ...) -> None: ...

class GetHealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Health(_message.Message):
    __slots__ = ("phase", "ready")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    phase: str
    ready: bool
    def __init__(self, phase: _Optional[str] = ..., ready: _Optional[bool] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "field", "rule", "allowed")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    field: str
    rule: str
    allowed: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., field: _Optional[str] = ..., rule: _Optional[str] = ..., allowed: _Optional[str] = ...) -> None: ...
