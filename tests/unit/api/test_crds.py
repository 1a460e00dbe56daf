"""The CRDs and their Python twins: the same fields, ranges, enums and defaults, compared both ways."""

import importlib.resources
from typing import Any

import msgspec
import msgspec.inspect as shape
import pytest
import yaml

from mcp2026.api.batch_run import Batch
from mcp2026.api.gpu_topology import GPUTopologySpec, GPUTopologyStatus
from mcp2026.api.inference_model import InferenceModelSpec, InferenceModelStatus
from mcp2026.api.lifecycle_rules import phase_rule, record_rule
from mcp2026.api.names import API_VERSION, GPU_TOPOLOGY_KIND, GROUP, INFERENCE_MODEL_KIND
from mcp2026.api.quality_of_service import LEVEL_PATTERN, TENANT_ID_PATTERN
from mcp2026.api.serving import Tenant
from tools.reference.life_cycle import CRD, with_rules


def definition(name: str) -> dict[str, Any]:
    text = (importlib.resources.files("mcp2026.crds") / f"{name}.yaml").read_text()
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = definition(name)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def of_schema(node: dict[str, Any]) -> Any:
    """Reduce an OpenAPI schema to what both sides can say."""
    if node.get("x-kubernetes-int-or-string"):
        return "quantity"
    if node["type"] == "array":
        return {"items": of_schema(node["items"]), "min": node.get("minItems"), "max": node.get("maxItems")}
    if "additionalProperties" in node:
        return {"values": of_schema(node["additionalProperties"]), "max": node.get("maxProperties")}
    if node["type"] == "object":
        required = set(node.get("required", ()))
        return {
            name: (of_schema(child), child.get("default"), name in required)
            for name, child in node["properties"].items()
        }
    if node["type"] == "integer":
        return ("integer", node.get("minimum"), node.get("maximum"))
    if node["type"] == "number":
        return ("number", node.get("minimum"), node.get("maximum"))
    if "enum" in node:
        return ("enum", frozenset(node["enum"]))
    return node["type"]


def of_type(kind: shape.Type) -> Any:
    """Reduce a type of ours to the same."""
    match kind:
        case shape.Metadata():
            return of_type(kind.type)
        case shape.UnionType():
            members = [member for member in kind.types if not isinstance(member, shape.NoneType)]
            return of_type(members[0]) if len(members) == 1 else "quantity"
        case shape.VarTupleType():
            return {"items": of_type(kind.item_type), "min": kind.min_length, "max": kind.max_length}
        case shape.DictType():
            return {"values": of_type(kind.value_type), "max": kind.max_length}
        case shape.StructType():
            return {
                field.encode_name: (of_type(field.type), default(field), field.required)
                for field in kind.fields
            }
        case shape.IntType():
            return ("integer", kind.ge, kind.le)
        case shape.FloatType():
            return ("number", kind.ge, kind.le)
        case shape.LiteralType():
            return ("enum", frozenset(kind.values))
        case shape.EnumType():
            return ("enum", frozenset(member.value for member in kind.cls))
        case shape.BoolType():
            return "boolean"
        case shape.StrType():
            return "string"
    raise AssertionError(f"{kind} is not understood")


def default(field: shape.Field) -> Any:
    """Return a field's default as the CRD writes it: an object that fills itself is ``{}``."""
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.to_builtins(field.default_factory())
    if field.default is msgspec.NODEFAULT:
        return None
    if isinstance(field.default, msgspec.Struct):
        return {}
    return msgspec.json.decode(msgspec.json.encode(field.default))


@pytest.mark.parametrize(
    ("name", "twin"),
    [("inferencemodels", InferenceModelSpec), ("gputopologies", GPUTopologySpec)],
    ids=["InferenceModel", "GPUTopology"],
)
def test_the_spec_of_the_crd_is_the_spec_of_the_type(name: str, twin: type) -> None:
    assert of_schema(schema(name)["properties"]["spec"]) == of_type(shape.type_info(twin))


def names_and_kinds(node: Any) -> Any:
    """Leave bounds, defaults and requirements out: a status is written by us and bounded on the server."""
    if isinstance(node, dict) and set(node) == {"items", "min", "max"}:
        return [names_and_kinds(node["items"])]
    if isinstance(node, dict):
        return {name: names_and_kinds(child[0]) for name, child in node.items()}
    return node[0] if isinstance(node, tuple) and node[0] in ("integer", "number") else node


@pytest.mark.parametrize(
    ("name", "twin"),
    [("inferencemodels", InferenceModelStatus), ("gputopologies", GPUTopologyStatus)],
    ids=["InferenceModel", "GPUTopology"],
)
def test_the_status_of_the_crd_is_the_status_of_the_type(name: str, twin: type) -> None:
    ours = names_and_kinds(of_type(shape.type_info(twin)))
    ours["conditions"][0]["status"] = ("enum", frozenset(("True", "False", "Unknown")))
    assert names_and_kinds(of_schema(schema(name)["properties"]["status"])) == ours


