"""The chart on a real API server: what it installs, what each program may do there, what it leaves behind."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp2026.api import names
from mcp2026.device_plugin.settings import parse_settings
from mcp2026.operator.__main__ import parse_settings as parse_operator_settings
from mcp2026.scheduler_extender.settings import read_settings
from tools.cluster.cluster import Cluster
from tools.cluster.errors import ClusterError
from tools.cluster.go_programs import build, program_path

pytestmark = pytest.mark.control_plane

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "mcp2026"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
NAMESPACE = "mcp2026-system"
NOBODY = 65532

EVERYTHING_SET: dict[str, Any] = {
    "image": {
        "registry": "images.example",
        "digest": f"sha256:{'0' * 64}",
        "pullPolicy": "Never",
        "pullSecrets": [{"name": "s"}],
    },
    "logFormat": "text",
    "operator": {
        "watchNamespaces": ["default", "kube-public"],
        "runtimeImage": "runtime:1",
        "extraEnv": [{"name": "A", "value": "1"}],
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "priorityClassName": "",
    },
    "scheduler": {
        "replicas": 2,
        "extenderTimeout": "500ms",
        "extender": {"extraEnv": [{"name": "B", "value": "2"}]},
    },
    "devicePlugin": {
        "runtimeClassName": "nvidia",
        "passDeviceNodes": True,
        "failOnNoGpus": True,
        "extraVolumes": [{"name": "driver", "hostPath": {"path": "/opt/driver"}}],
        "extraVolumeMounts": [{"name": "driver", "mountPath": "/opt/driver", "readOnly": True}],
        "extraEnv": [{"name": "LD_LIBRARY_PATH", "value": "/opt/driver"}],
        "maxUnavailable": 2,
    },
}
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything set": EVERYTHING_SET,
    "operator alone": {"scheduler": {"enabled": False}, "devicePlugin": {"enabled": False}},
    "scheduler alone": {"operator": {"enabled": False}, "devicePlugin": {"enabled": False}},
    "device plugin alone": {
        "operator": {"enabled": False},
        "scheduler": {"enabled": False},
        "devicePlugin": {"resourcePrefix": "nvidia.com"},
    },
}


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs helm, away from the repositories and plugins of whoever runs the tests."""
    home = tmp_path_factory.mktemp("helm")
    program = build("helm")
    environment = {**os.environ, **{f"HELM_{part}_HOME": str(home) for part in ("CACHE", "CONFIG", "DATA")}}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(program), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, env=environment
        )

    return run


