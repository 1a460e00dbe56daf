"""The settings of one run over a data set, in one frozen object that is read once.

A flag wins over its environment variable (`MCP2026_THREADS` for `--threads`), which wins over the default.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import msgspec

from mcp2026.api.errors import InvalidResourceError, SettingsError
from mcp2026.api.inference_model import SHA256_PATTERN
from mcp2026.api.names import MODELS_DIRECTORY
from mcp2026.api.options import Option, boolean
from mcp2026.api.serving import (
    Batching,
    ServedVersion,
    ServingConfig,
    decode_serving_config,
    single_version,
)
from mcp2026.api.settings import SettingsParser
from mcp2026.api.structured_log import LogFormat, LogLevel
from mcp2026.runtime.dataset.formats.choice import Format, format_of
from mcp2026.runtime.dataset.plan import ROWS_PER_PART_RANGE
from mcp2026.runtime.dataset.progress import ProgressChoice
from mcp2026.runtime.dataset.stores.locations import (
    FilePlace,
    Place,
    S3Place,
    Surroundings,
    parse_place,
    parse_target,
)
from mcp2026.runtime.settings import ProviderChoice

MAX_BATCH_ROWS = 4096


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """Durations in seconds."""

    config: ServingConfig
    served: ServedVersion
    """The version that runs."""
    input: Place
    input_format: Format
    input_sha256: str | None = None
    output: FilePlace | S3Place
    output_format: Format
    rows_per_part: int | None = None
    """None: as many as make a part of a reasonable size."""
    restart: bool = False
    threads: int | None = None
    provider: ProviderChoice = "auto"
    timeout_seconds: float | None = None
    stop_seconds: float = 20.0
    progress: ProgressChoice = "auto"
    progress_file: Path | None = None
    termination_message: Path | None = None
    log_file: Path | None = None
    archive: FilePlace | S3Place | None = None
    scratch: Path | None = None
    """None: the system's folder for temporary files."""
    lease_seconds: float = 30.0
    allow_http: bool = False
    pod_name: str | None = None
    pod_namespace: str | None = None
    pod_uid: str | None = None
    log_format: LogFormat = "text"
    log_level: LogLevel = "INFO"


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError(text)
    return Path(text).absolute()


def _digest(text: str) -> str:
    if not re.fullmatch(SHA256_PATTERN, text):
        raise ValueError(text)
    return text


_TEXT = "text"
_FILE = "a path"
_WHOLE = "a whole number"
_SECONDS = "a number of seconds"
_SWITCH = "true or false"
_PLACES = "a path, file://, pvc://<claim>/<path>, s3://<bucket>/<key>"
_OPTIONS = (
    Option("model_path", str, _FILE, "the model: an ONNX or .mcpir file, or a folder with one"),
    Option(
        "serving_config", str, _FILE, "or JSON that says versions and batching, as mcp2026-server takes it"
    ),
    Option("version", str, _TEXT, "which version of the serving configuration runs (its only one)"),
    Option(
        "max_batch_size",
        int,
        _WHOLE,
        "most rows of one execution (the configuration's; 32)",
        (1, MAX_BATCH_ROWS),
    ),
    Option("input", str, _PLACES, f"the data set: {_PLACES}, https://"),
    Option("input_sha256", _digest, "64 lower-case hex digits", "its digest; another data set is refused"),
    Option(
        "output", str, _PLACES, "the results: as --input, but for https://; .npy, .npz, .jsonl or .parquet"
    ),
    Option(
        "rows_per_part", int, _WHOLE, "rows that are written at a time (about 32 MiB)", ROWS_PER_PART_RANGE
    ),
    Option("restart", boolean, _SWITCH, "begin anew, whatever is at the output's place (off)"),
    Option("threads", int, _WHOLE, "compute threads (CPUs of the cgroup)", (1, 1_024)),
    Option("provider", str, _TEXT, "auto, cpu, cuda or tensorrt (auto)", get_args(ProviderChoice)),
    Option("timeout_seconds", float, _SECONDS, "longest that the run may take (no limit)", (1, 31_536_000)),
    Option("stop_seconds", float, _SECONDS, "longest from SIGTERM to the exit, in s (20)", (0, 3_600)),
    Option(
        "progress",
        str,
        _TEXT,
        "bar, log, none, or auto: a bar on a terminal, else the log (auto)",
        get_args(ProgressChoice),
    ),
    Option("progress_file", _path, _FILE, "file with the progress as JSON, replaced each second (none)"),
    Option("termination_message", _path, _FILE, "file for one line of JSON at the end (none)"),
    Option("log_file", _path, _FILE, "the log goes to this file as well, at its end (none)"),
    Option("archive", str, _PLACES, "where the log file is archived at the end, gzip; as --output (none)"),
    Option("scratch", _path, _FILE, "folder for copies of what is not on this machine (the system's)"),
    Option(
        "models_directory",
        _path,
        _FILE,
        f"where claims are mounted, each under its name ({MODELS_DIRECTORY})",
    ),
    Option(
        "claim", str, _TEXT, "<claim>=<folder>: a claim that is mounted elsewhere; can be repeated (none)"
    ),
    Option(
        "lease_seconds",
        float,
        _SECONDS,
        "on S3, after which silence a run counts as gone, in s (30)",
        (0.1, 600),
    ),
    Option("allow_http", boolean, _SWITCH, "take http:// for --input and for the endpoint of S3 (off)"),
    Option("pod_name", str, _TEXT, "name of this pod, on whose Lease the progress is told (none)"),
    Option("pod_namespace", str, _TEXT, "namespace of this pod"),
    Option("pod_uid", str, _TEXT, "UID of this pod"),
    Option("log_format", str, _TEXT, "text or json (text)", get_args(LogFormat)),
    Option("log_level", str, _TEXT, "least severe line (INFO)", get_args(LogLevel)),
)


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> BatchSettings:
    """Return the settings that `arguments` and `environment` ask for.

    Raises:
        SettingsError: a value is missing or not accepted, or the serving configuration cannot be read.
        SystemExit: the command line asks for help.

    """
    flags = vars(_parser().parse_args(arguments))
    values: dict[str, Any] = {}
    for option in _OPTIONS:
        given = flags[option.name]
        if option.name == "claim":
            values["claim"] = given or _listed(environment.get(option.variable, ""))
        elif isinstance(given, bool):
            values[option.name] = given
        elif given is not None:
            values[option.name] = option.read(given, option.flag)
        elif text := environment.get(option.variable):
            values[option.name] = option.read(text, option.variable)
    if flags["model_path"] or flags["serving_config"]:  # a flag says it all: the other may be a variable
        for name in ("model_path", "serving_config"):
            if flags[name] is None:
                values.pop(name, None)
    config, served = _model(values)
    surroundings = Surroundings(
        values.pop("models_directory", Path(MODELS_DIRECTORY)),
        _claims(values.pop("claim")),
        values.get("allow_http", False),
    )
    for name in ("input", "output"):
        if name not in values:
            raise SettingsError(f"--{name}", "is not given", "where the data set is, and where results go")
    source = parse_place("--input", values.pop("input"), surroundings)
    target = parse_target("--output", values.pop("output"), surroundings)
    if source == target:
        raise SettingsError("--output", "is the input", "another place")
    pod = [name for name in ("pod_name", "pod_namespace", "pod_uid") if values.get(name)]
    if len(pod) in (1, 2):
        raise SettingsError("--pod-name", "needs --pod-namespace and --pod-uid", "all three, or none")
    archive = values.pop("archive", None)
    if archive is not None and "log_file" not in values:
        raise SettingsError("--archive", "needs a log to archive", "--log-file with it")
    return BatchSettings(
        config=config,
        served=served,
        input=source,
        input_format=format_of("--input", source.name),
        output=target,
        output_format=format_of("--output", target.name),
        archive=None if archive is None else parse_target("--archive", archive, surroundings),
        **values,
    )


