"""A model file of any format becomes a session of ONNX Runtime."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp2026.api.errors import SettingsError
from mcp2026.runtime.errors import ModelLoadError
from mcp2026.runtime.model.file_state import state_of
from mcp2026.runtime.model.ir.reading import IrFile, is_ir_file, open_ir_file
from mcp2026.runtime.model.onnx_file import check_digest, check_onnx_file, file_of
from mcp2026.runtime.model.onnx_wire import Values, WireError, mapped, read_values
from mcp2026.runtime.model.providers import CPU, choose_providers
from mcp2026.runtime.settings import ProviderChoice

_EXPORT_AGAIN = "Export the model again, or use an opset that this ONNX Runtime supports"


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A session, and what the graph says that the session does not."""

    session: Any
    """`onnxruntime.InferenceSession`."""
    values: Values


def open_model(path: str, sha256: str | None, threads: int, provider: ProviderChoice) -> OpenModel:
    """Open the model at `path`: an ONNX file, a file in our own format, or a folder that holds one of them.

    With `sha256` the file is read as a whole and compared before, and has to be the same file afterwards.

    Raises:
        ModelLoadError: it cannot be served.
        SettingsError: the provider is not there.

    """
    file = file_of(path)
    ir = open_ir_file(file) if is_ir_file(file) else None
    if ir is None:
        check_onnx_file(file)
    before = state_of(Path(file))
    if sha256 is not None:
        check_digest(file, sha256)
    if ir is None:
        opened = OpenModel(_session(file, file, threads, provider, None), _values_of_file(file))
        if sha256 is not None and state_of(Path(file)) != before:  # it was opened by name, once for each step
            raise ModelLoadError(
                file, "it was changed or replaced while it was loaded", "Let it be whole before it is served"
            )
        return opened
    session = _session(path, ir.graph, threads, provider, ir)
    ir.check_unchanged()  # the session opened the weights by name
    return OpenModel(session, _values(path, memoryview(ir.graph)))


def first_line(error: Exception) -> str:
    """Return what ONNX Runtime says, without the frames that follow."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:500]


def _session(path: str, model: str | bytes, threads: int, provider: ProviderChoice, ir: IrFile | None) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Spinning threads would burn the cgroup's quota while nothing runs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    providers = choose_providers(provider, onnxruntime.get_available_providers())
    if ir is not None:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(ir.path.parent)
        )
        if ir.manifest.weights == "shared" and providers[0] == CPU:
            # Both would copy the weights into a form of the kernels, for each process. Another device has
            # its own copy in any case, and is given the fastest form.
            options.add_session_config_entry("session.disable_prepacking", "1")
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    try:
        session = onnxruntime.InferenceSession(model, options, providers=providers)
    except Exception as error:  # ONNX Runtime's exception classes share no base but this
        raise ModelLoadError(path, first_line(error), _EXPORT_AGAIN) from error
    if provider not in ("auto", "cpu") and session.get_providers()[0] != providers[0]:
        raise SettingsError("--provider", f"{provider} could not be initialised", "auto, cpu")
    return session


def values_of(path: str) -> Values:
    """Return what the model at `path` takes and gives, read from its graph; no weights are touched.

    Raises:
        ModelLoadError: it cannot be served.

    """
    file = file_of(path)
    if is_ir_file(file):
        return _values(path, memoryview(open_ir_file(file).graph))
    check_onnx_file(file)
    return _values_of_file(file)


def _values_of_file(file: str) -> Values:
    try:
        return _values(file, mapped(file))
    except OSError as error:
        raise ModelLoadError(file, str(error.strerror), "Make the file readable for this user") from error


def _values(path: str, model: memoryview) -> Values:
    try:
        return read_values(model)
    except WireError as error:
        raise ModelLoadError(path, f"it is not an ONNX model ({error})", _EXPORT_AGAIN) from error