@pytest.fixture(scope="module")
def render(helm: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., list[dict[str, Any]]]:
    """Return a function from values to the objects that the chart makes of them."""

    def objects(values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        answer = helm(
            "template", "mcp2026", str(CHART), "--namespace", NAMESPACE, "--kube-version", "1.34.4",
            *as_flags(values or {}),
        )  # fmt: skip
        assert answer.returncode == 0, answer.stderr
        return [item for item in yaml.safe_load_all(answer.stdout) if item]

    return objects


@pytest.fixture
def namespace(control_plane: Cluster) -> Iterator[str]:
    control_plane.kubectl("create", "namespace", NAMESPACE)
    yield NAMESPACE
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait")


@pytest.fixture
def installed(
    control_plane: Cluster, namespace: str, helm: Callable[..., subprocess.CompletedProcess[str]]
) -> Iterator[str]:
    flags = ("--namespace", namespace, "--kubeconfig", str(control_plane.kubeconfig))
    answer = helm("install", "mcp2026", str(CHART), *flags)
    assert answer.returncode == 0, answer.stderr
    yield namespace
    helm("uninstall", "mcp2026", "--wait", *flags)


def as_flags(values: Mapping[str, Any]) -> list[str]:
    return [word for key, value in values.items() for word in ("--set-json", f"{key}={json.dumps(value)}")]


def by_kind(objects: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    (found,) = [item for item in objects if item["kind"] == kind and name in item["metadata"]["name"]]
    return found


def containers(workload: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {container["name"]: container for container in workload["spec"]["template"]["spec"]["containers"]}


def leaves(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key), value


def another(path: tuple[str, ...], value: Any) -> Any:
    """Return a valid value other than the default."""
    special: dict[str, Any] = {
        "pullPolicy": "Always",
        "logFormat": "text",
        "extenderTimeout": "7s",
        "maxUnavailable": 3,
        "cpu": "70m",
        "memory": "777Mi",
        "digest": f"sha256:{'a' * 64}",
        "pullSecrets": [{"name": "other"}],
        "watchNamespaces": ["other"],
        "command": ["/other"],
        "drop": ["NET_RAW"],
        "type": "Unconfined",
        "tolerations": [{"key": "other", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "nodeSelector": {"other": "yes"},
        "extraEnv": [{"name": "OTHER", "value": "1"}],
        "extraVolumes": [{"name": "other", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "other", "mountPath": "/other"}],
        "kubeletDirectory": "/other",
        "resourcePrefix": "other.example",
    }
    if path[-1] in special:
        return special[path[-1]]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return "other"


@pytest.mark.parametrize(
    ("path", "default"), [pytest.param(*leaf, id=".".join(leaf[0])) for leaf in leaves(VALUES)]
)
def test_every_value_changes_what_is_installed(
    render: Callable[..., list[dict[str, Any]]], path: tuple[str, ...], default: Any
) -> None:
    others: dict[str, Any] = {}
    if path[-1] == "resourcePrefix":  # another one is refused beside the programs that know ours alone
        others = {"operator.enabled": False, "scheduler.enabled": False}
    given = {".".join(path): another(path, default)}
    assert render({**others, **given}) != render(others)


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS.keys())
def test_the_api_server_accepts_all_that_the_chart_makes(
    control_plane: Cluster,
    namespace: str,
    render: Callable[..., list[dict[str, Any]]],
    values: dict[str, Any],
) -> None:
    objects = render(values)
    answer = control_plane.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-f", "-", input=yaml.safe_dump_all(objects)
    )
    assert len(answer.splitlines()) == len(objects)


def test_lint_finds_nothing(helm: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    answer = helm("lint", "--strict", "--kube-version", "1.34.4", str(CHART))
    assert answer.returncode == 0, answer.stdout
    assert "[WARNING]" not in answer.stdout


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("scheduler.replicas=0", "at '/scheduler/replicas': minimum: got 0, want 1"),
        ("operator.watchNamespace=a", "at '/operator': additional properties 'watchNamespace' not allowed"),
        ("image.pullPolicy=Sometimes", "value must be one of 'Always', 'IfNotPresent', 'Never'"),
        (
            "devicePlugin.resourcePrefix=gpu",
            "at '/devicePlugin/resourcePrefix': 'gpu' does not match pattern",
        ),
    ],
)
def test_an_install_with_a_bad_value_is_refused(
    control_plane: Cluster,
    helm: Callable[..., subprocess.CompletedProcess[str]],
    flag: str,
    says: str,
) -> None:
    answer = helm("install", "bad", str(CHART), "--kubeconfig", str(control_plane.kubeconfig), "--set", flag)
    assert answer.returncode == 1
    assert says in answer.stderr
    assert (
        control_plane.get("deployments", "--all-namespaces", "--selector", "app.kubernetes.io/instance=bad")[
            "items"
        ]
        == []
    )


def test_install_upgrade_and_removal(
    control_plane: Cluster,
    namespace: str,
    helm: Callable[..., subprocess.CompletedProcess[str]],
    render: Callable[..., list[dict[str, Any]]],
) -> None:
    flags = ("--namespace", namespace, "--kubeconfig", str(control_plane.kubeconfig))

    def there(objects: list[dict[str, Any]]) -> list[str]:
        text = control_plane.kubectl(
            "get", "--ignore-not-found", "-o", "name", "-f", "-", input=yaml.safe_dump_all(objects)
        )
        return sorted(text.split())

    answer = helm("install", "mcp2026", str(CHART), *flags)
    assert answer.returncode == 0, answer.stderr
    assert "rollout status deployment/mcp2026-operator" in answer.stdout
    assert len(there(render())) == len(render())
    for plural in (names.INFERENCE_MODEL_PLURAL, names.GPU_TOPOLOGY_PLURAL):
        control_plane.wait(f"crd/{plural}.{names.GROUP}", "condition=Established")
    priority = control_plane.get("priorityclass", names.PRIORITY_CLASS_HIGH)
    assert priority["value"] == names.PRIORITY_CLASS_HIGH_VALUE
    assert not priority.get("globalDefault", False)

    second = helm(
        "install",
        "again",
        str(CHART),
        "--namespace",
        "default",
        "--kubeconfig",
        str(control_plane.kubeconfig),
    )
    assert second.returncode == 1
    assert "cannot be imported into the current release" in second.stderr

    answer = helm("upgrade", "mcp2026", str(CHART), *flags, *as_flags(EVERYTHING_SET))
    assert answer.returncode == 0, answer.stderr
    assert len(there(render(EVERYTHING_SET))) == len(render(EVERYTHING_SET))
    operator = control_plane.get("deployment", "mcp2026-operator", "-n", namespace)
    assert "--namespace=kube-public" in containers(operator)["operator"]["command"]
    bindings = control_plane.get("clusterrolebindings", "-l", "app.kubernetes.io/component=operator")
    assert bindings["items"] == []

    answer = helm(
        "upgrade", "mcp2026", str(CHART), *flags, "--set", "scheduler.enabled=false", "--reset-values"
    )
    assert answer.returncode == 0, answer.stderr
    assert (
        control_plane.get("deployments", "-n", namespace)["items"][0]["metadata"]["name"]
        == "mcp2026-operator"
    )
    assert there(render()) == there(render({"scheduler": {"enabled": False}}))

    answer = helm("uninstall", "mcp2026", "--wait", *flags)
    assert answer.returncode == 0, answer.stderr
    assert there([*render(), *render(EVERYTHING_SET)]) == []
    kinds = "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,priorityclasses,"
    kinds += "deployments,daemonsets,configmaps,poddisruptionbudgets,pods"
    left = control_plane.get(kinds, "--all-namespaces", "-l", "app.kubernetes.io/part-of=mcp2026")["items"]
    assert left == []
    kept = control_plane.kubectl("get", "crd", "-o", "name")
    assert f"{names.INFERENCE_MODEL_PLURAL}.{names.GROUP}" in kept


def test_operator_and_scheduler_fit_a_restricted_namespace(
    control_plane: Cluster, namespace: str, render: Callable[..., list[dict[str, Any]]]
) -> None:
    control_plane.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    objects = render()
    for account in (item for item in objects if item["kind"] == "ServiceAccount"):
        control_plane.apply(account)

    def admit(workload: dict[str, Any]) -> str:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": workload["metadata"]["name"], "namespace": namespace},
            "spec": workload["spec"]["template"]["spec"],
        }
        return control_plane.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))

    for name in ("mcp2026-operator", "mcp2026-scheduler"):
        assert "created" in admit(by_kind(objects, "Deployment", name))
    with pytest.raises(ClusterError, match="hostPath"):
        admit(by_kind(objects, "DaemonSet"))


