"""In a round every server comes before any comes again; names and folders that do not exist are refused."""

import subprocess
from pathlib import Path

import pytest

from bench.__main__ import main, parser
from bench.comparison import Plan
from bench.cores import Cores
from bench.errors import BenchError
from bench.installation import installable, requirements_file
from bench.peers.catalogue import PEERS, find_peer, is_peer

ROOT = Path(__file__).parents[3]


def test_rounds_are_interleaved_over_servers() -> None:
    plan = Plan(["mlp"], ["json", "grpc"], ["a", "b"], [1, 8], rounds=2, seconds=1)
    visits = [(number, server, len(cells)) for number, _, server, cells in plan.visits()]
    assert visits == [(0, "a", 4), (0, "b", 4), (1, "a", 4), (1, "b", 4)]
    assert plan.size == 16


def test_one_start_of_a_server_serves_all_its_protocols_and_loads() -> None:
    plan = Plan(["mlp"], ["json", "grpc"], ["a"], [1, 8], rounds=1, seconds=1)
    ((_, _, _, cells),) = plan.visits()
    assert [(cell.protocol, cell.concurrency) for cell in cells] == [
        ("json", 1),
        ("json", 8),
        ("grpc", 1),
        ("grpc", 8),
    ]


def test_every_environment_belongs_to_a_peer_and_pins_all_versions() -> None:
    assert set(installable()) == {peer.requirements for peer in PEERS.values() if peer.requirements}
    for name in installable():
        lines = requirements_file(name).read_text().splitlines()
        assert all("==" in line for line in lines if not line.startswith("#"))


def test_another_checkout_of_ours_is_found_by_its_folder(tmp_path: Path) -> None:
    assert find_peer(f"mcp2026@{ROOT}").name == f"mcp2026@{ROOT}"
    with pytest.raises(BenchError, match="no checkout"):
        find_peer(f"mcp2026@{tmp_path}")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("triton", True),
        ("kserve", True),
        ("mcp2026", False),
        ("mcp2026@x", False),
        ("bare", False),
        ("raw", False),
    ],
)
def test_peers_are_the_servers_of_others(name: str, expected: bool) -> None:
    assert is_peer(name) == expected


def test_an_unknown_server_is_refused_with_those_that_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["compare", "--client", "python", "--servers", "apache", "--output", str(tmp_path)]
    assert main(arguments) == 1
    assert "no server 'apache'; known: raw" in capsys.readouterr().err


def test_a_program_runs_on_its_cores_and_keeps_its_arguments() -> None:
    assert Cores("0,1").command(["echo", "a b"]) == ["taskset", "-c", "0,1", "echo", "a b"]
    command = Cores("0", niceness=5).command(["sh", "-c", 'nice; echo "$0"', "a b"])
    run = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=True)
    assert run.stdout.splitlines()[1:] == ["a b"]
    assert int(run.stdout.splitlines()[0]) >= 5


@pytest.mark.parametrize(
    "arguments",
    [
        ["--models", "gpt"],
        ["--protocols", "carrier-pigeon"],
        ["--concurrency", "0"],
        ["--rounds", "0"],
        ["--seconds", "-1"],
    ],
)
def test_wrong_options_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["compare", *arguments])
    assert ended.value.code == 2
