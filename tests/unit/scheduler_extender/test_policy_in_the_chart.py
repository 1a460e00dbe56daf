"""What the chart takes as the extender's configuration is what the extender takes."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from mcp2026.api.errors import ConfigurationError
from mcp2026.scheduler_extender.configuration import Configuration, parse_configuration

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "mcp2026"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())["properties"]["scheduler"]["properties"][
    "extender"
]["properties"]["configuration"]


def test_the_fields_are_the_same() -> None:
    assert set(SCHEMA["properties"]) == {
        "packing",
        "demandMix",
        "guaranteedApart",
        "gangDeadlineSeconds",
        "nodesToScore",
        "latency",
    }
    assert len(SCHEMA["properties"]) == len(Configuration.__struct_fields__)


@pytest.mark.parametrize(
    ("configuration", "allowed"),
    [
        ({}, True),
        ({"packing": "Pack", "demandMix": {"1": 60, "8": 40}, "gangDeadlineSeconds": 1.5}, True),
        ({"latency": [{"model": "m", "mig": "1g.10gb", "p95Ms": 3, "neighbours": 2}]}, True),
        ({"packing": "Full"}, False),
        ({"demandMix": {"0": 100}}, False),
        ({"gangDeadlineSeconds": 0}, False),
        ({"nodesToScore": 100}, True),
        ({"nodesToScore": 9}, False),
        ({"latency": [{"model": "m", "p95Ms": 3}]}, False),
        ({"latency": [{"model": "m", "product": "A100"}]}, False),
        ({"slo": 3}, False),
    ],
)
def test_what_one_takes_the_other_takes(configuration: dict[str, Any], allowed: bool) -> None:
    assert jsonschema.Draft7Validator(SCHEMA).is_valid(configuration) is allowed
    try:
        parse_configuration(yaml.safe_dump(configuration), "values")
    except ConfigurationError:
        assert not allowed
    else:
        assert allowed