def test_the_device_plugin_gets_no_privilege_beyond_root(render: Callable[..., list[dict[str, Any]]]) -> None:
    pod = by_kind(render(), "DaemonSet")["spec"]["template"]["spec"]
    context = pod["containers"][0]["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["allowPrivilegeEscalation"] is False
    assert "privileged" not in context
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


def test_the_programs_understand_their_command_lines(render: Callable[..., list[dict[str, Any]]]) -> None:
    for values in ({}, EVERYTHING_SET):
        objects = render(values)
        extender = containers(by_kind(objects, "Deployment", "scheduler"))["extender"]
        settings = read_settings(extender["command"][1:], {})
        assert extender["command"][0] == "mcp2026-scheduler-extender"
        assert settings.metrics_port == extender["ports"][0]["containerPort"]

        plugin = containers(by_kind(objects, "DaemonSet"))["device-plugin"]
        assert plugin["command"][0] == "mcp2026-device-plugin"
        found = parse_settings(plugin["command"][1:], {"NODE_NAME": "n"})
        assert found.health_port == plugin["ports"][0]["containerPort"]
        mounts = {mount["mountPath"] for mount in plugin["volumeMounts"]}
        assert {str(found.plugin_directory), str(found.pod_resources_socket.parent)} <= mounts
        configuration = yaml.safe_load(by_kind(objects, "ConfigMap")["data"]["scheduler.yaml"])
        (extension,) = configuration["extenders"]
        assert extension["managedResources"] == [{"name": found.resource_name, "ignoredByScheduler": False}]
        assert extension["urlPrefix"] == f"http://{settings.host}:{settings.port}/v1"

        operator = containers(by_kind(objects, "Deployment", "operator"))["operator"]
        assert operator["command"][0] == "mcp2026-operator"
        told = parse_operator_settings(operator["command"][1:], {})
        assert told.liveness_port == operator["ports"][0]["containerPort"]
        assert list(told.namespaces) == values.get("operator", {}).get("watchNamespaces", [])
        assert told.pods.image_pull_policy == operator["imagePullPolicy"]
        assert told.pods.scheduler_name == names.SCHEDULER_NAME
    assert containers(by_kind(render(), "Deployment", "operator"))["operator"]["image"] == (
        parse_operator_settings(
            containers(by_kind(render(), "Deployment", "operator"))["operator"]["command"][1:], {}
        ).pods.runtime_image
    )


@pytest.mark.parametrize(
    ("account", "allowed", "refused"),
    [
        (
            "mcp2026-operator",
            [
                "list inferencemodels.mcp2026.io", "patch inferencemodels.mcp2026.io/status",
                "create deployments.apps", "patch deployments.apps", "delete services", "watch configmaps",
                "list pods", "create events",
            ],
            [
                "get secrets", "create pods", "delete pods", "delete inferencemodels.mcp2026.io",
                "create clusterroles.rbac.authorization.k8s.io", "patch nodes", "create pods/exec",
                "list namespaces",
            ],
        ),
        (
            "mcp2026-scheduler",
            [
                "list nodes", "watch pods", "list gputopologies.mcp2026.io", "create pods/binding",
                "update leases.coordination.k8s.io/mcp2026-scheduler",
                "get configmaps/extension-apiserver-authentication -n kube-system",
            ],
            [
                "get secrets", "create pods", "patch gputopologies.mcp2026.io", "patch nodes",
                "update leases.coordination.k8s.io/other",
            ],
        ),
        (
            "mcp2026-device-plugin",
            [
                "get gputopologies.mcp2026.io", "create gputopologies.mcp2026.io",
                "patch gputopologies.mcp2026.io", "patch gputopologies.mcp2026.io/status", "get nodes",
            ],
            [
                "delete gputopologies.mcp2026.io", "list nodes", "patch nodes", "list pods", "get secrets",
                "create events",
            ],
        ),
    ],
)  # fmt: skip
def test_each_program_may_do_its_work_and_no_more(
    control_plane: Cluster, installed: str, account: str, allowed: list[str], refused: list[str]
) -> None:
    def may(right: str) -> bool:
        verb, what, *rest = right.split()
        resource, _, sub = what.partition("/")
        subresources = {"status", "binding", "exec"}
        namespace = rest[1] if rest else installed
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{installed}:{account}",
                "resourceAttributes": {
                    "verb": verb,
                    "resource": resource.partition(".")[0],
                    "group": resource.partition(".")[2],
                    "namespace": namespace,
                    "subresource" if sub in subresources else "name": sub,
                },
            },
        }
        answer = control_plane.kubectl("create", "-f", "-", "-o", "json", input=json.dumps(review))
        return bool(json.loads(answer)["status"]["allowed"])

    assert [right for right in allowed if not may(right)] == []
    assert [right for right in refused if may(right)] == []


