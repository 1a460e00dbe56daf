"""Every value has an effect, bad ones are refused, and the programs understand what the chart tells them."""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp2026.api import names
from mcp2026.device_plugin.configuration import parse_configuration
from mcp2026.device_plugin.settings import read_settings as read_plugin_settings
from mcp2026.operator.settings import read_settings as read_operator_settings
from mcp2026.scheduler_extender.settings import read_settings as read_extender_settings
from tests.cluster.chart.rendering import CHART, EVERYTHING_SET, VALUES, VARIANTS, by_kind, containers
from tools.cluster.cluster import Cluster

pytestmark = pytest.mark.control_plane


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
        "deviceListStrategy": ["cdi-cri"],
        "driverLibraries": "/other",
        "updateStrategy": "OnDelete",
    }
    if path[-1] == "configuration":
        return {"packing": "Pack"} if "extender" in path else {"sharing": {"mode": "TimeSlice"}}
    if path[-1] == "migResources":
        return ["mig-1g.5gb"]
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
        (
            "devicePlugin.configuration.health.ignoreXids={1}",
            "additional properties 'ignoreXids' not allowed",
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


def test_the_programs_understand_their_command_lines(render: Callable[..., list[dict[str, Any]]]) -> None:
    for values in ({}, EVERYTHING_SET):
        objects = render(values)
        extender = containers(by_kind(objects, "Deployment", "scheduler"))["extender"]
        settings = read_extender_settings(extender["command"][1:], {})
        assert extender["command"][0] == "mcp2026-scheduler-extender"
        assert settings.metrics_port == extender["ports"][0]["containerPort"]
        assert settings.election is not None
        election = yaml.safe_load(by_kind(objects, "ConfigMap", "scheduler")["data"]["scheduler.yaml"])[
            "leaderElection"
        ]
        schedulers = f"{election['resourceNamespace']}/{election['resourceName']}"
        assert settings.election.beside == schedulers
        rights = by_kind(objects, "Role", "scheduler-lease")["rules"]
        written = {lease.partition("/")[2] for lease in (settings.election.lease, schedulers)}
        assert {name for rule in rights for name in rule.get("resourceNames", ())} == written
        named = {each["name"]: each for each in extender["env"]}
        assert named["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"

        plugin = containers(by_kind(objects, "DaemonSet"))["device-plugin"]
        assert plugin["command"][0] == "mcp2026-device-plugin"
        found = read_plugin_settings(plugin["command"][1:], {"NODE_NAME": "n"})
        assert found.metrics_port == plugin["ports"][0]["containerPort"]
        mounts = {mount["mountPath"] for mount in plugin["volumeMounts"]}
        told_plugin = by_kind(objects, "ConfigMap", "device-plugin")["data"]
        parse_configuration(told_plugin[Path(found.configuration_file or "").name], "the chart's")
        assert {str(found.plugin_directory), str(found.pod_resources_socket.parent)} <= mounts
        configuration = yaml.safe_load(by_kind(objects, "ConfigMap", "scheduler")["data"]["scheduler.yaml"])
        (extension,) = configuration["extenders"]
        assert {"name": found.names.outside(names.GPU_RESOURCE), "ignoredByScheduler": False} in extension[
            "managedResources"
        ]
        assert extension["urlPrefix"] == f"http://{settings.host}:{settings.port}/v1"

        operator = containers(by_kind(objects, "Deployment", "operator"))["operator"]
        assert operator["command"][0] == "mcp2026-operator"
        told = read_operator_settings(operator["command"][1:], {})
        assert told.liveness_port == operator["ports"][0]["containerPort"]
        assert list(told.namespaces) == values.get("operator", {}).get("watchNamespaces", [])
        assert told.pods.image_pull_policy == operator["imagePullPolicy"]
        assert told.pods.scheduler_name == names.SCHEDULER_NAME
    assert containers(by_kind(render(), "Deployment", "operator"))["operator"]["image"] == (
        read_operator_settings(
            containers(by_kind(render(), "Deployment", "operator"))["operator"]["command"][1:], {}
        ).pods.runtime_image
    )
