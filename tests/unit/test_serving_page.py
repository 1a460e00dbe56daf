"""The guide's table of the serving configuration has exactly its fields, with their ranges and defaults."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp2026.api.serving import ServingConfig, decode_serving_config

PAGE = (Path(__file__).parents[2] / "docs/serving.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("### A serving configuration\n")[2].partition("\n## ")[0]
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|", re.MULTILINE)
ROWS = {field: (allowed, default) for field, allowed, default in ROW.findall(SECTION)}
SCHEMAS = msgspec.json.schema(ServingConfig)["$defs"]
LIMITS = ("minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength")


def _fields(struct: str = "ServingConfig", path: str = "") -> dict[str, dict[str, Any]]:
    """Return the schema of each field that is no object, by its path. A map is one field."""
    found: dict[str, dict[str, Any]] = {}
    for name, schema in SCHEMAS[struct]["properties"].items():
        item = schema.get("items", {})
        if "$ref" not in schema:
            found[path + name] = schema
        if nested := schema.get("$ref") or item.get("$ref"):
            found |= _fields(nested.rsplit("/", 1)[1], path + name + ("[]." if item else "."))
    return found


FIELDS = _fields()


def test_the_table_has_every_field_and_no_other() -> None:
    assert set(ROWS) == set(FIELDS)


@pytest.mark.parametrize("field", FIELDS)
def test_a_row_tells_the_range_and_the_default(field: str) -> None:
    schema, (allowed, default) = FIELDS[field], ROWS[field]
    parts = [schema, schema.get("items", {}), *schema.get("anyOf", [])]
    limits = {part[limit] for part in parts for limit in LIMITS if limit in part}
    assert {int(number) for number in re.findall(r"\d+", allowed)} == limits
    if "default" not in schema:
        assert default == "\N{EN DASH}"
    elif schema["default"] in ((), {}):
        assert default == "none"
    elif isinstance(schema["default"], str):
        assert default == f"`{schema['default']}`"
    else:
        assert json.loads(default.strip("`")) == schema["default"]


def test_the_example_is_a_serving_configuration() -> None:
    example = re.search(r"```json\n(.*?)```", SECTION, re.DOTALL)
    assert example is not None
    assert decode_serving_config(example[1].encode()).priorities.queues[1].max_rows == 32
