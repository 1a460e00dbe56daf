"""One page for each custom resource: a table of its fields, from the CRD's schema."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

Schema = dict[str, Any]


@dataclass(frozen=True)
class Page:
    """Where a page comes from, and the words before its tables."""

    crd: str
    introduction: str


PAGES = {
    "inferencemodel.md": Page(
        "inferencemodels.yaml",
        "Made from `crds/inferencemodels.yaml` by `make generate`. The API server refuses what does not fit,"
        " and says what would. [examples/resnet50.yaml](../examples/resnet50.yaml) is one with comments.",
    ),
    "gputopology.md": Page(
        "gputopologies.yaml",
        "Made from `crds/gputopologies.yaml` by `make generate`. One for each node, named after it,"
        " written by the device plugin and read by the scheduler extender; users only read it.",
    ),
}


def page(name: str) -> str:
    """Return the Markdown of a page."""
    chosen = PAGES[name]
    crd = yaml.safe_load((ROOT / "crds" / chosen.crd).read_text(encoding="utf-8"))
    (version,) = crd["spec"]["versions"]
    names = crd["spec"]["names"]
    schema = version["schema"]["openAPIV3Schema"]
    api_version = f"{crd['spec']['group']}/{version['name']}"
    scope = crd["spec"]["scope"].lower()
    lines = [f"# {names['kind']}", "", chosen.introduction, ""]
    lines += [f"`{api_version}`, {scope}, short name `{names['shortNames'][0]}`.", ""]
    for part in ("spec", "status"):
        if fields := list(_fields(schema["properties"].get(part, {}), part)):
            lines += [f"## {part}", "", "| field | type and range | default | is |", "|---|---|---|---|"]
            lines += [f"| `{path}` | {kind} | {default} | {text} |" for path, kind, default, text in fields]
            lines.append("")
    if rules := list(_rules(schema)):
        lines += ["## Rules", "", *(f"- {rule}" for rule in rules), ""]
    return "\n".join(lines)


def _fields(schema: Schema, path: str) -> Iterator[tuple[str, str, str, str]]:
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}".partition(".")[2]
        required = name in schema.get("required", ())
        default = "required" if required else _default(field)
        yield here, _kind(field), default, _cell(field.get("description", ""))
        yield from _fields(field, f"{path}.{name}")
        if "items" in field:
            yield from _fields(field["items"], f"{path}.{name}[]")
        if "additionalProperties" in field:
            yield from _fields(field["additionalProperties"], f"{path}.{name}.*")


def _kind(field: Schema) -> str:
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    words = str(field.get("type", "any"))
    if "items" in field:
        words = f"list of {field['items'].get('type', 'any')}"
    if "additionalProperties" in field:
        words = f"map of {_kind(field['additionalProperties'])}"
    if "minimum" in field and "maximum" in field:
        return f"{words}, {field['minimum']} to {field['maximum']}"
    for bound, unit in (("maxItems", "entries"), ("maxProperties", "entries"), ("maxLength", "characters")):
        if bound in field:
            return f"{words}, at most {field[bound]} {unit}"
    return words


def _default(field: Schema) -> str:
    default = field.get("default")
    return (
        "" if default in (None, {}, [], "") else f"`{str(default).lower() if default is True else default}`"
    )


def _rules(schema: Schema, path: str = "") -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        words = rule["message"].removeprefix(f"{path}: ")
        yield f"`{path}`: {_cell(words)}" if path else _cell(words)
    for name, child in schema.get("properties", {}).items():
        yield from _rules(child, f"{path}.{name}".lstrip("."))
    if "items" in schema:
        yield from _rules(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from _rules(schema["additionalProperties"], f"{path}.*")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").strip()
