"""A file becomes a version that can be run: session, signature, probe."""

from mcp2026.api.serving import ServedVersion, ServingConfig
from mcp2026.runtime.errors import ModelLoadError, RequestError
from mcp2026.runtime.metrics.runtime_metrics import VersionMetrics
from mcp2026.runtime.model.loaded import CountersOf, LoadedVersion, ServedModel, served_model
from mcp2026.runtime.model.probe import probe
from mcp2026.runtime.model.sessions import open_model
from mcp2026.runtime.model.signature import spec_of
from mcp2026.runtime.settings import ProviderChoice


def load_model(
    config: ServingConfig, threads: int, provider: ProviderChoice, counters_of: CountersOf
) -> ServedModel:
    """Load and warm every version of `config`.

    Raises:
        ModelLoadError: one of them cannot be served.
        SettingsError: the provider is not there.

    """
    versions = [
        load_version(config, served, threads, provider, counters_of(config.model, served.version_id))
        for served in config.versions
    ]
    return served_model(config, versions, counters_of)


def load_version(
    config: ServingConfig,
    served: ServedVersion,
    threads: int,
    provider: ProviderChoice,
    metrics: VersionMetrics,
) -> LoadedVersion:
    """Load one version and run it once.

    Raises:
        ModelLoadError: it cannot be served.
        SettingsError: the provider is not there.

    """
    model = open_model(served.path, served.sha256, threads, provider)
    unranked = {value.name for value in (*model.values.inputs, *model.values.outputs) if value.shape is None}
    try:
        inputs, outputs = (
            tuple(spec_of(argument, ranked=argument.name not in unranked) for argument in arguments)
            for arguments in (model.session.get_inputs(), model.session.get_outputs())
        )
    except RequestError as error:
        raise ModelLoadError(
            served.path, error.message, f"Tensors of these types are served: {error.allowed}"
        ) from error
    types = {spec.datatype for spec in (*inputs, *outputs)}
    if {"BF16", "BYTES"} <= types:
        problem = "it has tensors of text and of bfloat16, which ONNX Runtime cannot run together"
        raise ModelLoadError(served.path, problem, "Let it take or give float16 or float32 beside the text")
    may_share = config.execution.max_rows != 0
    signature = probe(model.session, inputs, outputs, served.version_id, may_share=may_share)
    return LoadedVersion(config, served, model.session, signature, metrics)
