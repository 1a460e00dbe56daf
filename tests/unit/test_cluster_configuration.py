"""What the programs of a cluster are told."""

import base64
import hashlib
import io
import json
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

from tools.cluster import containerd
from tools.cluster.archives import write_program_image
from tools.cluster.certificates import Authority, KeyPair, alternative_names, subject
from tools.cluster.control_plane import api_server_arguments, scheduler_configuration, serving_hosts
from tools.cluster.errors import ClusterError
from tools.cluster.kubeconfig import kubeconfig
from tools.cluster.kwok import played_node
from tools.cluster.levels import Level
from tools.cluster.network import NodeNetwork, choose_subnet
from tools.cluster.node_configuration import KubeletPorts, kube_proxy_configuration, kubelet_configuration
from tools.cluster.requirements import how_to_get, missing_tools

PAIR = KeyPair(Path("/pki/x.crt"), Path("/pki/x.key"))
NETWORK = NodeNetwork("mcp0", "10.244.0.0/24", "10.244.0.1")


def api_arguments(address: str | None) -> list[str]:
    return api_server_arguments(
        etcd_port=1,
        port=2,
        authority=Path("/pki/ca.crt"),
        serving=PAIR,
        account_key=Path("/pki/sa.key"),
        front_proxy_authority=Path("/pki/front.crt"),
        front_proxy_client=PAIR,
        kubelet_client=PAIR,
        advertise_address=address,
    )


def test_without_nodes_the_api_server_stays_on_loopback() -> None:
    arguments = api_arguments(None)
    assert "--bind-address=127.0.0.1" in arguments
    assert not any(argument.startswith("--advertise-address") for argument in arguments)


def test_with_a_node_pods_reach_the_api_server_on_the_bridge() -> None:
    assert {"--bind-address=0.0.0.0", "--advertise-address=10.244.0.1"} <= set(api_arguments("10.244.0.1"))
    assert {"10.96.0.1", "10.244.0.1", "127.0.0.1"} <= set(serving_hosts("10.244.0.1"))


def test_a_scheduler_configuration_keeps_what_was_given_and_connects_to_the_run() -> None:
    given = (
        "clientConnection: {qps: 500, kubeconfig: /elsewhere}\nextenders: [{urlPrefix: http://127.0.0.1:1}]\n"
    )
    content = yaml.safe_load(scheduler_configuration(given, Path("/run/kubeconfig")))
    assert content["kind"] == "KubeSchedulerConfiguration"
    assert content["clientConnection"] == {"qps": 500, "kubeconfig": "/run/kubeconfig"}
    assert content["leaderElection"] == {"leaderElect": False}
    assert content["extenders"] == [{"urlPrefix": "http://127.0.0.1:1"}]


def test_a_kubeconfig_carries_its_certificates() -> None:
    content = kubeconfig("https://127.0.0.1:2", b"ca", b"cert", b"key")
    assert content["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:2"
    assert base64.b64decode(content["users"][0]["user"]["client-key-data"]) == b"key"


def test_subjects_and_alternative_names_read_as_openssl_wants_them() -> None:
    assert subject("system:node:a", ["system:nodes"]) == "/O=system:nodes/CN=system:node:a"
    assert alternative_names(["10.0.0.1", "localhost"]) == "subjectAltName=IP:10.0.0.1,DNS:localhost"


def test_a_certificate_is_trusted_through_its_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    pair = authority.issue("serving", "name", hosts=["127.0.0.1"])
    command = [
        "openssl",
        "verify",
        "-CAfile",
        authority.certificate,
        "-verify_ip",
        "127.0.0.1",
        pair.certificate,
    ]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert pair.key.stat().st_mode & 0o077 == 0


def test_containerd_keeps_everything_in_the_folder_of_the_run() -> None:
    content = tomllib.loads(containerd.configuration(Path("/run/x")))
    plugin = content["plugins"]["io.containerd.grpc.v1.cri"]
    assert plugin["restrict_oom_score_adj"] is True
    assert plugin["enable_cdi"] is True
    assert plugin["netns_mounts_under_state_dir"] is True
    assert all(
        path.startswith("/run/x/") for path in (content["root"], content["state"], content["grpc"]["address"])
    )


def test_leftovers_of_containerd_outside_its_folder_are_found_by_container(tmp_path: Path) -> None:
    task = tmp_path / "run/containerd/state/io.containerd.runtime.v2.task/k8s.io/abc"
    task.mkdir(parents=True)
    (task / "address").write_text("unix:///run/containerd/s/socket")
    results = tmp_path / "results"
    results.mkdir()
    for name in ("pods-abc-eth0", "pods-other-eth0"):
        (results / name).touch()
    found = containerd.outside_folder(tmp_path / "run", results)
    assert found == [Path("/run/containerd/s/socket"), results / "pods-abc-eth0"]


def test_pods_share_the_bridge_of_the_node() -> None:
    (bridge,) = containerd.pod_network("mcp0", "10.244.0.0/24", Path("/run/leases"))["plugins"]
    assert (bridge["bridge"], bridge["isGateway"], bridge["hairpinMode"]) == ("mcp0", True, True)


def test_a_network_that_the_machine_uses_is_passed_over() -> None:
    assert str(choose_subnet(["192.0.2.2/24", "::1/128"])) == "10.244.0.0/24"
    assert str(choose_subnet(["10.244.0.9/23"])) == "10.244.2.0/24"
    with pytest.raises(ClusterError, match="is in use"):
        choose_subnet(["10.0.0.1/8"])


def test_the_kubelet_does_not_evict_on_a_busy_machine() -> None:
    content = kubelet_configuration(
        Path("/run/x"), KubeletPorts(1, 2), Path("/pki/ca.crt"), PAIR, "mcp2026-x"
    )
    assert content["failSwapOn"] is False
    assert content["evictionHard"]["nodefs.available"] == "1%"
    assert content["cgroupRoot"] == "/mcp2026-x"
    assert content["authentication"]["anonymous"] == {"enabled": False}


def test_kube_proxy_leaves_the_connection_limits_of_the_machine_alone() -> None:
    content = kube_proxy_configuration(Path("/run/x"), "node", NETWORK, 1, 2)
    assert content["mode"] == "nftables"
    assert content["conntrack"]["maxPerCore"] == 0
    assert content["conntrack"]["min"] == 0


def test_a_played_node_offers_the_resources_it_was_given() -> None:
    node = played_node("a", {"mcp2026.io/gpu": "8"})
    assert node["status"]["allocatable"]["mcp2026.io/gpu"] == "8"
    assert node["status"]["allocatable"]["cpu"] == "64"


def test_an_image_written_by_hand_is_whole_and_always_the_same(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"#!")
    archives = [
        write_program_image(tmp_path / name, "localhost/x:1", {"/bin/x": program}, ["/bin/x"])
        for name in "ab"
    ]
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    (manifest,) = json.loads(files["manifest.json"])
    assert manifest["RepoTags"] == ["localhost/x:1"]
    config = json.loads(files[manifest["Config"]])
    layer = files[manifest["Layers"][0]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert [(member.name, member.mode) for member in tar] == [("bin", 0o755), ("bin/x", 0o755)]


def test_what_a_level_lacks_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert any(text.startswith("root") for text in missing_tools(Level.NODE))
    assert not any(text.startswith("root") for text in missing_tools(Level.CONTROL_PLANE))
    assert how_to_get(Level.NODE).endswith("python -m tools.cluster prepare --level node")
