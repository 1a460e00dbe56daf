"""From the command line and the environment to the settings of one server."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from mcp2026.api.errors import InvalidResourceError, SettingsError
from mcp2026.api.options import ENVIRONMENT_PREFIX, Option
from mcp2026.api.serving import Batching, ServingConfig, check_range, decode_serving_config, single_version
from mcp2026.api.settings import SettingsParser
from mcp2026.runtime.server_options import BATCHING_OPTIONS, GROUPS, OPTIONS, SOURCE_OPTIONS
from mcp2026.runtime.settings import OTLP_VARIABLE, Settings


def _parser() -> SettingsParser:
    parser = SettingsParser(
        prog="mcp2026-server",
        description="Serve ONNX models over HTTP and gRPC with dynamic batching.",
        epilog="Each flag can also be set by the environment: MCP2026_WORKERS=4 is --workers 4.",
        allow_abbrev=False,
    )
    for title, options in GROUPS:
        group = parser.add_argument_group(title)
        for option in options:
            if option.is_switch:
                group.add_argument(option.flag, action=argparse.BooleanOptionalAction, help=option.help)
            else:
                group.add_argument(option.flag, metavar=option.metavar, help=option.described)
    return parser


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings that `arguments` and `environment` ask for.

    Raises:
        SettingsError: a value is not accepted, or the serving configuration cannot be read.

    """
    flags = vars(_parser().parse_args(arguments))
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for option in OPTIONS:
        given = flags[option.name]
        sources[option.name] = option.flag
        if isinstance(given, bool):
            values[option.name] = given
        elif given is not None:
            values[option.name] = option.read(given, option.flag)
        elif option not in SOURCE_OPTIONS and (text := _from_environment(option, environment)):
            values[option.name] = option.read(text, option.variable)
            sources[option.name] = option.variable
    if "otlp_endpoint" not in values and (endpoint := environment.get(OTLP_VARIABLE)):
        values["otlp_endpoint"] = endpoint
        sources["otlp_endpoint"] = OTLP_VARIABLE
    _take_source_from_environment(values, sources, environment)
    _exactly_one_source(values)
    batching = {o.name: values.pop(o.name) for o in BATCHING_OPTIONS if o.name in values}
    models = _models(values.pop("model_path", None), values.get("serving_config"), batching)
    settings = Settings(models=models, batching=tuple(sorted(batching.items())), **values)
    for model in models:
        check_batching(settings, model, sources)
    _check_together(settings, sources)
    return settings


def _from_environment(option: Option, environment: Mapping[str, str]) -> str | None:
    """Return the variable's text. What Kubernetes puts there for a Service of a like name is not ours.

    A Service `mcp2026-metrics` in the namespace gives every pod MCP2026_METRICS_PORT=tcp://10.0.0.1:80.
    """
    text = environment.get(option.variable)
    return None if text and text.startswith(("tcp://", "udp://", "sctp://")) else text


def _take_source_from_environment(
    values: dict[str, Any], sources: dict[str, str], environment: Mapping[str, str]
) -> None:
    """Read what to serve from the environment, unless a flag already says it."""
    if any(option.name in values for option in SOURCE_OPTIONS):
        return
    for option in SOURCE_OPTIONS:
        if text := environment.get(option.variable):
            values[option.name] = text
            sources[option.name] = option.variable


def _exactly_one_source(values: Mapping[str, Any]) -> None:
    given = [option.flag for option in SOURCE_OPTIONS if option.name in values]
    if len(given) != 1:
        problem = f"{' and '.join(given)} are given" if given else "none is given"
        raise SettingsError(
            ", ".join(option.flag for option in SOURCE_OPTIONS), problem, "exactly one of them"
        )


def _models(
    model_path: str | None, config_path: str | None, overrides: Mapping[str, Any]
) -> tuple[ServingConfig, ...]:
    if model_path is not None:
        try:
            return (single_version(model_path, Batching(**overrides)),)
        except InvalidResourceError as error:
            raise SettingsError("--model-path", error.problem, f"a file named {error.allowed}") from error
    if config_path is None:
        return ()
    try:
        config = decode_serving_config(Path(config_path).read_bytes())
    except OSError as error:
        raise SettingsError(
            "--serving-config", f"cannot read {config_path}: {error.strerror}", "a readable file"
        ) from error
    except InvalidResourceError as error:
        raise SettingsError(f"{config_path}: {error.field}", error.problem, error.allowed) from error
    return (with_batching(config, overrides),)