def test_rights_in_named_namespaces_end_there(
    control_plane: Cluster, namespace: str, helm: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    flags = ("--namespace", namespace, "--kubeconfig", str(control_plane.kubeconfig))
    answer = helm("install", "mcp2026", str(CHART), *flags, "--set", "operator.watchNamespaces={kube-public}")
    assert answer.returncode == 0, answer.stderr
    try:
        who = f"--as=system:serviceaccount:{namespace}:mcp2026-operator"
        assert (
            control_plane.kubectl(
                "auth", "can-i", "create", "deployments.apps", "-n", "kube-public", who
            ).strip()
            == "yes"
        )
        with pytest.raises(ClusterError):
            control_plane.kubectl("auth", "can-i", "create", "deployments.apps", "-n", "default", who)
    finally:
        helm("uninstall", "mcp2026", "--wait", *flags)


def kubeconfig_of(cluster: Cluster, namespace: str, account: str, folder: Path) -> Path:
    """Write a kubeconfig with a token of a service account: the rights that the program has in its pod."""
    configuration = yaml.safe_load(cluster.kubeconfig.read_text())
    token = cluster.kubectl("create", "token", account, "-n", namespace).strip()
    for user in configuration["users"]:
        user["user"] = {"token": token}
    path = folder / f"{account}.kubeconfig"
    path.write_text(yaml.safe_dump(configuration))
    return path


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(command: list[str], log: Path, environment: Mapping[str, str] | None = None) -> Iterator[Path]:
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}
        )
        try:
            yield log
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until(log: Path, holds: Callable[[], bool], what: str, timeout_s: float = 40) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}\n{log.read_text()[-4000:]}"
        time.sleep(0.2)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def test_scheduler_and_extender_work_with_the_rights_and_the_configuration_of_the_chart(
    control_plane: Cluster, installed: str, tmp_path: Path
) -> None:
    """A pod that asks for a GPU gets to the extender, whose answer comes back as the reason on the pod."""
    kubeconfig = kubeconfig_of(control_plane, installed, "mcp2026-scheduler", tmp_path)
    configuration = yaml.safe_load(
        control_plane.get("configmap", "mcp2026-scheduler", "-n", installed)["data"]["scheduler.yaml"]
    )
    extender_port, health_port, secure_port = free_port(), free_port(), free_port()
    # What a machine without pods needs otherwise: a way to the API server, and ports that are free here.
    configuration["clientConnection"] = {"kubeconfig": str(kubeconfig)}
    (extension,) = configuration["extenders"]
    extension["urlPrefix"] = extension["urlPrefix"].replace(str(names.EXTENDER_PORT), str(extender_port))
    file = tmp_path / "scheduler.yaml"
    file.write_text(yaml.safe_dump(configuration))

    extender = [
        sys.executable, "-P", "-m", "mcp2026.scheduler_extender", "--port", str(extender_port),
        "--metrics-host", "127.0.0.1", "--metrics-port", str(health_port), "--kubeconfig", str(kubeconfig),
    ]  # fmt: skip
    scheduler = [
        str(program_path("kube-scheduler")), f"--config={file}", f"--secure-port={secure_port}",
        "--bind-address=127.0.0.1", f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]  # fmt: skip
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "played"},
        "spec": {"taints": [{"key": "played", "effect": "NoSchedule"}]},
    }
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "10", names.GPU_RESOURCE: "2"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asks", "namespace": installed},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [
                {"name": "main", "image": "none", "resources": {"limits": {names.GPU_RESOURCE: "1"}}}
            ],
            "tolerations": [{"operator": "Exists"}],
        },
    }
    control_plane.apply(node)
    try:
        control_plane.kubectl(
            "patch", "node", "played", "--subresource=status", "--type=merge", "-p",
            json.dumps({"status": {"capacity": capacity, "allocatable": capacity}}),
        )  # fmt: skip
        with (
            running(extender, tmp_path / "extender.log") as extender_log,
            running(scheduler, tmp_path / "scheduler.log") as scheduler_log,
        ):
            until(extender_log, lambda: answers(f"http://127.0.0.1:{health_port}/readyz"), "the extender")

            def leads() -> bool:
                leases = control_plane.get("leases", "-n", installed)["items"]
                return any(
                    lease["metadata"]["name"] == names.SCHEDULER_NAME and lease["spec"].get("holderIdentity")
                    for lease in leases
                )

            until(scheduler_log, leads, "the scheduler's Lease")
            control_plane.apply(pod)

            def reason() -> str:
                status = control_plane.get("pod", "asks", "-n", installed)["status"]
                return " ".join(condition.get("message", "") for condition in status.get("conditions", []))

            until(scheduler_log, lambda: "GPUTopology" in reason(), "the extender's reason on the pod")
            for log in (extender_log, scheduler_log):
                assert "orbidden" not in log.read_text()
    finally:
        control_plane.kubectl(
            "delete", "pod", "asks", "-n", installed, "--ignore-not-found", "--force", "--grace-period=0"
        )
        control_plane.kubectl("delete", "node", "played")


