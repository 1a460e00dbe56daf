"""Where the models that a server serves come from: settings, or a repository of model folders."""

from pathlib import Path

from mcp2026.api.serving import ServingConfig
from mcp2026.runtime.errors import ErrorCode, ModelLoadError, RequestError
from mcp2026.runtime.settings import Settings
from mcp2026.runtime.settings_reading import check_batching, with_batching


def initial_models(settings: Settings) -> tuple[ServingConfig, ...]:
    """Return what is served from the start.

    Raises:
        ModelLoadError: a model of the repository cannot be served.
        SettingsError: a model's batching is out of the settings' range.

    """
    if settings.model_repository is None:
        return settings.models
    if settings.model_control == "poll":
        return ()  # what watches the repository loads what can be served, before the server is ready
    wanted = settings.load_model
    if settings.model_control == "none":
        wanted = repository_names(settings)
        if not wanted:
            raise ModelLoadError(
                settings.model_repository,
                "the repository has no model in it",
                "A model is a folder <name>/<version>/model.onnx; --model-control explicit starts without",
            )
    return tuple(repository_model(settings, name) for name in wanted)


def check_control(settings: Settings) -> None:
    """Raise unless clients may load and unload.

    Raises:
        RequestError: they may not.

    """
    if settings.model_control != "explicit":
        raise RequestError(
            ErrorCode.INVALID_ARGUMENT,
            "explicit model load / unload is not allowed",
            "model",
            "a server with --model-control explicit",
        )


def model_to_load(settings: Settings, name: str) -> ServingConfig:
    """Return the configuration of a model that a client wants to be loaded, as it is now.

    Raises:
        RequestError: there is no repository to load from, or this model cannot be loaded.

    """
    if settings.model_repository is None:
        raise RequestError(
            ErrorCode.INVALID_ARGUMENT,
            "there is no repository to load from",
            "model",
            "a server with --model-repository and --model-control explicit",
        )
    if name not in repository_names(settings):
        raise RequestError(
            ErrorCode.NOT_FOUND,
            f"the repository has no model {name[:64]!r}",
            "model",
            ", ".join(repository_names(settings))[:1_000] or "the repository is empty",
        )
    try:
        return repository_model(settings, name)
    except ModelLoadError as error:
        raise RequestError(ErrorCode.INVALID_ARGUMENT, str(error), "model") from error


def repository_names(settings: Settings) -> tuple[str, ...]:
    """Return the names of all models in the repository, served or not.

    Raises:
        ModelLoadError: the repository cannot be read.

    """
    from mcp2026.runtime.model.triton.repository import scan_repository

    if settings.model_repository is None:
        return ()
    return tuple(entry.name for entry in scan_repository(Path(settings.model_repository)))


def repository_model(settings: Settings, name: str) -> ServingConfig:
    """Return what a model of the repository asks for now, with what the flags say.

    Raises:
        ModelLoadError: it cannot be served.
        SettingsError: its batching is out of the settings' range.

    """
    # Imported here: a server without a repository needs no protobuf.
    from mcp2026.runtime.model.triton.repository import read_model

    assert settings.model_repository is not None
    config = read_model(Path(settings.model_repository), name)
    config = with_batching(config, dict(settings.batching))
    check_batching(settings, config)
    return config
