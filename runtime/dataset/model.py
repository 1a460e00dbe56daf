"""The model of a run: loaded as the server loads it, and one digest of all that it is made of."""

import hashlib
from array import array
from collections.abc import Callable
from pathlib import Path

from mcp2026.api.serving import ServedVersion, ServingConfig
from mcp2026.runtime.dataset.errors import ModelRefusedError
from mcp2026.runtime.dataset.stopping import Stop
from mcp2026.runtime.dataset.stores.fetching import sha256_of
from mcp2026.runtime.errors import ModelLoadError
from mcp2026.runtime.metrics.exemplars import VERSION_COLUMNS
from mcp2026.runtime.metrics.runtime_metrics import VersionMetrics
from mcp2026.runtime.model.ir.reading import is_ir_file
from mcp2026.runtime.model.loaded import LoadedVersion
from mcp2026.runtime.model.loading import load_version
from mcp2026.runtime.model.onnx_file import check_onnx_file, file_of
from mcp2026.runtime.model.onnx_wire import Tensor, WireError, exchange_tensors, mapped, no_data
from mcp2026.runtime.settings import ProviderChoice

_WRONG = "Give a model that mcp2026-server can serve"


def load(
    config: ServingConfig, served: ServedVersion, threads: int, provider: ProviderChoice
) -> LoadedVersion:
    """Load a version, check its signature, and probe it.

    Raises:
        ModelRefusedError: it cannot be loaded.
        SettingsError: the provider is not there.

    """
    metrics = VersionMetrics(memoryview(array("d", bytes(8 * VERSION_COLUMNS))))
    try:
        return load_version(config, served, threads, provider, metrics)
    except ModelLoadError as error:
        raise ModelRefusedError("model", str(error), _WRONG) from error


def model_sha256(path: str, stop: Stop) -> str:
    """Return a digest of a model: that of its file, or of its file and all files with external data.

    Raises:
        ModelRefusedError: one of them cannot be read.
        StoppedError: the run was told to stop.

    """
    try:
        file = Path(file_of(path))
        if is_ir_file(str(file)):
            return sha256_of(file, stop)
        check_onnx_file(str(file))
        outside = _external_files(file)
        own = sha256_of(file, stop)
        if not outside:
            return own
        digests = [own, *(f"{name} {sha256_of(file.parent / name, stop)}" for name in outside)]
    except ModelLoadError as error:
        raise ModelRefusedError("model", str(error), _WRONG) from error
    except (OSError, WireError) as error:
        raise ModelRefusedError("model", f"{path}: {error}", "Make all of its files readable") from error
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _external_files(model: Path) -> list[str]:
    """Return the names, relative to the model's folder, of the files that it refers to."""
    names: set[str] = set()
    exchange_tensors(mapped(str(model)), _noting(names))
    return sorted(names)


def _noting(names: set[str]) -> Callable[[Tensor], bytes | None]:
    def note(tensor: Tensor) -> bytes | None:
        if tensor.external is not None and (location := tensor.external.get("location")):
            names.add(location)
        return None if tensor.raw is None else no_data()  # so that no weights are copied

    return note
