"""Everything that can be set on one server, in one frozen object that is read once.

A flag wins over its environment variable (`MCP2026_WORKERS` for `--workers`), which wins over the serving
configuration's batching section, which wins over the default.
"""

import argparse
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import SplitResult, urlsplit

import msgspec

from mcp2026.api.batching_negotiation import (
    DEFAULT_DELAY_MS,
    DEFAULT_MIN_SIZE,
    MAX_DELAY_MS,
    MAX_MIN_SIZE,
    BatchingOffer,
)
from mcp2026.api.errors import InvalidResourceError, SettingsError
from mcp2026.api.names import REST_PORT
from mcp2026.api.scheduling_context import QosClass
from mcp2026.api.serving import (
    MAX_BATCH_SIZE_RANGE,
    MAX_DELAY_MS_RANGE,
    MIN_BATCH_SIZE_RANGE,
    PREFETCH_QUEUE_DEPTH_RANGE,
    Batching,
    ServingConfig,
    check_range,
    decode_serving_config,
    single_version,
)
from mcp2026.api.settings import SettingsParser
from mcp2026.api.structured_log import LogFormat, LogLevel
from mcp2026.runtime.protocol.http2.limits import Http2Limits

ENVIRONMENT_PREFIX = "MCP2026_"
KIB = 1024
MIB = 1024 * KIB

_HTTP2 = Http2Limits()

ModelControl = Literal["none", "explicit"]
SlaPolicy = Literal["lowest", "reject"]
SLA_AUDIENCE = "mcp2026-runtime"
OTLP_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""The variable of OpenTelemetry itself; our own, and the flag, win over it."""
ProviderChoice = Literal["auto", "cpu", "cuda", "tensorrt"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one server; durations in seconds, sizes in the unit that the name says."""

    models: tuple[ServingConfig, ...] = ()
    """What is served from the start; empty with a model repository, which is read at the start."""
    serving_config: str | None = None
    """The file that says so, which is followed: a change of it is served without a restart."""
    serving_config_map: str | None = None
    """The ConfigMap that is followed as well."""
    model_repository: str | None = None
    model_control: ModelControl = "none"
    load_model: tuple[str, ...] = ()
    """Models of the repository that explicit control loads at the start."""
    batching: tuple[tuple[str, Any], ...] = ()
    """Batching that flags ask for, over what a repository says."""
    host: str = "localhost"
    port: int = REST_PORT
    grpc: bool = True
    grpc_port: int | None = None
    """None: one more than `port`, or any free one if that is 0."""
    unix_socket: str | None = None
    grpc_unix_socket: str | None = None
    shared_memory: bool = True
    metrics_port: int | None = None
    workers: int = 1
    max_body_mib: int = 64
    queue_size: int = 1024
    queue_mib: int = 512
    request_timeout: float = 30.0
    drain_seconds: float = 30.0
    lame_duck_seconds: float = 0.0
    log_format: LogFormat = "text"
    log_level: LogLevel = "INFO"
    threads: int | None = None
    provider: ProviderChoice = "auto"
    sla_keys: str | None = None
    """A file or a URL; None: tokens are not looked at."""
    sla_audience: str = SLA_AUDIENCE
    sla_policy: SlaPolicy = "lowest"
    pod_uid: str | None = None
    pod_name: str | None = None
    pod_namespace: str | None = None
    qos_class: str | None = None
    slow_request_ms: float | None = None
    request_log: bool = False
    otlp_endpoint: str | None = None
    trace_ratio: float = 0.01
    negotiation: bool = True
    negotiate_delay_ms: int = DEFAULT_DELAY_MS
    negotiate_min_size: int = DEFAULT_MIN_SIZE
    max_header_kib: int = _HTTP2.max_header_bytes // KIB
    max_headers: int = _HTTP2.max_headers
    http2_streams: int = _HTTP2.max_streams
    http2_resets: int = _HTTP2.resets
    http2_resets_per_second: float = _HTTP2.resets_per_second
    http2_settings: int = _HTTP2.settings_frames
    http2_settings_per_second: float = _HTTP2.settings_frames_per_second
    http2_idle_frames: int = _HTTP2.idle_frames
    http2_idle_frames_per_second: float = _HTTP2.idle_frames_per_second

    @property
    def offer(self) -> BatchingOffer | None:
        """What the server offers to negotiate about batching; None: nothing."""
        return BatchingOffer(self.negotiate_delay_ms, self.negotiate_min_size) if self.negotiation else None

    @property
    def http2_limits(self) -> Http2Limits:
        """What one client may ask of a connection of HTTP/2."""
        return Http2Limits(
            max_streams=self.http2_streams,
            max_header_bytes=self.max_header_kib * KIB,
            max_headers=self.max_headers,
            held_bytes=self.max_body_bytes,
            unsent_bytes=self.max_body_bytes,
            resets=self.http2_resets,
            resets_per_second=self.http2_resets_per_second,
            settings_frames=self.http2_settings,
            settings_frames_per_second=self.http2_settings_per_second,
            idle_frames=self.http2_idle_frames,
            idle_frames_per_second=self.http2_idle_frames_per_second,
        )

    @property
    def chosen_grpc_port(self) -> int:
        """The gRPC port, 0 for any free one."""
        if self.grpc_port is not None:
            return self.grpc_port
        return self.port + 1 if self.port else 0

    @property
    def max_body_bytes(self) -> int:
        """Largest request body that is read, in bytes."""
        return self.max_body_mib * MIB


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _boolean(text: str) -> bool:
    values = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    return values[text.lower()]


