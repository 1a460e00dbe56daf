"""Everything that can be set on one server, in one frozen object that is read once.

A flag wins over its environment variable (`MCP2026_WORKERS` for `--workers`), which wins over the serving
configuration's batching section, which wins over the default.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from mcp2026.api.batching_negotiation import DEFAULT_DELAY_MS, DEFAULT_MIN_SIZE, BatchingOffer
from mcp2026.api.names import REST_PORT
from mcp2026.api.serving import (
    ServingConfig,
)
from mcp2026.api.structured_log import LogFormat, LogLevel
from mcp2026.runtime.protocol.http2.limits import Http2Limits

ENVIRONMENT_PREFIX = "MCP2026_"
KIB = 1024
MIB = 1024 * KIB

_HTTP2 = Http2Limits()

ModelControl = Literal["none", "explicit", "poll"]
SlaPolicy = Literal["lowest", "reject"]
SLA_AUDIENCE = "mcp2026-runtime"
OTLP_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""The variable of OpenTelemetry itself; our own, and the flag, win over it."""
LOAD_SECONDS = 1_800.0
WARM_UP_SECONDS = 10.0
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
    repository_poll_seconds: float = 15.0
    """Under control poll, how often the repository is looked at without an event."""
    repository_quiet_seconds: float = 1.0
    """Under control poll, how long a model's folder must not have changed before it is taken."""
    model_cache: str | None = None
    """The folder for versions that are fetched; None: none are."""
    model_cache_mib: int = 16_384
    fetch_stall_seconds: float = 30.0
    """Longest that a source may send nothing."""
    fetch_seconds: float = 3_600.0
    """Longest that one file may take."""
    allow_http: bool = False
    """Versions, and the endpoint of S3, may be http://."""
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
    warm_up_seconds: float = WARM_UP_SECONDS
    """Longest warm-up of one version in one worker; a run that would not fit is left out."""
    load_timeout: float = LOAD_SECONDS
    """Longest that a change waits for a worker to load a model while others are served."""
    sla_keys: str | None = None
    """A file or a URL; None: tokens are not looked at."""
    sla_audience: str = SLA_AUDIENCE
    sla_policy: SlaPolicy = "lowest"
    pod_uid: str | None = None
    pod_name: str | None = None
    pod_namespace: str | None = None
    ending_directory: str | None = None
    termination_message: str | None = None
    log_archive: str | None = None
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


def with_threads(settings: Settings, threads: int) -> Settings:
    """Return `settings` with the number of compute threads filled in."""
    return dataclasses.replace(settings, threads=threads)
