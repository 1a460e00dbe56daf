"""`mcp2026 local` with a model of mode Batch: the Job's command with paths of this machine, and its end."""

from pathlib import Path

import numpy
import pytest
import yaml

from mcp2026.api.inference_model import parse_inference_model
from mcp2026.cli.batch_command import arguments
from mcp2026.cli.errors import CommandError
from mcp2026.cli.local_command import serve_locally
from mcp2026.cli.pod_process import mounts
from mcp2026.operator.children import job
from tests.fakes.played_cluster import SETTINGS
from tests.fakes.played_job import batch_model
from tools.models import generate

EXAMPLE = Path(__file__).parents[3] / "examples" / "batch.yaml"


def test_the_arguments_are_those_of_the_job_with_paths_of_this_machine(tmp_path: Path) -> None:
    manifest = job(parse_inference_model(batch_model()), SETTINGS)
    claims = {"models": tmp_path / "models", "data": tmp_path / "data"}
    found = arguments(manifest, mounts(manifest, tmp_path, claims), tmp_path, claims)
    pairs = dict(zip(found[::2], found[1::2], strict=True))
    assert pairs["--serving-config"] == str(tmp_path / "serving.json")
    assert pairs["--input"] == "pvc://data/rows.npy"
    assert pairs["--log-file"] == str(tmp_path / "batch.log")
    assert "--progress" not in pairs
    assert [text for text in found if text.startswith("data=")] == [f"data={tmp_path}/data"]


def test_the_example_runs_and_one_that_fails_says_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    claims = {"models": tmp_path / "models", "data": tmp_path / "data"}
    generate("mlp", claims["models"])
    claims["data"].mkdir()
    numpy.save(claims["data"] / "rows.npy", numpy.ones((10, 64), numpy.float32))
    serve_locally(EXAMPLE, claims, 0, 60, check=False)
    assert "nightly: 10 rows are done" in capfd.readouterr().out
    assert len((claims["data"] / "results.jsonl").read_text().splitlines()) == 10
    assert (claims["data"] / "results.jsonl.log.gz").is_file()
    numpy.save(claims["data"] / "rows.npy", numpy.ones((10, 3), numpy.float32))
    with pytest.raises(CommandError, match=r"^InputRefused: "):
        serve_locally(EXAMPLE, claims, 0, 60, check=False)


def test_what_a_run_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--check asks a server"):
        serve_locally(EXAMPLE, {}, 0, 60, check=True)
    with pytest.raises(CommandError, match="name its folder: --volume data=DIR"):
        serve_locally(EXAMPLE, {"models": tmp_path}, 0, 60, check=False)


def test_the_example_is_a_good_one() -> None:
    assert parse_inference_model(yaml.safe_load(EXAMPLE.read_text())).spec.mode == "Batch"
