"""The table that `kubectl get` prints, computed from the columns that the CRD declares."""

import importlib.resources
import re
from datetime import UTC, datetime
from typing import Any

import yaml

from mcp2026.operator.manifests import Manifest

_STEP = re.compile(r"\.(?P<field>\w+)|\[\?\(@\.(?P<key>\w+)==\"(?P<value>[^\"]*)\"\)\]")


def model_table(resource: Manifest, now: datetime) -> str:
    """Return the table of one InferenceModel, with a line of headings, as `kubectl get im` has it."""
    document = yaml.safe_load(
        (importlib.resources.files("mcp2026.crds") / "inferencemodels.yaml").read_text()
    )
    columns = [
        column
        for column in document["spec"]["versions"][0]["additionalPrinterColumns"]
        if column.get("priority", 0) == 0
    ]
    headings = ["NAME", *(column["name"].upper() for column in columns)]
    cells = [resource["metadata"]["name"], *(_cell(column, resource, now) for column in columns)]
    widths = [max(len(heading), len(cell)) for heading, cell in zip(headings, cells, strict=True)]
    return "\n".join(
        "   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in (headings, cells)
    )


def _cell(column: dict[str, Any], resource: Manifest, now: datetime) -> str:
    value = json_path(resource, column["jsonPath"])
    if value is None:
        return ""
    return age(datetime.fromisoformat(value), now) if column["type"] == "date" else str(value)


def json_path(document: Any, path: str) -> Any:
    """Return what `path` names, or None. Of JSONPath: fields, and an entry of a list by one field's value."""
    position = 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            raise ValueError(f"{path}: {path[position:]} is not understood")
        position = step.end()
        if step["field"] is not None:
            document = document.get(step["field"]) if isinstance(document, dict) else None
        else:
            entries = document if isinstance(document, list) else []
            document = next((entry for entry in entries if entry.get(step["key"]) == step["value"]), None)
    return document


def age(start: datetime, now: datetime) -> str:
    """Return the time since `start` as kubectl abbreviates it: ``8s``, ``3m10s``, ``4h2m``, ``5d``."""
    seconds = max(int((now.astimezone(UTC) - start).total_seconds()), 0)
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours = seconds // 60, seconds // 3600
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"