@dataclass(frozen=True)
class _Option:
    """One flag: `--name`, the environment variable of the same name, its type, range and help."""

    name: str
    parse: Callable[[str], Any]
    kind: str
    help: str
    allowed: tuple[int, int] | tuple[str, ...] | None = None

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()

    def read(self, text: str, source: str) -> Any:
        """Return the value of `text`; `source` is the flag or variable that an error names."""
        try:
            value = self.parse(text)
        except (ValueError, KeyError):
            raise SettingsError(source, f"{text!r} is not {self.kind}", self._allowed_text()) from None
        if self.allowed is None:
            return value
        if isinstance(self.allowed[0], str):
            if value not in self.allowed:
                raise SettingsError(source, f"{text!r} is not known", self._allowed_text())
            return value
        low, high = self.allowed
        if not (math.isfinite(value) and low <= value <= high):
            raise SettingsError(source, f"{text} is out of range", self._allowed_text())
        return value

    def _allowed_text(self) -> str:
        if self.allowed is None:
            return self.kind
        if isinstance(self.allowed[0], str):
            return ", ".join(str(choice) for choice in self.allowed)
        return f"{self.kind} from {self.allowed[0]} to {self.allowed[1]}"


_NUMBER = "a number of seconds"
_WHOLE = "a whole number"
_RATE = "a number per second"
_BURSTS = (10, 1_000_000)
_RATES = (0, 1_000_000)
_BATCHING_OPTIONS = (
    _Option("max_batch_size", int, _WHOLE, "most rows in one execution (32)", MAX_BATCH_SIZE_RANGE),
    _Option(
        "prefetch_queue_depth", int, _WHOLE, "full batches assembled ahead (8)", PREFETCH_QUEUE_DEPTH_RANGE
    ),
    _Option("max_delay_ms", int, _WHOLE, "longest wait of an idle engine for rows (0)", MAX_DELAY_MS_RANGE),
    _Option("min_batch_size", int, _WHOLE, "rows at which a waiting batch leaves (1)", MIN_BATCH_SIZE_RANGE),
    _Option("tensor_cache", _boolean, "true or false", "reuse input and output buffers (on)"),
)
_SERVER_OPTIONS = (
    _Option("host", str, "a host", "address to listen on (localhost; in a pod 0.0.0.0)"),
    _Option("port", int, _WHOLE, f"HTTP port, 0 for any free one ({REST_PORT})", (0, 65_535)),
    _Option("grpc", _boolean, "true or false", "serve gRPC as well (on)"),
    _Option("grpc_port", int, _WHOLE, "gRPC port, 0 for any free one (one more than --port)", (0, 65_535)),
    _Option("unix_socket", str, "a path", "serve HTTP on this Unix socket as well (none)"),
    _Option("grpc_unix_socket", str, "a path", "serve gRPC on this Unix socket as well (none)"),
    _Option(
        "shared_memory", _boolean, "true or false", "clients may pass tensors in POSIX shared memory (on)"
    ),
    _Option(
        "metrics_port",
        int,
        _WHOLE,
        "a second port with /metrics and health alone, 0 for any free one (none)",
        (0, 65_535),
    ),
    _Option(
        "model_control",
        str,
        "a mode",
        "explicit: clients load, unload, register and retire; of a repository nothing else is served (none)",
        get_args(ModelControl),
    ),
    _Option("load_model", _names, "names", "models that explicit control loads at the start: a,b (none)"),
    _Option("workers", int, _WHOLE, "worker processes (1)", (1, 64)),
    _Option("max_body_mib", int, _WHOLE, "largest request body in MiB (64)", (1, 2_047)),
    _Option("queue_size", int, _WHOLE, "most rows that wait in one worker (1024)", (1, 1_000_000)),
    _Option("queue_mib", int, _WHOLE, "most memory of waiting inputs per worker in MiB (512)", (1, 65_536)),
    _Option("request_timeout", float, _NUMBER, "longest from arrival to answer, in s (30)", (0, 3_600)),
    _Option("drain_seconds", float, _NUMBER, "longest that an exit waits for answers, in s (30)", (0, 3_600)),
    _Option(
        "lame_duck_seconds",
        float,
        _NUMBER,
        "serve on, but unready, before the drain, in s (0)",
        (0, 600),
    ),
    _Option("log_format", str, "a format", "text or json (text)", get_args(LogFormat)),
    _Option("log_level", str, "a level", "least severe line (INFO)", get_args(LogLevel)),
    _Option("threads", int, _WHOLE, "compute threads per worker (CPUs of the cgroup / workers)", (1, 1_024)),
    _Option(
        "provider",
        str,
        "a provider",
        "auto, cpu, cuda or tensorrt (auto: the best that this machine has)",
        ("auto", "cpu", "cuda", "tensorrt"),
    ),
)
_NEGOTIATION_OPTIONS = (
    _Option("negotiation", _boolean, "true or false", "offer clients to negotiate about batching (on)"),
    _Option(
        "negotiate_delay_ms",
        int,
        _WHOLE,
        f"longest wait that is offered, in ms ({DEFAULT_DELAY_MS})",
        (0, MAX_DELAY_MS),
    ),
    _Option(
        "negotiate_min_size",
        int,
        _WHOLE,
        f"rows that are offered to suffice for a batch ({DEFAULT_MIN_SIZE})",
        (1, MAX_MIN_SIZE),
    ),
)
_CLIENT_OPTIONS = (
    _Option("max_header_kib", int, _WHOLE, "largest head of a request in KiB (64)", (4, 1_024)),
    _Option("max_headers", int, _WHOLE, "most headers of a request (128)", (8, 10_000)),
    _Option("http2_streams", int, _WHOLE, "most requests of a connection at a time (256)", (1, 100_000)),
    _Option(
        "http2_resets", int, _WHOLE, "streams that a client may open and drop in a burst (1000)", _BURSTS
    ),
    _Option("http2_resets_per_second", float, _RATE, "and after that, per second (33)", _RATES),
    _Option("http2_settings", int, _WHOLE, "SETTINGS frames that it may send in a burst (100)", _BURSTS),
    _Option("http2_settings_per_second", float, _RATE, "and after that, per second (10)", _RATES),
    _Option(
        "http2_idle_frames",
        int,
        _WHOLE,
        "frames without work, such as PING and PRIORITY, in a burst (10000)",
        _BURSTS,
    ),
    _Option("http2_idle_frames_per_second", float, _RATE, "and after that, per second (1000)", _RATES),
)
_CONTEXT_OPTIONS = (
    _Option(
        "sla_keys", str, "a path or a URL", "JWKS with the keys of SLA tokens: a file, or an https URL (none)"
    ),
    _Option("sla_audience", str, "a name", f"audience that SLA tokens must name ({SLA_AUDIENCE})"),
    _Option(
        "sla_policy",
        str,
        "a policy",
        "requests without a good token: lowest serves them last, reject answers 401 (lowest)",
        get_args(SlaPolicy),
    ),
    _Option(
        "qos_class",
        str,
        "a class",
        "QoS class of this pod, for requests that name none (none)",
        tuple(one.value for one in QosClass),
    ),
    _Option(
        "slow_request_ms",
        float,
        "a number of ms",
        "log requests that take longer, in ms (none)",
        (0, 3_600_000),
    ),
    _Option("request_log", _boolean, "true or false", "log all requests, not only failures (off)"),
    _Option(
        "otlp_endpoint", str, "a URL", f"send spans there by OTLP over HTTP ({OTLP_VARIABLE}, else none)"
    ),
    _Option("trace_ratio", float, "a number", "part of the traces that begin here to send (0.01)", (0, 1)),
)
_POD_OPTIONS = (
    _Option(
        "serving_config_map",
        str,
        "a name",
        "ConfigMap with serving.json that is watched for new revisions, besides --serving-config (none)",
    ),
    _Option("pod_name", str, "a name", "name of this pod, whose Lease tells which revision is live"),
    _Option("pod_namespace", str, "a name", "namespace of this pod"),
    _Option("pod_uid", str, "a UID", "UID of this pod, for which SLA tokens must be"),
)
_SOURCE_OPTIONS = (
    _Option(
        "model_path",
        str,
        "a file",
        "a model to serve under its own name: an ONNX or .mcpir file, or a folder with one",
    ),
    _Option(
        "serving_config",
        str,
        "a file",
        "JSON that says what is served: versions, batching, queue, priorities, tenants",
    ),
    _Option(
        "model_repository",
        str,
        "a folder",
        "a folder of models as Triton has it: <name>/<version>/model.onnx, with or without config.pbtxt",
    ),
)
_OPTIONS = (
    *_SOURCE_OPTIONS,
    *_SERVER_OPTIONS,
    *_BATCHING_OPTIONS,
    *_NEGOTIATION_OPTIONS,
    *_CLIENT_OPTIONS,
    *_CONTEXT_OPTIONS,
    *_POD_OPTIONS,
)
_GROUPS = (
    ("what to serve, exactly one of", _SOURCE_OPTIONS),
    ("server", _SERVER_OPTIONS),
    ("batching, instead of what the configuration or the repository says", _BATCHING_OPTIONS),
    ("batching that clients negotiate", _NEGOTIATION_OPTIONS),
    ("what one client may ask of a connection", _CLIENT_OPTIONS),
    ("traces, SLA tokens, log lines of requests", _CONTEXT_OPTIONS),
    ("in a pod, which knows its own name from the downward API", _POD_OPTIONS),
)


