"""`mcp2026 local` with real server processes: it serves, checks, stops, and leaves nothing behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from mcp2026.cli.errors import CommandError
from mcp2026.cli.local_cluster import free_ports
from mcp2026.runtime.model.ir.writing import Origin, describe_source, write_ir_file
from tools.models.catalogue import generate

EXAMPLES = Path(__file__).parents[3] / "examples"
SECONDS = 60


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    generate("mlp", folder)
    return folder


def model_file(folder: Path, **spec: object) -> Path:
    versions = [{"versionId": "v1", "uri": "pvc://models/mlp.onnx"}]
    resource = {
        "apiVersion": "mcp2026.io/v1alpha1",
        "kind": "InferenceModel",
        "metadata": {"name": "mlp"},
        "spec": {"versions": versions, **spec},
    }
    path = folder / "mlp.yaml"
    path.write_text(yaml.safe_dump(resource))
    return path


def command(tmp_path: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return a command line and an environment in which temporary folders lie where a test can see them."""
    temporary = tmp_path / "temporary"
    temporary.mkdir(exist_ok=True)
    return [sys.executable, "-u", "-m", "mcp2026.cli", *arguments], {**os.environ, "TMPDIR": str(temporary)}


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line, environment = command(tmp_path, *arguments)
    return subprocess.run(
        line, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def left_behind(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "temporary").glob("mcp2026-local-*"))