def test_the_operator_works_with_the_rights_of_the_chart(
    control_plane: Cluster, installed: str, tmp_path: Path
) -> None:
    """An InferenceModel gets its Deployment, Service and ConfigMap, and a status."""
    kubeconfig = kubeconfig_of(control_plane, installed, "mcp2026-operator", tmp_path)
    deployed = containers(control_plane.get("deployment", "mcp2026-operator", "-n", installed))["operator"]
    port = free_port()
    command = [sys.executable, "-P", "-m", "mcp2026.operator", *deployed["command"][1:]]
    model = {
        "apiVersion": names.API_VERSION,
        "kind": names.INFERENCE_MODEL_KIND,
        "metadata": {"name": "resnet50", "namespace": installed},
        "spec": {"versions": [{"versionId": "v1", "weight": 100, "uri": "pvc://models/resnet50.onnx"}]},
    }
    operator = [*command, f"--liveness-port={port}"]
    with running(operator, tmp_path / "operator.log", {"KUBECONFIG": str(kubeconfig)}) as log:
        until(log, lambda: answers(f"http://127.0.0.1:{port}/healthz"), "the operator's liveness")
        control_plane.apply(model)
        children = ("deployments", "services", "configmaps")

        def has(kind: str) -> bool:
            label = f"{names.MODEL_LABEL}=resnet50"
            return bool(control_plane.get(kind, "-n", installed, "-l", label)["items"])

        for kind in children:
            until(log, lambda kind=kind: has(kind), f"a child of {kind}")  # type: ignore[misc]

        def phase() -> str:
            status = control_plane.get("inferencemodel", "resnet50", "-n", installed).get("status", {})
            return str(status.get("phase", ""))

        until(log, lambda: phase() == "Pending", "a status")
        control_plane.kubectl("delete", "inferencemodel", "resnet50", "-n", installed)
        for kind in children:
            until(log, lambda kind=kind: not has(kind), f"no child of {kind}")  # type: ignore[misc]
        assert "orbidden" not in log.read_text()
