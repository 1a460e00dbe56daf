"""`mcp2026 local` takes a canary through its steps with real servers."""

import json
import time
import urllib.request
from pathlib import Path

import pytest

from mcp2026.api.inference_model import parse_inference_model
from mcp2026.cli.local_cluster import LocalCluster, free_ports
from mcp2026.cli.local_command import bring_up, step
from mcp2026.cli.model_file import read_model
from tests.unit.cli.test_serving_locally import EXAMPLES, models, run

__all__ = ["models"]

SECONDS = 60
BODY = json.dumps({"input": [0.5] * 64, "shape": [1, 64]}).encode()
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def test_the_example_is_served_and_answers(tmp_path: Path, models: Path) -> None:
    file = EXAMPLES / "canary.yaml"
    ended = run(tmp_path, "local", "-f", str(file), "--volume", f"models={models}", "--port", "0", "--check")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "CanaryStep: version v2 gets 5 percent (step 1 of 4)" in ended.stdout
    assert "v1=95,v2=5" in ended.stdout
    assert ended.stdout.count("max difference from ONNX Runtime alone") == 2


def test_a_canary_is_promoted_while_requests_come(
    tmp_path: Path, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resource, _ = read_model(EXAMPLES / "canary.yaml")
    rollback = {"minimumRequests": 5, "latencyRatio": 100}
    plan = {"version": "v2", "steps": [50, 100], "stepSeconds": 1, "rollback": rollback}
    resource["spec"]["canary"] = plan
    cluster = LocalCluster(resource, tmp_path, {"models": models}, free_ports(2))
    try:
        bring_up(cluster, SECONDS)
        deadline = time.monotonic() + SECONDS
        while parse_inference_model(cluster.resource).weights["v2"] < 100 or "CanaryPromoted" not in (
            said := capsys.readouterr().out
        ):
            assert time.monotonic() < deadline, cluster.resource["status"]["canary"]
            for _ in range(20):
                with _DIRECT.open(f"{cluster.urls[0]}/v1/infer", BODY, timeout=SECONDS) as answer:
                    assert answer.status == 200
            step(cluster)
    finally:
        cluster.end()
    assert "CanaryPromoted: version v2 has 100 percent, as planned" in said
    assert cluster.resource["status"]["versions"] == "v1=0,v2=100"