def servers(tmp_path: Path) -> list[int]:
    """Return the processes whose command line names the test's private folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if str(tmp_path / "temporary").encode() in line and state != "Z":
                found.append(int(entry.name))
    return found


def test_a_checked_inference_agrees_with_onnx_runtime(tmp_path: Path, models: Path) -> None:
    file = model_file(
        tmp_path,
        replicas=2,
        versions=[
            {"versionId": "v1", "weight": 90, "uri": "pvc://models/mlp.onnx"},
            {"versionId": "v2", "weight": 10, "uri": "pvc://models/mlp.onnx"},
        ],
    )
    ended = run(tmp_path, "local", "-f", str(file), "--volume", f"models={models}", "--port", "0", "--check")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "ResourceAllocated: Pending to Running" in ended.stdout
    assert re.search(r"^mlp +Running +True +v1=90,v2=10 +0 +2 +2 +\d+s$", ended.stdout, re.MULTILINE)
    assert ended.stdout.count("max difference from ONNX Runtime alone") == 4
    assert ended.stdout.rstrip().endswith("==> stopped")
    assert left_behind(tmp_path) == []
    assert servers(tmp_path) == []


def test_the_example_with_tenants_is_served_and_answers(tmp_path: Path, models: Path) -> None:
    file = EXAMPLES / "shared.yaml"
    ended = run(tmp_path, "local", "-f", str(file), "--volume", f"models={models}", "--port", "0", "--check")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("max difference from ONNX Runtime alone") == 1


def test_a_file_in_our_own_format_is_served_and_answers(tmp_path: Path, models: Path) -> None:
    origin = Origin(models / "mlp.onnx", describe_source(models / "mlp.onnx"), "shared", "none", None)
    write_ir_file(origin, tmp_path / "mlp.mcpir", lambda done, total: None, replace=False)
    version = {"versionId": "v1", "uri": "pvc://models/mlp.mcpir", "format": "IR"}
    file = model_file(tmp_path, versions=[version])
    ended = run(
        tmp_path, "local", "-f", str(file), "--volume", f"models={tmp_path}", "--port", "0", "--check"
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("max difference from ONNX Runtime alone") == 1


@pytest.fixture
def serving(tmp_path: Path, models: Path) -> Iterator[subprocess.Popen[str]]:
    """Give a command at the moment when it is ready.

    It starts with SIGINT ignored, as a shell starts what runs in its background.
    """
    line, environment = command(
        tmp_path, "local", "-f", str(model_file(tmp_path)), "--volume", f"models={models}", "--port", "0"
    )
    process = subprocess.Popen(
        line,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert process.stdout is not None
    for said in process.stdout:
        if said.startswith("==> try:"):
            break
    assert servers(tmp_path)
    yield process
    process.kill()
    process.communicate()


def wait_until_gone(tmp_path: Path) -> bool:
    deadline = time.monotonic() + 20
    while servers(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not servers(tmp_path)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name)
def test_told_to_stop_it_ends_its_servers_and_removes_its_folder(
    serving: subprocess.Popen[str], tmp_path: Path, how: signal.Signals
) -> None:
    serving.send_signal(how)
    said, errors = serving.communicate(timeout=30)
    assert serving.returncode == 0, errors
    assert "==> stopped" in said
    assert servers(tmp_path) == []
    assert left_behind(tmp_path) == []


def test_even_killed_it_leaves_no_server(serving: subprocess.Popen[str], tmp_path: Path) -> None:
    serving.kill()
    serving.wait()
    assert wait_until_gone(tmp_path)


def test_a_server_that_dies_ends_the_command_with_its_reason(
    serving: subprocess.Popen[str], tmp_path: Path
) -> None:
    for server in servers(tmp_path):
        os.kill(server, signal.SIGKILL)
    _, errors = serving.communicate(timeout=30)
    assert serving.returncode == 1
    assert "ContainerFailing: pod mlp-0: ended once, with exit code 137" in errors


def test_a_change_of_the_file_is_served_by_the_same_processes(
    serving: subprocess.Popen[str], tmp_path: Path
) -> None:
    said = serving.stdout
    assert said is not None

    def wait_for(words: str) -> str:
        return next(line for line in said if words in line)

    before = servers(tmp_path)
    both = [{"versionId": f"v{n}", "weight": 50, "uri": "pvc://models/mlp.onnx"} for n in (1, 2)]
    model_file(tmp_path, versions=both, batching={"maxBatchSize": 64})
    wait_for("mlp: v1=50,v2=50 from")
    wait_for("RevisionLive: revision 2 is live on 1 of 1 pods")
    model_file(tmp_path, versions=both, workers=2)
    assert "workers" in wait_for("the change is not taken")
    model_file(tmp_path, versions=[{"versionId": "v3", "uri": "pvc://models/missing.onnx"}])
    assert "version v3: no file" in wait_for("the change is not taken")
    model_file(tmp_path, batching={"maxBatchSize": 1000})
    assert "spec.batching.maxBatchSize" in wait_for("the change is not taken")
    model_file(tmp_path)
    wait_for("RevisionLive: revision 3 is live on 1 of 1 pods")
    assert servers(tmp_path) == before


def test_a_version_that_the_servers_refuse_is_told_and_the_old_one_serves_on(
    tmp_path: Path, models: Path, serving: subprocess.Popen[str]
) -> None:
    bad = models / "bad.onnx"
    bad.write_bytes(b"not a model")
    model_file(tmp_path, versions=[{"versionId": "v2", "uri": "pvc://models/bad.onnx"}])
    said = serving.stdout
    assert said is not None
    told = next(line for line in said if "a revision cannot be served" in line)
    assert "bad.onnx" in told
    model_file(tmp_path)
    assert next(line for line in said if "RevisionLive: revision 3" in line)
    assert serving.poll() is None


def test_a_busy_port_is_refused_with_another_one_to_try(tmp_path: Path, models: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        file = model_file(tmp_path)
        ended = run(tmp_path, "local", "-f", str(file), "--volume", f"models={models}", "--port", str(port))
    assert ended.returncode == 1
    assert f"mcp2026: port {port} cannot be used: Address already in use; choose another one" in ended.stderr


def test_with_a_port_of_its_own_the_ports_for_grpc_follow_those_of_all_replicas(
    tmp_path: Path, models: Path
) -> None:
    first = free_ports(4)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first + 3))
        taken.listen()
        file = model_file(tmp_path, replicas=2)
        ended = run(tmp_path, "local", "-f", str(file), "--volume", f"models={models}", "--port", str(first))
    assert ended.returncode == 1
    assert f"service mlp: 127.0.0.1:{first}, gRPC 127.0.0.1:{first + 2}" in ended.stdout
    assert f"mcp2026: port {first + 3} cannot be used" in ended.stderr
    assert servers(tmp_path) == []


def test_neighbouring_ports_are_found_or_refused() -> None:
    first = free_ports(3)
    for port in range(first, first + 3):
        with socket.socket() as free:
            free.bind(("127.0.0.1", port))
    with pytest.raises(CommandError, match="--port PORT"):
        free_ports(70_000)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    ended = run(
        tmp_path, "local", "-f", str(model_file(tmp_path)), "--volume", f"models={empty}", "--port", "0"
    )
    assert ended.returncode == 1
    assert f"mcp2026: version v1: no file {empty}/mlp.onnx" in ended.stderr
    assert left_behind(tmp_path) == []


def test_a_file_that_is_no_model_is_blocked_with_what_the_server_said(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "mlp.onnx").write_bytes(b"not a model")
    ended = run(
        tmp_path, "local", "-f", str(model_file(tmp_path)), "--volume", f"models={folder}", "--port", "0",
        "--timeout", "20",
    )  # fmt: skip
    assert ended.returncode == 1
    assert "mlp.onnx" in ended.stderr
    assert servers(tmp_path) == []
    assert left_behind(tmp_path) == []


REFUSED = [
    ("out of range", {"batching": {"maxBatchSize": 200}}, "allowed: an integer from 4 to 128, default 32"),
    ("dependencies", {"dependsOn": ["tokenizer"]}, "mlp waits for tokenizer"),
    ("no replicas", {"replicas": 0}, "spec.replicas is 0"),
]


@pytest.mark.parametrize(("spec", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_cannot_be_served_is_refused_before_anything_starts(
    tmp_path: Path, spec: dict[str, object], said: str
) -> None:
    ended = run(tmp_path, "local", "-f", str(model_file(tmp_path, **spec)))
    assert ended.returncode == 1
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "kind: Pod\napiVersion: v1\n",
            "Pod of v1 is not served; allowed: InferenceModel of mcp2026.io/v1alpha1",
        ),
        ("a: [", "is not YAML"),
        (b"\xff\xfe\x00", "is not YAML"),
        ("[" * 20_000, "nested too deeply; allowed: one InferenceModel"),
        ("", "holds 0 documents; allowed: one InferenceModel"),
    ],
    ids=["another kind", "no YAML", "no text", "lists without end", "nothing"],
)
def test_another_file_is_refused(tmp_path: Path, content: str | bytes, said: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    ended = run(tmp_path, "local", "-f", str(path))
    assert ended.returncode == 1
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("path", sorted((EXAMPLES / "bad").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_bad_example_is_refused_by_the_local_command_too(path: Path) -> None:
    from mcp2026.cli.model_file import read_model

    with pytest.raises(CommandError, match="; allowed: "):
        read_model(path)


def test_the_magika_example_answers_right(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / "magika_client.py"), "--serve"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "7 of 7 right, 7 inferences" in ended.stdout
    assert [entry for pattern in ("mcp2026-*", "magika-*") for entry in tmp_path.glob(pattern)] == []


@pytest.mark.parametrize("given", ["nan", "0", "-1", "inf", "1e9"])
def test_a_timeout_that_is_none_is_refused_with_its_range(tmp_path: Path, given: str) -> None:
    ended = run(tmp_path, "local", "-f", str(model_file(tmp_path)), "--timeout", given)
    assert ended.returncode == 2
    assert "--timeout" in ended.stderr
