"""A file becomes a version that can be run: check, session, signature, probe."""

import logging
from typing import Any

import numpy as np

from mcp2026.api.errors import SettingsError
from mcp2026.api.serving import Batching, ServedVersion, ServingConfig
from mcp2026.runtime.errors import ModelLoadError, RequestError
from mcp2026.runtime.execution.tensor_cache import Array
from mcp2026.runtime.model.loaded import LoadedVersion, ServedModel, served_model
from mcp2026.runtime.model.onnx_file import check_digest, check_onnx_file
from mcp2026.runtime.model.providers import choose_providers
from mcp2026.runtime.model.signature import Signature, TensorSpec, outputs_can_be_bound, spec_of
from mcp2026.runtime.settings import ProviderChoice

log = logging.getLogger(__name__)

_EXPORT_AGAIN = "Export the model again, or use an opset that this ONNX Runtime supports"


def load_model(config: ServingConfig, threads: int, provider: ProviderChoice) -> ServedModel:
    """Load and warm every version of `config`.

    Raises:
        ModelLoadError: one of them cannot be served.
        SettingsError: the provider is not there.

    """
    versions = [load_version(version, config.batching, threads, provider) for version in config.versions]
    return served_model(config, versions)


def load_version(
    served: ServedVersion, batching: Batching, threads: int, provider: ProviderChoice
) -> LoadedVersion:
    """Load one version and run it once.

    Raises:
        ModelLoadError: it cannot be served.
        SettingsError: the provider is not there.

    """
    check_onnx_file(served.path)
    if served.sha256 is not None:
        check_digest(served.path, served.sha256)
    session = _open_session(served.path, threads, provider)
    try:
        inputs = tuple(spec_of(argument) for argument in session.get_inputs())
        outputs = tuple(spec_of(argument) for argument in session.get_outputs())
    except RequestError as error:
        raise ModelLoadError(
            served.path, error.message, f"Tensors of these types are served: {error.allowed}"
        ) from error
    return LoadedVersion(served, session, _probe(session, inputs, outputs, served), batching)


def _open_session(path: str, threads: int, provider: ProviderChoice) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Spinning threads would burn the cgroup's quota while nothing runs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    providers = choose_providers(provider, onnxruntime.get_available_providers())
    try:
        session = onnxruntime.InferenceSession(path, options, providers=providers)
    except Exception as error:  # ONNX Runtime's exception classes share no base but this
        raise ModelLoadError(path, _first_line(error), _EXPORT_AGAIN) from error
    if provider not in ("auto", "cpu") and session.get_providers()[0] != providers[0]:
        raise SettingsError("--provider", f"{provider} could not be initialised", "auto, cpu")
    return session


def _probe(
    session: Any, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], served: ServedVersion
) -> Signature:
    """Warm the session, and find out how it may be run: together for several requests, into memory of ours.

    A dynamic first dimension alone does not say so: it may be time, or the model may mix its rows. So two
    rows are run together and each alone; only if that makes no difference are requests batched.
    """
    declared = bool(inputs) and all(spec.dims and spec.dims[0] is None for spec in (*inputs, *outputs))
    random = np.random.default_rng(0)
    try:
        if not declared:
            answer = session.run(None, {spec.name: _sample(spec, 1, random) for spec in inputs})
            seen = [array.shape for array in answer]
            ahead = outputs_can_be_bound(inputs, outputs, seen, shared=False)
            return Signature(inputs, outputs, shared=False, ahead=ahead)
        together = {spec.name: _sample(spec, 2, random) for spec in inputs}
        both = session.run(None, together)
        alone = [
            session.run(None, {name: array[row : row + 1] for name, array in together.items()})
            for row in range(2)
        ]
    except Exception as error:  # a model may dislike the sample: it is served, but not batched on a guess
        log.warning(
            "version %s: no warm-up, requests run one at a time: %s", served.version_id, _first_line(error)
        )
        return Signature(inputs, outputs, shared=False, ahead=False)
    independent = all(
        whole.shape[:1] == (2,) and _same(whole, np.concatenate(parts))
        for whole, *parts in zip(both, *alone, strict=True)
    )
    if not independent:
        log.warning("version %s: rows influence each other, requests run one at a time", served.version_id)
        return Signature(inputs, outputs, shared=False, ahead=False)
    ahead = outputs_can_be_bound(inputs, outputs, [array.shape for array in both], shared=True)
    return Signature(inputs, outputs, shared=True, ahead=ahead)


def _sample(spec: TensorSpec, rows: int, random: np.random.Generator) -> Array:
    shape = [1 if dim is None else dim for dim in spec.dims]
    if spec.dims and spec.dims[0] is None:
        shape[0] = rows
    if spec.dtype.kind == "f":
        return random.standard_normal(shape).astype(spec.dtype)
    return random.integers(0, 2, shape).astype(spec.dtype)


def _same(left: Array, right: Array) -> bool:
    if left.shape != right.shape:
        return False
    if left.dtype.kind != "f":
        return bool(np.array_equal(left, right))
    tolerance = 2e-2 if left.dtype == np.float16 else 1e-3
    scale = float(np.nanmax(np.abs(np.where(np.isfinite(right), right, 0)), initial=0.0)) or 1.0
    return bool(np.allclose(left, right, rtol=tolerance, atol=tolerance * scale, equal_nan=True))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:500]