def _model(values: dict[str, Any]) -> tuple[ServingConfig, ServedVersion]:
    """Take what says which model runs out of `values`."""
    model_path, config_path = values.pop("model_path", None), values.pop("serving_config", None)
    if (model_path is None) == (config_path is None):
        problem = "none is given" if model_path is None else "both are given"
        raise SettingsError("--model-path, --serving-config", problem, "exactly one of them")
    config = single_version(model_path, Batching()) if model_path else _read_config(str(config_path))
    if (rows := values.pop("max_batch_size", None)) is not None:
        execution = msgspec.structs.replace(config.execution, max_rows=rows)
        config = msgspec.structs.replace(config, execution=execution)
    version = values.pop("version", None)
    ids = [served.version_id for served in config.versions]
    if version is None and len(ids) == 1:
        return config, config.versions[0]
    if version not in ids:
        problem = "is not given" if version is None else f"{version!r} is none of the configuration"
        raise SettingsError("--version", problem, ", ".join(ids))
    return config, config.versions[ids.index(version)]


def _read_config(path: str) -> ServingConfig:
    try:
        return decode_serving_config(Path(path).read_bytes())
    except OSError as error:
        raise SettingsError(
            "--serving-config", f"cannot read {path}: {error.strerror}", "a readable file"
        ) from error
    except InvalidResourceError as error:
        raise SettingsError(f"{path}: {error.field}", error.problem, error.allowed) from error


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _claims(pairs: Sequence[str]) -> dict[str, Path]:
    claims = {}
    for pair in pairs:
        name, separator, folder = pair.partition("=")
        if not (name and separator and folder):
            raise SettingsError("--claim", f"{pair!r} is no pair", "<claim>=<folder>")
        claims[name] = Path(folder).absolute()
    return claims


def _parser() -> SettingsParser:
    parser = SettingsParser(
        prog="mcp2026-batch",
        description="Run a data set through an ONNX model in full batches; goes on where it was stopped.",
        epilog="Each flag can also be set by the environment: MCP2026_THREADS=4 is --threads 4. "
        "Exit status: 0 done, 1 failed, 2 wrong settings, 3 data set refused, 124 timeout, "
        "128 + n after signal n; after 1, 124 and signals the same command goes on.",
        allow_abbrev=False,
    )
    for option in _OPTIONS:
        if option.is_switch:
            parser.add_argument(option.flag, action=argparse.BooleanOptionalAction, help=option.help)
        elif option.name == "claim":
            parser.add_argument(option.flag, action="append", metavar="CLAIM=FOLDER", help=option.help)
        else:
            parser.add_argument(option.flag, metavar=option.metavar, help=option.described)
    return parser
