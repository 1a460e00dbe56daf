"""The chart says what the code says: names, ports, numbers and CRDs, and its values fit their schema."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from mcp2026.api import names
from mcp2026.api.gpu_devices import mig_resource
from mcp2026.scheduler_extender.settings import LEASE_NAME
from mcp2026.topology.mig.tables import GEOMETRIES

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "mcp2026"
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def template(name: str) -> str:
    return (CHART / "templates" / name).read_text()


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the default values with one of them set; the path is dotted."""
    values = json.loads(json.dumps(VALUES))
    *parents, last = path.split(".")
    place = values
    for parent in parents:
        place = place[parent]
    place[last] = value
    return values


def leaves(values: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted path of every value; empty mappings and all lists are values."""
    found: list[str] = []
    for key, value in values.items():
        path = f"{prefix}{key}"
        found += leaves(value, f"{path}.") if isinstance(value, dict) and value else [path]
    return found


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_default_values_fit_the_schema() -> None:
    jsonschema.Draft7Validator(SCHEMA).validate(VALUES)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("replicas", 2, "Additional properties are not allowed"),
        ("operator.watchNamespace", "team-a", "Additional properties are not allowed"),
        ("operator.watchNamespaces", ["Team_A"], "does not match"),
        ("operator.watchNamespaces", ["a", "a"], "non-unique"),
        ("image.pullPolicy", "Sometimes", "is not one of"),
        ("image.repository", "", "does not match"),
        ("image.tag", "a/b", "does not match"),
        ("image.digest", "sha256:abc", "does not match"),
        ("logFormat", "xml", "is not one of"),
        ("scheduler.replicas", 0, "less than the minimum"),
        ("scheduler.extenderTimeout", "2", "does not match"),
        ("scheduler.extenderWeight", 0, "less than the minimum"),
        ("scheduler.image.tag", "", "is not valid under any"),
        ("devicePlugin.resourcePrefix", "gpu", "does not match"),
        ("devicePlugin.kubeletDirectory", "var/lib/kubelet", "does not match"),
        ("devicePlugin.maxUnavailable", "0%", "is not valid under any"),
        ("devicePlugin.metricsPort", 80, "less than the minimum"),
        ("devicePlugin.extraVolumeMounts", [{"name": "driver"}], "'mountPath' is a required property"),
    ],
)
def test_a_bad_value_is_refused(path: str, value: Any, says: str) -> None:
    with pytest.raises(jsonschema.ValidationError) as refused:
        jsonschema.Draft7Validator(SCHEMA).validate(changed(path, value))
    assert says in refused.value.message
    where = ".".join(str(step) for step in refused.value.absolute_path)
    assert path.startswith(where) or where.startswith(path)


def test_every_value_is_in_the_table_of_the_readme() -> None:
    rows = set(re.findall(r"^\| `([^`]+)` \|", (CHART / "README.md").read_text(), re.MULTILINE))
    grouped = {
        re.sub(r"\.(resources|securityContext|nodeSelector|affinity)\..*$", r".\1", path)
        for path in leaves(VALUES)
    }
    assert rows == grouped


def test_crds_of_the_chart_are_those_of_the_code() -> None:
    ours = {file.name: file.read_text() for file in (ROOT / "crds").glob("*.yaml")}
    assert ours
    assert {file.name: file.read_text() for file in (CHART / "crds").iterdir()} == ours


def test_chart_and_project_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert project is not None
    assert chart["appVersion"] == chart["version"] == project[1]


def test_the_priority_class_is_the_promised_one() -> None:
    text = template("priorityclass.yaml")
    assert f"name: {names.PRIORITY_CLASS_HIGH}\n" in text
    assert f"value: {names.PRIORITY_CLASS_HIGH_VALUE}\n" in text
    assert "globalDefault: false\n" in text


def test_ports_and_the_name_of_the_scheduler_are_those_of_the_api() -> None:
    assert f'"mcp2026.schedulerName" -}}}}\n{names.SCHEDULER_NAME}\n' in template("_helpers.tpl")
    assert f'"mcp2026.extenderLease" -}}}}\n{LEASE_NAME}\n' in template("_helpers.tpl")
    assert f"urlPrefix: http://127.0.0.1:{names.EXTENDER_PORT}/v1" in template("scheduler-config.yaml")
    assert f"--port={names.EXTENDER_PORT}" in template("scheduler.yaml")
    assert f"--metrics-port={names.METRICS_PORT}" in template("scheduler.yaml")
    assert VALUES["devicePlugin"]["metricsPort"] == names.METRICS_PORT
    assert f"--liveness-port={names.LIVENESS_PORT}" in template("operator.yaml")
    assert f"containerPort: {names.LIVENESS_PORT}}}" in template("operator.yaml")


def test_the_extender_is_asked_about_the_resource_that_the_plugin_offers() -> None:
    prefix, _, _ = names.GPU_RESOURCE.partition("/")
    assert VALUES["devicePlugin"]["resourcePrefix"] == prefix
    assert f'(ne $values.resourcePrefix "{prefix}")' in template("device-plugin.yaml")
    profiles = {profile.name for geometry in GEOMETRIES for profile in geometry.profiles}
    assert {f"{prefix}/{name}" for name in VALUES["scheduler"]["migResources"]} == set(
        map(mig_resource, profiles)
    )
    assert "- name: mcp2026.io/{{ . }}\n" in template("scheduler-config.yaml")


def test_rights_name_the_resources_of_the_api() -> None:
    assert f"apiGroups: [{names.GROUP}]\n    resources: [{names.INFERENCE_MODEL_PLURAL}]" in template(
        "operator-rbac.yaml"
    )
    for file in ("device-plugin-rbac.yaml", "scheduler-rbac.yaml"):
        assert f"apiGroups: [{names.GROUP}]\n    resources: [{names.GPU_TOPOLOGY_PLURAL}]" in template(file)


def test_the_chart_names_no_registry() -> None:
    for image in (VALUES["image"], VALUES["scheduler"]["image"]):
        assert image["registry"] == ""
        assert "/" not in image["repository"]


def test_the_image_is_made_of_the_versions_that_the_tests_ran_with() -> None:
    pin = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
    tested = set(pin.findall((ROOT / "requirements.lock").read_text()))
    runtime = set(pin.findall((ROOT / "requirements-runtime.lock").read_text()))
    assert runtime
    assert runtime - tested == set()
    gpu = set(pin.findall((ROOT / "deploy" / "images" / "requirements-runtime-gpu.lock").read_text()))
    assert {name for name, _ in runtime - gpu} == {"onnxruntime"}
    of_the_driver = {name for name, _ in gpu - runtime if not name.startswith("nvidia-")}
    assert of_the_driver == {"onnxruntime-gpu"}
