"""A container becomes a process: arguments and files with the paths of this machine."""

from pathlib import Path

import pytest

from mcp2026.api.inference_model import parse_inference_model
from mcp2026.cli.errors import CommandError
from mcp2026.cli.pod_process import Mounts, arguments, local_config, mounts
from mcp2026.operator.children import deployment, serving_config, serving_config_map
from mcp2026.operator.settings import PodSettings
from tests.fakes.played_cluster import model

MODEL = parse_inference_model(
    model(
        versions=[
            {"versionId": "v1", "weight": 50, "uri": "pvc://models/a/b.onnx"},
            {"versionId": "v2", "weight": 50, "uri": "pvc://models-2/c.onnx"},
        ],
        workers=3,
    )
)
DEPLOYMENT = deployment(MODEL, PodSettings("image", lame_duck_seconds=0))
CLAIMS = {"models": Path("/data/one"), "models-2": Path("/data/two")}
CONFIG_FOLDER = Path("/private")


def test_the_arguments_are_the_pods_with_local_paths_ports_and_address() -> None:
    where = mounts(DEPLOYMENT, CONFIG_FOLDER, CLAIMS)
    assert arguments(DEPLOYMENT, where, 9000, 9010, Path("/own")) == [
        *("--serving-config", "/private/serving.json"),
        *("--host", "127.0.0.1"),
        *("--port", "9000"),
        *("--grpc-port", "9010"),
        *("--workers", "3"),
        *("--lame-duck-seconds", "0"),
        *("--log-format", "text"),
        *("--ending-directory", "/own"),
        *("--termination-message", "/own/termination-message"),
    ]


def test_each_claim_is_its_own_folder() -> None:
    where = mounts(DEPLOYMENT, CONFIG_FOLDER, CLAIMS)
    config = local_config(serving_config_map(MODEL, serving_config(MODEL, 1)), where)
    assert [version.path for version in config.versions] == ["/data/one/a/b.onnx", "/data/two/c.onnx"]
    assert config.batching == MODEL.spec.batching


def test_a_claim_without_folder_is_refused_with_the_flag_that_gives_it() -> None:
    with pytest.raises(CommandError, match="--volume models-2=DIR"):
        mounts(DEPLOYMENT, CONFIG_FOLDER, {"models": Path("/data/one")})


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/mnt/models/a/x", "/one/x"),
        ("/mnt/models/a", "/one"),
        ("/mnt/models/ab/x", "/mnt/models/ab/x"),
        ("8080", "8080"),
    ],
)
def test_only_whole_segments_are_replaced(path: str, local: str) -> None:
    assert Mounts({"/mnt/models/a": Path("/one")}).local(path) == local
