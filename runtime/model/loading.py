"""A file becomes a version that can be run: session, signature, probe.

What is served already from an unchanged file is not loaded again: a change of weights keeps the version with
all that it has learned, a change of limits keeps its session.
"""

from collections.abc import Mapping
from types import MappingProxyType

from mcp2026.api.serving import ServedVersion, ServingConfig, same_scheduling
from mcp2026.runtime.errors import ModelLoadError, RequestError
from mcp2026.runtime.metrics.runtime_metrics import VersionMetrics
from mcp2026.runtime.model.compatibility import differences
from mcp2026.runtime.model.file_state import files_of_model
from mcp2026.runtime.model.loaded import CountersOf, LoadedVersion, ServedModel, served_model
from mcp2026.runtime.model.probe import probe
from mcp2026.runtime.model.sessions import open_model
from mcp2026.runtime.model.signature import spec_of
from mcp2026.runtime.model.warm_up import needs_warm_up, warm_up
from mcp2026.runtime.settings import WARM_UP_SECONDS, ProviderChoice

_NOTHING: Mapping[str, LoadedVersion] = MappingProxyType({})


def load_model(
    config: ServingConfig,
    threads: int,
    provider: ProviderChoice,
    counters_of: CountersOf,
    live: Mapping[str, LoadedVersion] = _NOTHING,
    *,
    may_differ: bool = False,
    warm_up_seconds: float = WARM_UP_SECONDS,
) -> ServedModel:
    """Load and warm every version of `config` that is not among `live`, what is served now, by version id.

    The warm-up beyond the probe takes `warm_up_seconds` for each version; 0: there is none.

    New versions must fit those that are live, unless they `may_differ` or the configuration allows it.

    Raises:
        ModelLoadError: one of them cannot be served.
        SettingsError: the provider is not there.

    """
    versions = []
    for served in config.versions:
        before = live.get(served.version_id)
        version = _again(before, config, served)
        cold = version is None or (before is not None and needs_warm_up(before.config, config))
        if version is None:
            counters = counters_of(config.model, served.version_id)
            version = load_version(config, served, threads, provider, counters)
            if live and not (may_differ or config.allow_incompatible):
                _check_compatible(_reference(live, config), version, served.path)
        if cold and version is not before and warm_up_seconds > 0:
            warm_up(version, served.path, warm_up_seconds)
        versions.append(version)
    return served_model(config, versions, counters_of)


def _reference(live: Mapping[str, LoadedVersion], config: ServingConfig) -> LoadedVersion:
    """Return the live version that callers know: of those that stay the one with the most weight."""
    staying = [one for one in config.versions if one.version_id in live]
    known = max(staying, key=lambda one: one.weight, default=None)
    return next(iter(live.values())) if known is None else live[known.version_id]


def _check_compatible(served: LoadedVersion, new: LoadedVersion, path: str) -> None:
    """Raise ModelLoadError if callers of `served` would be surprised by `new`."""
    if told := differences(served.signature, new.signature):
        raise ModelLoadError(
            path,
            f"it does not fit version {served.version_id!r}, which is served: {'; '.join(told)}",
            "Serve it as a model of its own, or set allowIncompatible if all callers are ready for it",
        )


def _again(live: LoadedVersion | None, config: ServingConfig, served: ServedVersion) -> LoadedVersion | None:
    """Return `live` for `config`: itself if its requests meet nothing new, else with the same session.

    None: it is not the same model, or would have to be looked at anew.
    """
    if live is None or live.files is None or live.sha256 != served.sha256:
        return None
    if files_of_model(served.path, with_folder=live.with_folder) != live.files:
        return None
    if (live.config.execution.max_rows == 0) != (config.execution.max_rows == 0):
        return None  # a probe says whether requests can share a run
    if same_scheduling(live.config, config):
        return live
    return LoadedVersion(
        config,
        served,
        live.session,
        live.signature,
        live.metrics,
        files=live.files,
        with_folder=live.with_folder,
    )


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
    alone, together = (files_of_model(served.path, with_folder=folder) for folder in (False, True))
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
    outside = model.values.outside
    files = together if outside else alone
    return LoadedVersion(config, served, model.session, signature, metrics, files=files, with_folder=outside)