def with_batching(config: ServingConfig, overrides: Mapping[str, Any]) -> ServingConfig:
    """Return `config` with the batching that flags ask for."""
    return msgspec.structs.replace(config, batching=msgspec.structs.replace(config.batching, **overrides))


def check_batching(
    settings: Settings, model: ServingConfig, sources: Mapping[str, str] | None = None
) -> None:
    """Check a model's batching against itself and the settings.

    Raises:
        SettingsError: names the flag or variable that the value came from.

    """
    batching = model.batching
    sources = sources or {option.name: option.flag for option in OPTIONS}
    try:
        check_range(sources["min_batch_size"], batching.min_batch_size, (1, batching.max_batch_size))
        check_range(sources["queue_size"], settings.queue_size, (batching.max_batch_size, 1_000_000))
    except InvalidResourceError as error:
        raise SettingsError(error.field, error.problem, f"{error.allowed} (max batch size)") from error


def _check_together(settings: Settings, sources: Mapping[str, str]) -> None:
    """Check values against each other."""
    _check_context(settings, sources)
    _check_cluster(settings, sources)
    if settings.request_timeout <= 0:
        raise SettingsError(sources["request_timeout"], "0 would refuse all", "more than 0, up to 3600")
    if settings.metrics_port and settings.metrics_port == settings.port:
        raise SettingsError(sources["metrics_port"], "is the REST port", "another port than --port")
    if settings.grpc and settings.chosen_grpc_port:
        if settings.chosen_grpc_port > 65_535:
            raise SettingsError(sources["grpc_port"], "would be 65536", "a free port up to 65535")
        if settings.chosen_grpc_port in (settings.port, settings.metrics_port):
            raise SettingsError(
                sources["grpc_port"], f"{settings.chosen_grpc_port} has another use", "a port of its own"
            )
    if settings.unix_socket and settings.unix_socket == settings.grpc_unix_socket:
        raise SettingsError(sources["grpc_unix_socket"], "is the HTTP socket", "another path")
    if settings.model_repository is None and settings.load_model:
        raise SettingsError(sources["load_model"], "needs a repository", "--model-repository with it")
    if settings.model_repository is not None and "max_batch_size" in dict(settings.batching):
        raise SettingsError(
            sources["max_batch_size"],
            "does not apply to a repository",
            "max_batch_size in config.pbtxt of each model",
        )
    if settings.model_repository is None and settings.model_control == "poll":
        raise SettingsError(sources["model_control"], "poll needs a repository", "--model-repository with it")
    if settings.load_model and settings.model_control != "explicit":
        raise SettingsError(sources["load_model"], "needs explicit control", "--model-control explicit")


def _check_cluster(settings: Settings, sources: Mapping[str, str]) -> None:
    if settings.serving_config_map is None:
        return
    if settings.serving_config is None:
        raise SettingsError(
            sources["serving_config_map"], "needs what is served from the start", "--serving-config with it"
        )
    for name in ("pod_name", "pod_namespace", "pod_uid"):
        if not getattr(settings, name):
            raise SettingsError(
                sources["serving_config_map"],
                "needs the pod that it is for",
                f"{sources[name]}, or {ENVIRONMENT_PREFIX}{name.upper()} from the downward API",
            )


def _check_context(settings: Settings, sources: Mapping[str, str]) -> None:
    if settings.sla_keys is not None and settings.pod_uid is None:
        raise SettingsError(
            sources["sla_keys"], "needs the pod that tokens must be for", "--pod-uid, or MCP2026_POD_UID"
        )
    for name, value in (("sla_keys", settings.sla_keys), ("otlp_endpoint", settings.otlp_endpoint)):
        if value is None or (name == "sla_keys" and "://" not in value):
            continue
        url = _split(value)
        if url is None or url.scheme not in ("http", "https") or not url.hostname:
            raise SettingsError(sources[name], f"{value!r} is no URL", "http:// or https:// and a host")


def _split(text: str) -> SplitResult | None:
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        return None
    return url
