"""`mcp2026 topology`: the table of SPEC R3.1, from a file or a cluster."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from mcp2026.cli.__main__ import app
from mcp2026.cli.errors import CommandError
from mcp2026.cli.topology_table import ranges, render
from mcp2026.topology.errors import TopologyError
from mcp2026.topology.machine import (
    Description,
    NvLink,
    description_from_document,
    description_from_file,
    machine_document,
    machine_from_file,
)

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
PAIRS = TOPOLOGIES / "4xa100-pcie-nvlink-pairs.yaml"
BRIDGED = machine_from_file(PAIRS)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["topology", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def cells(line: str) -> list[str]:
    return re.split(r" {3,}", line)


def test_the_table_has_bus_ids_peers_by_bandwidth_and_latencies() -> None:
    lines = run("--file", str(PAIRS)).splitlines()
    assert cells(lines[0]) == [
        *("GPU", "PCIE BUS ID", "NUMA", "HEALTH", "NVLINK PEERS (GB/s)", "LATENCY (ns)"),
    ]
    assert cells(lines[1]) == [
        *("0", "00000000:17:00.0", "0", "Healthy", "300: 1 (12 x NVLink 3)", "700: 1; 2600: 2,3"),
    ]
    assert lines[5:] == ["", "latency: nominal, by the kind of link; none was measured"]


def test_peers_through_switches_are_told_together() -> None:
    lines = run("-f", str(TOPOLOGIES / "hgx-b200-8gpu-one-off-fabric.yaml")).splitlines()
    assert "900: 1,3-7 (18 x NVLink 5, switched)" in cells(lines[1])
    assert cells(lines[3])[4] == "none"
    assert lines[-1] == "GPU 2 is off the NVSwitch fabric: PCIe alone"


def test_broken_links_and_measured_latencies_are_told() -> None:
    broken = replace(
        BRIDGED,
        gpus=(
            BRIDGED.gpus[0],
            replace(BRIDGED.gpus[1], nvlinks=BRIDGED.gpus[1].nvlinks[:9], inactive_links=(9, 10, 11)),
            *BRIDGED.gpus[2:],
        ),
        measured_latency_ns=((None, 655, None, None),) + ((None,) * 4,) * 3,
    )
    lines = render(Description(broken), "text").splitlines()
    assert cells(lines[1])[-1] == "655*: 1; 2600: 2,3"
    assert lines[6:] == [
        "latency: * measured; others are nominal, by the kind of link",
        "broken: NVLink 9-11 of GPU 0 to GPU 1: one-sided",
        "broken: NVLink 9-11 of GPU 1: down",
    ]
    document = json.loads(render(Description(broken), "json"))
    assert document["latencySource"] == "mixed"
    assert document["gpus"][0]["nvlinkPeers"][0]["latencySource"] == "measured"
    assert len(document["brokenLinks"]) == 6


def test_json_and_yaml_say_the_same() -> None:
    document = json.loads(run("-f", str(PAIRS), "-o", "json"))
    assert yaml.safe_load(run("-f", str(PAIRS), "-o", "yaml")) == document
    assert document["gpus"][0]["nvlinkPeers"] == [
        {
            "gpu": 1,
            "bandwidthGbPerS": 300,
            "latencyNs": 700,
            "latencySource": "nominal",
            "links": 12,
            "version": 3,
            "switched": False,
        }
    ]
    assert document["gpus"][0]["latencyNs"] == {"1": 700, "2": 2600, "3": 2600}


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_peers_are_sorted_by_bandwidth_on_every_known_machine(path: Path) -> None:
    description = description_from_file(path)
    rows = json.loads(render(description, "json"))["gpus"]
    assert len(rows) == len(description.machine.gpus)
    for row in rows:
        bandwidths = [peer["bandwidthGbPerS"] for peer in row["nvlinkPeers"]]
        assert bandwidths == sorted(bandwidths, reverse=True)


def gpu_topology() -> dict[str, Any]:
    gpus = [
        {"index": gpu.index, "uuid": gpu.uuid, "product": gpu.product, "memoryMiB": 1, "pciBusId": "b"}
        for gpu in BRIDGED.gpus
    ]
    held = {"namespace": "default", "pod": "chat", "container": "server"}
    gpus[0] |= {"heldBy": held}
    gpus[1] |= {"health": "Unhealthy", "healthReason": "XidError", "healthMessage": "XID 79"}
    gpus[2] |= {
        "sharing": {"mode": "TimeSlice", "unit": "Replica", "replicas": 4, "state": "Draining"},
        "allocations": [{"resource": "mcp2026.io/gpu-shared", "units": 2, **held}],
    }
    return {
        "apiVersion": "mcp2026.io/v1alpha1",
        "kind": "GPUTopology",
        "metadata": {"name": "node-a"},
        "status": {"gpus": gpus, "pcieAncestors": machine_document(BRIDGED)["pcie_ancestor"]},
    }


def test_of_a_gpu_topology_health_sharing_and_holders_are_told(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump(gpu_topology()))
    lines = run("-f", str(path)).splitlines()
    assert cells(lines[0])[-2:] == ["SHARING", "HELD BY"]
    assert cells(lines[1])[-2:] == ["Exclusive", "default/chat"]
    assert cells(lines[2])[3] == "Unhealthy"
    assert cells(lines[3])[-2:] == ["TimeSlice x 4 (Draining)", "default/chat (2)"]
    rows = json.loads(run("-f", str(path), "-o", "json"))["gpus"]
    assert rows[0]["heldBy"]["pod"] == "chat"
    assert (rows[1]["healthReason"], rows[2]["sharing"]["replicas"]) == ("XidError", 4)
    assert run("-f", str(path), "--score", "1").startswith("GPU 3 of 3 free\n")


class _ApiServer(BaseHTTPRequestHandler):
    """Has one GPUTopology; anything else is not found."""

    def do_GET(self) -> None:
        found = self.path == "/apis/mcp2026.io/v1alpha1/gputopologies/node-a"
        if self.path.endswith("/broken"):
            self.send_response(503)
            body = b"{}"
        else:
            self.send_response(200 if found else 404)
            body = json.dumps(gpu_topology() if found else {"kind": "Status"}).encode()
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def api_server() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _ApiServer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def kubeconfig(folder: Path, port: int) -> Path:
    path = folder / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    return path


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from kubernetes.config import kube_config

    with api_server() as port:
        monkeypatch.setattr(
            kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig(tmp_path, port)), raising=True
        )
        yield


@pytest.mark.usefixtures("cluster")
def test_a_node_of_the_cluster_is_read_by_kubeconfig() -> None:
    assert cells(run("--node", "node-a").splitlines()[1])[-1] == "default/chat"
    assert "default/chat" in run("--node", "node-a", "--context", "here")


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--node", "node-b"), "--node node-b: the cluster has no GPUTopology of this name"),
        (("--node", "broken"), "--node broken: the API server answers 503"),
        (("--node", "node-a", "--context", "there"), "--node node-a: no usable kubeconfig"),
    ],
)
def test_a_node_that_cannot_be_read_is_said(arguments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(CommandError, match=re.escape(problem)):
        run(*arguments)


def test_a_cluster_that_does_not_answer_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.config import kube_config

    with api_server() as port:
        pass
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig(tmp_path, port)))
    with pytest.raises(CommandError, match="--node node-a: the API server does not answer"):
        run("--node", "node-a")


def test_the_best_gpus_are_told_with_the_band_that_decided() -> None:
    lines = run("-f", str(TOPOLOGIES / "4xa100-pcie-half-bridged.yaml"), "--score", "2").splitlines()
    assert lines[0] == "GPUs 0,1 of 0-3 free"
    assert lines[1] == "because: weakest-link 300 GB/s against 16 GB/s of the next best, 2,3"
    assert cells(lines[3]) == ["TERM", "UNIT", "GPUs 0,1", "NEXT BEST: 2,3"]
    assert cells(lines[6]) == ["weakest-link", "GB/s", "300", "16"]


def test_free_must_and_mix_are_taken_into_account() -> None:
    assert run("-f", str(PAIRS), "--score", "2", "--free", "0,2,3").startswith("GPUs 2,3 of 0,2,3 free")
    assert run("-f", str(PAIRS), "--score", "2", "--must", "2").startswith("GPUs 2,3 of 0-3 free")
    answer = json.loads(run("-f", str(PAIRS), "--score", "1", "--mix", "1=100", "-o", "json"))
    assert answer["question"]["demandMix"] == {"1": 100}
    assert answer["answer"]["terms"][6]["value"] == 0


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_a_recorded_answer_is_asked_for_again(output: str, tmp_path: Path) -> None:
    path = tmp_path / "answer"
    path.write_text(run("-f", str(PAIRS), "--score", "2", "--free", "1,2,3", "-o", output))
    assert run("--replay", str(path)).startswith("GPUs 2,3 of 1-3 free")
    assert run("--replay", str(path), "-o", output) == path.read_text()


def test_an_answer_that_is_another_now_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    document = json.loads(run("-f", str(PAIRS), "--score", "2", "-o", "json"))
    document["answer"]["gpus"] = [0, 2]
    path.write_text(json.dumps(document))
    with pytest.raises(
        CommandError, match=r"answer: \[0, 2\] with its terms was recorded, now it is \[0, 1\]"
    ):
        run("--replay", str(path))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param((), "no source: allowed: one of --file, --node, --replay", id="nothing to read"),
        pytest.param(("-f", "a", "--node", "b"), "--file and --node: allowed: one of", id="two sources"),
        pytest.param(("-f", "a", "--context", "b"), "--context goes with --node only", id="a lone context"),
        pytest.param(("-f", "a", "--free", "0"), "--free goes with --score only", id="free without score"),
        pytest.param(
            ("-f", str(PAIRS), "--score", "1", "--free", "0,7"),
            "--free 0,7: no GPU 7; allowed: 0, 1, 2, 3",
            id="a GPU that is not there",
        ),
        pytest.param(
            ("-f", str(PAIRS), "--score", "1", "--mix", "1:2"), "'1:2'; allowed: SIZE=PERCENT", id="a bad mix"
        ),
        pytest.param(
            ("-f", str(PAIRS), "--score", "1", "--mix", "1=2"), "the shares sum to 2", id="a mix of 2 percent"
        ),
        pytest.param(("-f", str(PAIRS), "--score", "9"), "9 GPUs asked, 4 available", id="too many"),
        pytest.param(
            ("-f", str(PAIRS), "--score", "1", "-o", "svg"),
            "--output svg: allowed with",
            id="a score as picture",
        ),
        pytest.param(("-f", "/nowhere.yaml"), "/nowhere.yaml: cannot be read", id="no file"),
        pytest.param(("--replay", "/nowhere"), "--replay /nowhere: cannot be read", id="no recorded answer"),
        pytest.param(("--replay", str(PAIRS)), "question: missing", id="no question"),
        pytest.param(("--replay", str(PAIRS), "--score", "1"), "--score: the file of", id="two questions"),
    ],
)
def test_what_is_wrong_is_said_by_flag(arguments: tuple[str, ...], problem: str) -> None:
    with pytest.raises((CommandError, TopologyError), match=re.escape(problem)):
        run(*arguments)


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([1, 2], "1,2"), ([0, 1, 2, 5, 7, 6], "0-2,5-7")]
)
def test_numbers_in_a_row_are_written_as_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_an_unknown_generation_of_nvlink_is_left_out() -> None:
    document = machine_document(BRIDGED)
    machine = description_from_document("m", document).machine
    links = tuple(NvLink(link.link, link.peer, 0) for link in machine.gpus[0].nvlinks)
    unknown = replace(machine, gpus=(replace(machine.gpus[0], nvlinks=links), *machine.gpus[1:]))
    assert "x NVLink" in render(Description(unknown), "text").splitlines()[1]
