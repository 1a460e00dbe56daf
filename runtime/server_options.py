"""The flags of `mcp2026-server`, in the groups in which --help shows them."""

from typing import get_args

from mcp2026.api.batching_negotiation import DEFAULT_DELAY_MS, DEFAULT_MIN_SIZE, MAX_DELAY_MS, MAX_MIN_SIZE
from mcp2026.api.names import REST_PORT
from mcp2026.api.options import Option, boolean, names
from mcp2026.api.scheduling_context import QosClass
from mcp2026.api.serving import (
    MAX_BATCH_SIZE_RANGE,
    MAX_DELAY_MS_RANGE,
    MIN_BATCH_SIZE_RANGE,
    PREFETCH_QUEUE_DEPTH_RANGE,
)
from mcp2026.api.structured_log import LogFormat, LogLevel
from mcp2026.runtime.protocol.http2.limits import Http2Limits
from mcp2026.runtime.settings import (
    OTLP_VARIABLE,
    SLA_AUDIENCE,
    ModelControl,
    SlaPolicy,
)

_HTTP2 = Http2Limits()
_NUMBER = "a number of seconds"
_WHOLE = "a whole number"
_RATE = "a number per second"
_BURSTS = (10, 1_000_000)
_RATES = (0, 1_000_000)
BATCHING_OPTIONS = (
    Option("max_batch_size", int, _WHOLE, "most rows in one execution (32)", MAX_BATCH_SIZE_RANGE),
    Option(
        "prefetch_queue_depth", int, _WHOLE, "full batches assembled ahead (8)", PREFETCH_QUEUE_DEPTH_RANGE
    ),
    Option("max_delay_ms", int, _WHOLE, "longest wait of an idle engine for rows (0)", MAX_DELAY_MS_RANGE),
    Option("min_batch_size", int, _WHOLE, "rows at which a waiting batch leaves (1)", MIN_BATCH_SIZE_RANGE),
    Option("tensor_cache", boolean, "true or false", "reuse input and output buffers (on)"),
)
SERVER_OPTIONS = (
    Option("host", str, "a host", "address to listen on (localhost; in a pod 0.0.0.0)"),
    Option("port", int, _WHOLE, f"HTTP port, 0 for any free one ({REST_PORT})", (0, 65_535)),
    Option("grpc", boolean, "true or false", "serve gRPC as well (on)"),
    Option("grpc_port", int, _WHOLE, "gRPC port, 0 for any free one (one more than --port)", (0, 65_535)),
    Option("unix_socket", str, "a path", "serve HTTP on this Unix socket as well (none)"),
    Option("grpc_unix_socket", str, "a path", "serve gRPC on this Unix socket as well (none)"),
    Option("shared_memory", boolean, "true or false", "clients may pass tensors in POSIX shared memory (on)"),
    Option(
        "metrics_port",
        int,
        _WHOLE,
        "a second port with /metrics and health alone, 0 for any free one (none)",
        (0, 65_535),
    ),
    Option(
        "model_control",
        str,
        "a mode",
        "explicit: clients load, unload, register and retire; of a repository nothing else is served; "
        "poll: changes of the repository are served (none)",
        get_args(ModelControl),
    ),
    Option("load_model", names, "names", "models that explicit control loads at the start: a,b (none)"),
    Option(
        "repository_poll_seconds",
        float,
        _NUMBER,
        "with poll, look at the repository this often even without an event, in s (15)",
        (0.1, 3_600),
    ),
    Option(
        "repository_quiet_seconds",
        float,
        _NUMBER,
        "with poll, take a model's folder when it has not changed for so long, in s (1)",
        (0, 600),
    ),
    Option("workers", int, _WHOLE, "worker processes (1)", (1, 64)),
    Option("max_body_mib", int, _WHOLE, "largest request body in MiB (64)", (1, 2_047)),
    Option("queue_size", int, _WHOLE, "most rows that wait in one worker (1024)", (1, 1_000_000)),
    Option("queue_mib", int, _WHOLE, "most memory of waiting inputs per worker in MiB (512)", (1, 65_536)),
    Option("request_timeout", float, _NUMBER, "longest from arrival to answer, in s (30)", (0, 3_600)),
    Option("drain_seconds", float, _NUMBER, "longest that an exit waits for answers, in s (30)", (0, 3_600)),
    Option(
        "lame_duck_seconds",
        float,
        _NUMBER,
        "serve on, but unready, before the drain, in s (0)",
        (0, 600),
    ),
    Option("log_format", str, "a format", "text or json (text)", get_args(LogFormat)),
    Option(
        "log_level",
        str,
        "a level",
        "least severe line: DEBUG, INFO, WARNING or ERROR (INFO)",
        get_args(LogLevel),
    ),
    Option("threads", int, _WHOLE, "compute threads per worker (CPUs of the cgroup / workers)", (1, 1_024)),
    Option(
        "provider",
        str,
        "a provider",
        "auto, cpu, cuda or tensorrt (auto: the best that this machine has)",
        ("auto", "cpu", "cuda", "tensorrt"),
    ),
    Option(
        "warm_up_seconds",
        float,
        _NUMBER,
        "longest warm-up of one version before it serves, in s; 0 for the probe alone (10)",
        (0, 3_600),
    ),
    Option(
        "load_timeout",
        float,
        _NUMBER,
        "a change whose model is not loaded after so long is refused, in s (1800)",
        (1, 86_400),
    ),
)
FETCHING_OPTIONS = (
    Option("model_cache", str, "a folder", "where versions with an https:// or s3:// path are kept (none)"),
    Option(
        "model_cache_mib",
        int,
        _WHOLE,
        "most that is kept there in MiB; the longest unused goes first (16384)",
        (1, 100_000_000),
    ),
    Option(
        "fetch_stall_seconds",
        float,
        _NUMBER,
        "longest that a source may send nothing, in s (30)",
        (0.1, 3_600),
    ),
    Option("fetch_seconds", float, _NUMBER, "longest that one file may take, in s (3600)", (1, 86_400)),
    Option("allow_http", boolean, "true or false", "take http:// for versions and the endpoint of S3 (off)"),
)
NEGOTIATION_OPTIONS = (
    Option("negotiation", boolean, "true or false", "offer clients to negotiate about batching (on)"),
    Option(
        "negotiate_delay_ms",
        int,
        _WHOLE,
        f"longest wait that is offered, in ms ({DEFAULT_DELAY_MS})",
        (0, MAX_DELAY_MS),
    ),
    Option(
        "negotiate_min_size",
        int,
        _WHOLE,
        f"rows that are offered to suffice for a batch ({DEFAULT_MIN_SIZE})",
        (1, MAX_MIN_SIZE),
    ),
)
CLIENT_OPTIONS = (
    Option("max_header_kib", int, _WHOLE, "largest head of a request in KiB (64)", (4, 1_024)),
    Option("max_headers", int, _WHOLE, "most headers of a request (128)", (8, 10_000)),
    Option("http2_streams", int, _WHOLE, "most requests of a connection at a time (256)", (1, 100_000)),
    Option("http2_resets", int, _WHOLE, "streams that a client may open and drop in a burst (1000)", _BURSTS),
    Option("http2_resets_per_second", float, _RATE, "and after that, per second (33)", _RATES),
    Option("http2_settings", int, _WHOLE, "SETTINGS frames that it may send in a burst (100)", _BURSTS),
    Option("http2_settings_per_second", float, _RATE, "and after that, per second (10)", _RATES),
    Option(
        "http2_idle_frames",
        int,
        _WHOLE,
        "frames without work, such as PING and PRIORITY, in a burst (10000)",
        _BURSTS,
    ),
    Option("http2_idle_frames_per_second", float, _RATE, "and after that, per second (1000)", _RATES),
)
CONTEXT_OPTIONS = (
    Option(
        "sla_keys", str, "a path or a URL", "JWKS with the keys of SLA tokens: a file, or an https URL (none)"
    ),
    Option("sla_audience", str, "a name", f"audience that SLA tokens must name ({SLA_AUDIENCE})"),
    Option(
        "sla_policy",
        str,
        "a policy",
        "requests without a good token: lowest serves them last, reject answers 401 (lowest)",
        get_args(SlaPolicy),
    ),
    Option(
        "qos_class",
        str,
        "a class",
        "QoS class of this pod, for requests that name none (none)",
        tuple(one.value for one in QosClass),
    ),
    Option(
        "slow_request_ms",
        float,
        "a number of ms",
        "log requests that take longer, in ms (none)",
        (0, 3_600_000),
    ),
    Option("request_log", boolean, "true or false", "log all requests, not only failures (off)"),
    Option("otlp_endpoint", str, "a URL", f"send spans there by OTLP over HTTP ({OTLP_VARIABLE}, else none)"),
    Option("trace_ratio", float, "a number", "part of the traces that begin here to send (0.01)", (0, 1)),
)
POD_OPTIONS = (
    Option(
        "serving_config_map",
        str,
        "a name",
        "ConfigMap with serving.json that is watched for new revisions, besides --serving-config (none)",
    ),
    Option("pod_name", str, "a name", "name of this pod, whose Lease tells which revision is live"),
    Option("pod_namespace", str, "a name", "namespace of this pod"),
    Option("pod_uid", str, "a UID", "UID of this pod, for which SLA tokens must be"),
    Option(
        "ending_directory",
        str,
        "a folder",
        "where a server whose model is stopped leaves word for the next one; lasts as long as the pod (none)",
    ),
    Option(
        "termination_message", str, "a file", "gets a line of JSON when the model is stopped: how it ended"
    ),
    Option(
        "log_archive",
        str,
        "a folder",
        "where the log goes then, as <pod>.log.gz: a folder, pvc://<claim>/<path>, s3://<bucket>/<prefix>",
    ),
)
SOURCE_OPTIONS = (
    Option(
        "model_path",
        str,
        "a file",
        "a model to serve under its own name: an ONNX or .mcpir file, or a folder with one",
    ),
    Option(
        "serving_config",
        str,
        "a file",
        "JSON that says what is served: versions, batching, queue, priorities, tenants",
    ),
    Option(
        "model_repository",
        str,
        "a folder",
        "a folder of models as Triton has it: <name>/<version>/model.onnx, with or without config.pbtxt",
    ),
)
OPTIONS = (
    *SOURCE_OPTIONS,
    *SERVER_OPTIONS,
    *FETCHING_OPTIONS,
    *BATCHING_OPTIONS,
    *NEGOTIATION_OPTIONS,
    *CLIENT_OPTIONS,
    *CONTEXT_OPTIONS,
    *POD_OPTIONS,
)
GROUPS = (
    ("what to serve, exactly one of", SOURCE_OPTIONS),
    ("server", SERVER_OPTIONS),
    ("versions that lie elsewhere", FETCHING_OPTIONS),
    ("batching, instead of what the configuration or the repository says", BATCHING_OPTIONS),
    ("batching that clients negotiate", NEGOTIATION_OPTIONS),
    ("what one client may ask of a connection", CLIENT_OPTIONS),
    ("traces, SLA tokens, log lines of requests", CONTEXT_OPTIONS),
    ("in a pod, which knows its own name from the downward API", POD_OPTIONS),
)