@pytest.mark.parametrize(
    ("name", "twin"),
    [("inferencemodels", InferenceModelStatus), ("gputopologies", GPUTopologyStatus)],
    ids=["InferenceModel", "GPUTopology"],
)
def test_what_the_crd_requires_in_a_status_the_type_always_writes(name: str, twin: type) -> None:
    def required(node: dict[str, Any], path: str = "") -> set[str]:
        found = {f"{path}.{entry}" for entry in node.get("required", ())}
        for field, child in node.get("properties", {}).items():
            found |= required(child, f"{path}.{field}")
        return found | (required(node["items"], f"{path}[]") if "items" in node else set())

    def fields(kind: shape.Type, path: str = "") -> set[str]:
        match kind:
            case shape.UnionType():
                return set().union(*(fields(member, path) for member in kind.types))
            case shape.VarTupleType():
                return fields(kind.item_type, f"{path}[]")
            case shape.StructType():
                here = {f"{path}.{field.encode_name}" for field in kind.fields}
                return here.union(
                    *(fields(field.type, f"{path}.{field.encode_name}") for field in kind.fields)
                )
        return set()

    assert required(schema(name)["properties"]["status"]) <= fields(shape.type_info(twin))


@pytest.mark.parametrize(
    ("name", "kind", "scope", "short"),
    [
        ("inferencemodels", INFERENCE_MODEL_KIND, "Namespaced", "im"),
        ("gputopologies", GPU_TOPOLOGY_KIND, "Cluster", "gputopo"),
    ],
)
def test_names_are_those_of_the_vocabulary(name: str, kind: str, scope: str, short: str) -> None:
    document = definition(name)
    spec = document["spec"]
    assert document["metadata"]["name"] == f"{name}.{GROUP}"
    assert f"{spec['group']}/{spec['versions'][0]['name']}" == API_VERSION
    assert (spec["names"]["kind"], spec["scope"], spec["names"]["shortNames"]) == (kind, scope, [short])


def test_the_rules_on_ranges_say_what_minimum_and_maximum_say() -> None:
    batching = schema("inferencemodels")["properties"]["spec"]["properties"]["batching"]["properties"]
    for name in ("maxBatchSize", "prefetchQueueDepth"):
        field = batching[name]
        low, high = field["minimum"], field["maximum"]
        (rule,) = field["x-kubernetes-validations"]
        assert rule["rule"] == f"self >= {low} && self <= {high}"
        assert rule["message"] == f"allowed: {low} to {high}, default {field['default']}"


def test_the_rules_on_texts_of_qos_are_those_of_the_types() -> None:
    qos = schema("inferencemodels")["properties"]["spec"]["properties"]["qos"]["properties"]
    tenant_id = qos["tenants"]["items"]["properties"]["tenantId"]
    twin = shape.type_info(Tenant)
    assert isinstance(twin, shape.StructType)
    kind = twin.fields[0].type
    assert isinstance(kind, shape.StrType)
    assert (tenant_id["minLength"], tenant_id["maxLength"]) == (kind.min_length, kind.max_length)
    assert [rule["rule"] for rule in tenant_id["x-kubernetes-validations"]] == [
        f"self.matches('{TENANT_ID_PATTERN}')"
    ]
    assert f"level.matches('{LEVEL_PATTERN}')" in qos["priorities"]["x-kubernetes-validations"][1]["rule"]


def test_the_rules_on_places_of_a_run_are_those_of_the_types() -> None:
    batch = schema("inferencemodels")["properties"]["spec"]["properties"]["batch"]["properties"]
    twin = shape.type_info(Batch)
    assert isinstance(twin, shape.StructType)
    for field in twin.fields:
        if field.encode_name not in ("input", "output", "archive"):
            continue
        kind = field.type
        if isinstance(kind, shape.UnionType):
            kind = next(member for member in kind.types if not isinstance(member, shape.NoneType))
        described = kind.extra_json_schema if isinstance(kind, shape.Metadata) else None
        kind = kind.type if isinstance(kind, shape.Metadata) else kind
        assert isinstance(kind, shape.StrType)
        there = batch[field.encode_name]
        rule = there["x-kubernetes-validations"][0]
        assert rule["rule"] == f"self.matches('{kind.pattern}')"
        assert there["maxLength"] == kind.max_length
        assert rule["message"] == f"allowed: {(described or {}).get('description')}"


def test_the_rules_of_the_life_cycle_are_those_of_its_table() -> None:
    text = CRD.read_text(encoding="utf-8")
    assert with_rules(text) == text, "run `make generate`"
    status = schema("inferencemodels")["properties"]["status"]
    assert status["x-kubernetes-validations"][0]["rule"] == record_rule()
    assert status["properties"]["phase"]["x-kubernetes-validations"][0]["rule"] == phase_rule()
