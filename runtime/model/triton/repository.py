"""A folder of models as Triton lays it out: `<name>/config.pbtxt`, `<name>/<version>/model.onnx`.

Contract: https://github.com/triton-inference-server/server/blob/main/docs/user_guide/model_repository.md
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec

from mcp2026.api.errors import InvalidResourceError
from mcp2026.api.serving import ServedVersion, ServingConfig, check_name
from mcp2026.runtime.errors import ModelLoadError
from mcp2026.runtime.model.onnx_file import file_of
from mcp2026.runtime.model.sessions import values_of
from mcp2026.runtime.model.triton.acceptance import refusals_of
from mcp2026.runtime.model.triton.config_text import CONFIG_FILE, read_config
from mcp2026.runtime.model.triton.model_config_pb2 import ModelConfig, ModelInstanceGroup
from mcp2026.runtime.model.triton.refusal import Refusal, RepositoryError
from mcp2026.runtime.model.triton.scheduling import scheduling_of
from mcp2026.runtime.model.triton.tensors import completed, misfits
from mcp2026.runtime.model.triton.versions import choose_versions
from mcp2026.runtime.model.triton.warm_up import WARM_UP_FOLDER, sample_misfits, warm_up_samples

log = logging.getLogger(__name__)

_LAYOUT = "A repository has a folder <name>/<version>/model.onnx for each model"
_READABLE = "Make it readable for this user"
_MAX_VERSION_DIGITS = 18
"""A version fits into 64 bits."""


@dataclass(frozen=True, slots=True)
class RepositoryEntry:
    """A model in a repository, served or not."""

    name: str
    versions: tuple[int, ...]
    """All that have a folder, growing; not only those that its policy serves."""


def scan_repository(path: Path) -> tuple[RepositoryEntry, ...]:
    """Return the models in a repository by name; nothing is loaded, and no configuration is read.

    What begins with a dot is passed over: Kubernetes mounts files through such a folder. So is a folder with
    neither a configuration nor a version, such as a file system's `lost+found`.

    Raises:
        ModelLoadError: the folder cannot be read.

    """
    entries = []
    for folder in _folders(path):
        try:
            entry = RepositoryEntry(folder.name, _versions_in(folder))
            is_model = bool(entry.versions) or (folder / CONFIG_FILE).exists()
        except (ModelLoadError, OSError):
            log.warning("repository %s: folder %s cannot be read and is no model", path, folder.name)
            continue
        if is_model:
            entries.append(entry)
        else:
            log.warning("repository %s: folder %s holds no version and no %s", path, folder.name, CONFIG_FILE)
    return tuple(entries)


def model_folders(path: Path, known: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of the folders that `scan_repository` takes for models; the log is told nothing.

    One that cannot be read is a model still, if it is among the `known` ones.

    Raises:
        ModelLoadError: the folder cannot be read.

    """
    return tuple(folder.name for folder in _folders(path) if _is_model(folder, folder.name in known))


def _is_model(folder: Path, known: bool) -> bool:
    try:
        return (folder / CONFIG_FILE).exists() or any(_is_version(entry.name) for entry in _folders(folder))
    except (ModelLoadError, OSError):
        return known


def read_model(path: Path, name: str) -> ServingConfig:
    """Return what a model of the repository asks for, checked against its files; weights are not read.

    Raises:
        RepositoryError: its configuration asks for what is not supported, or contradicts the model.
        ModelLoadError: a file is missing, unreadable or broken.

    """
    folder = path / name
    if not _plain(name) or not folder.is_dir():
        raise ModelLoadError(str(folder), "the repository has no such model", _LAYOUT)
    try:
        check_name("its folder", name)
    except InvalidResourceError as error:
        raise ModelLoadError(str(folder), str(error), "Rename the folder") from error
    config_path = folder / CONFIG_FILE
    config = read_config(config_path) or ModelConfig()
    if config.name not in ("", name):
        allowed = f"{name}, the folder's name, or nothing"
        raise RepositoryError(str(config_path), [Refusal("name", f"is {config.name!r}", allowed)])
    config.name = name
    if refused := refusals_of(config, gpu=_gpu_is_there(config)):
        raise RepositoryError(str(config_path), refused)
    found = _versions_in(folder)
    if not found:
        raise ModelLoadError(str(folder), "it holds no version", _LAYOUT)
    chosen = choose_versions(config, found)
    if isinstance(chosen, Refusal):
        raise RepositoryError(str(config_path), [chosen])
    files = {version: _model_file(folder / str(version), config) for version in chosen}
    newest = max(chosen)
    config = completed(config, values_of(files[newest]))
    for version, file in files.items():
        values = values_of(file)
        if wrong := misfits(config, values) + sample_misfits(config, values, folder):
            raise RepositoryError(f"{config_path} (version {version})", wrong)
    scheduling = scheduling_of(config)
    return ServingConfig(
        model=name,
        versions=tuple(
            ServedVersion(version_id=str(version), path=file, weight=100 if version == newest else 0)
            for version, file in files.items()
        ),
        batching=scheduling.batching,
        queue=scheduling.queue,
        priorities=scheduling.priorities,
        execution=msgspec.structs.replace(
            scheduling.execution, warm_up=warm_up_samples(config, folder) or msgspec.UNSET
        ),
    )


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if _plain(entry.name) and entry.is_dir())
    except FileNotFoundError as error:
        raise ModelLoadError(str(path), "no such folder", _LAYOUT) from error
    except NotADirectoryError as error:
        raise ModelLoadError(str(path), "it is no folder", _LAYOUT) from error
    except OSError as error:
        raise ModelLoadError(str(path), str(error.strerror), _READABLE) from error
    except ValueError as error:
        raise ModelLoadError(str(path), "no folder can have this name", _LAYOUT) from error


def _versions_in(folder: Path) -> tuple[int, ...]:
    versions = []
    for entry in _folders(folder):
        name = entry.name
        if _is_version(name):
            versions.append(int(name))
        elif name != WARM_UP_FOLDER:
            log.warning("model %s: folder %s is no version: allowed: 1, 2, …", folder.name, name)
    return tuple(sorted(versions))


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdigit() and name[0] != "0" and len(name) <= _MAX_VERSION_DIGITS


def _plain(name: str) -> bool:
    return bool(name) and not name.startswith(".") and "/" not in name and "\0" not in name and _is_text(name)


def _is_text(name: str) -> bool:
    """Return whether a name can stand in a message: names of files may be any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _model_file(version: Path, config: ModelConfig) -> str:
    """Return the file of one version: the one that is named, or ours, or the ONNX file or folder."""
    wanted = config.default_model_filename
    file = version / wanted if wanted else Path(file_of_version(version))
    if not file.exists():
        there = ", ".join(sorted(entry.name for entry in version.iterdir())[:10]) or "nothing"
        raise ModelLoadError(str(file), f"no such file; {version} holds {there}", _LAYOUT)
    return file_of(str(file))


def file_of_version(version: Path) -> str:
    """Return the model in a version's folder; `model.onnx` may be a folder with external data in it."""
    if not (version / "model.mcpir").is_file() and (version / "model.onnx").is_dir():
        return str(version / "model.onnx")
    return file_of(str(version))


def _gpu_is_there(config: ModelConfig) -> bool:
    """Ask ONNX Runtime, but only for a model that needs the answer."""
    if not any(group.kind == ModelInstanceGroup.KIND_GPU for group in config.instance_group):
        return False
    import onnxruntime

    return bool(
        {"CUDAExecutionProvider", "TensorrtExecutionProvider"} & {*onnxruntime.get_available_providers()}
    )