def _parser() -> SettingsParser:
    parser = SettingsParser(
        prog="mcp2026-server",
        description="Serve ONNX models over HTTP and gRPC with dynamic batching.",
        epilog="Each flag can also be set by the environment: MCP2026_WORKERS=4 is --workers 4.",
        allow_abbrev=False,
    )
    for title, options in _GROUPS:
        group = parser.add_argument_group(title)
        for option in options:
            if option.parse is _boolean:
                group.add_argument(option.flag, action=argparse.BooleanOptionalAction, help=option.help)
            else:
                group.add_argument(option.flag, metavar=option.name.rsplit("_")[-1].upper(), help=option.help)
    return parser


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings that `arguments` and `environment` ask for.

    Raises:
        SettingsError: a value is not accepted, or the serving configuration cannot be read.

    """
    flags = vars(_parser().parse_args(arguments))
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for option in _OPTIONS:
        given = flags[option.name]
        sources[option.name] = option.flag
        if isinstance(given, bool):
            values[option.name] = given
        elif given is not None:
            values[option.name] = option.read(given, option.flag)
        elif option not in _SOURCE_OPTIONS and (text := _from_environment(option, environment)):
            values[option.name] = option.read(text, option.variable)
            sources[option.name] = option.variable
    if "otlp_endpoint" not in values and (endpoint := environment.get(OTLP_VARIABLE)):
        values["otlp_endpoint"] = endpoint
        sources["otlp_endpoint"] = OTLP_VARIABLE
    _take_source_from_environment(values, sources, environment)
    _exactly_one_source(values)
    batching = {o.name: values.pop(o.name) for o in _BATCHING_OPTIONS if o.name in values}
    models = _models(values.pop("model_path", None), values.get("serving_config"), batching)
    settings = Settings(models=models, batching=tuple(sorted(batching.items())), **values)
    for model in models:
        check_batching(settings, model, sources)
    _check_together(settings, sources)
    return settings


def _from_environment(option: _Option, environment: Mapping[str, str]) -> str | None:
    """Return the variable's text. What Kubernetes puts there for a Service of a like name is not ours.

    A Service `mcp2026-metrics` in the namespace gives every pod MCP2026_METRICS_PORT=tcp://10.0.0.1:80.
    """
    text = environment.get(option.variable)
    return None if text and text.startswith(("tcp://", "udp://", "sctp://")) else text


def _take_source_from_environment(
    values: dict[str, Any], sources: dict[str, str], environment: Mapping[str, str]
) -> None:
    """Read what to serve from the environment, unless a flag already says it."""
    if any(option.name in values for option in _SOURCE_OPTIONS):
        return
    for option in _SOURCE_OPTIONS:
        if text := environment.get(option.variable):
            values[option.name] = text
            sources[option.name] = option.variable


def _exactly_one_source(values: Mapping[str, Any]) -> None:
    given = [option.flag for option in _SOURCE_OPTIONS if option.name in values]
    if len(given) != 1:
        problem = f"{' and '.join(given)} are given" if given else "none is given"
        raise SettingsError(
            ", ".join(option.flag for option in _SOURCE_OPTIONS), problem, "exactly one of them"
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
    sources = sources or {option.name: option.flag for option in _OPTIONS}
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


def with_threads(settings: Settings, threads: int) -> Settings:
    """Return `settings` with the number of compute threads filled in."""
    return dataclasses.replace(settings, threads=threads)
