"""The contract as a page for people: one file of HTML without scripts, made from the document itself."""

import json
import re
from collections.abc import Iterator
from html import escape
from typing import Any

from mcp2026.api.contract.documents import Schema, reference, resolved
from mcp2026.runtime.protocol.native.operations import Operation, operations

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:62rem;
padding:1rem;color:#1b1f24;background:#fff}
h1{margin-bottom:0}h2{border-bottom:1px solid #d0d7de;margin-top:2.5rem}h3{margin:2rem 0 .25rem}
code,pre{font:13px/1.45 ui-monospace,monospace;background:#f2f4f7;border-radius:4px}
code{padding:.1em .3em}pre{padding:.75rem;overflow-x:auto}pre code{padding:0}
table{border-collapse:collapse;width:100%;margin:.5rem 0}
th,td{border:1px solid #d0d7de;padding:.3rem .5rem;text-align:left;vertical-align:top}
td{overflow-wrap:anywhere}td:first-child{overflow-wrap:normal}th{background:#f2f4f7}
nav ul{columns:2;padding-left:1.2rem}.verb{font-weight:700}.quiet{color:#57606a}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}a{color:#58a6ff}
code,pre,th{background:#1c2128}th,td,h2{border-color:#3d444d}.quiet{color:#9198a1}}
"""

_CODE = re.compile(r"`([^`]+)`")
_NUMBERS = re.compile(r"\[[-\d.,\s]+\]")


def page(document: dict[str, Any]) -> bytes:
    """Return the page for an OpenAPI document."""
    info = document["info"]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style></head><body>",
        f'<h1>{escape(info["title"])} <span class="quiet">{escape(info["version"])}</span></h1>',
        f"<p>{_words(info['summary'])}</p>{_text(info['description'])}",
        '<p>The document itself: <a href="openapi.json">openapi.json</a>.</p>',
        *_contents(),
        *(part for tag in document["tags"] for part in _tag(document, tag)),
        "<h2>Schemas</h2>",
        *(part for name in document["components"]["schemas"] for part in _schema(document, name)),
        "</body></html>",
    ]
    return "\n".join(parts).encode()


def _contents() -> Iterator[str]:
    yield "<nav><ul>"
    for one in operations():
        yield f'<li><a href="#{one.operation_id}"><code>{one.verb} {escape(one.path)}</code></a></li>'
    yield "</ul></nav>"


def _tag(document: dict[str, Any], tag: dict[str, str]) -> Iterator[str]:
    yield f"<h2>{escape(tag['name'].capitalize())}</h2><p>{_words(tag['description'])}</p>"
    for one in operations():
        described = document["paths"][one.path][one.verb.lower()]
        if tag["name"] in described["tags"]:
            yield from _operation(document, one, described)


def _operation(document: dict[str, Any], one: Operation, described: dict[str, Any]) -> Iterator[str]:
    yield f'<h3 id="{one.operation_id}"><span class="verb">{one.verb}</span>'
    yield f"<code>{escape(one.path)}</code></h3>"
    yield f"<p>{_words(described['summary'])} Over gRPC: <code>{one.call[1:]}</code></p>"
    yield _text(described.get("description", ""))
    parameters = [_component(document, each) for each in described.get("parameters", ())]
    if parameters:
        yield "<table><tr><th>parameter</th><th>in</th><th>allowed</th><th>is</th></tr>"
        for each in parameters:
            allowed = _kind(document, each["schema"])
            is_ = _words(each.get("description", ""))
            yield f"<tr><td><code>{escape(each['name'])}</code></td><td>{each['in']}</td>"
            yield f"<td>{allowed}</td><td>{is_}</td></tr>"
        yield "</table>"
    if one.has_body:
        yield f"<p>Body: {_link(one.request)}</p>"
        yield from _examples(described["requestBody"]["content"]["application/json"])
    yield "<table><tr><th>answer</th><th>body</th><th>when</th></tr>"
    for status, response in described["responses"].items():
        answer = _component(document, response)
        content = answer.get("content", {}).get("application/json", {})
        body = reference(content.get("schema", {}))
        shown = "" if body is None else _link(body)
        yield f"<tr><td>{status}</td><td>{shown}</td><td>{_words(answer['description'])}</td></tr>"
    yield "</table>"
    yield from _examples(described["responses"][str(one.status)]["content"]["application/json"])


def _schema(document: dict[str, Any], name: str) -> Iterator[str]:
    schema = document["components"]["schemas"][name]
    yield f'<h3 id="{name}">{name}</h3>{_text(schema.get("description", ""))}'
    fields = schema.get("properties", {})
    if not fields:
        yield f"<p>{_kind(document, schema)}</p>"
        return
    yield "<table><tr><th>field</th><th>allowed</th><th>is</th></tr>"
    for field, part in fields.items():
        needed = " (required)" if field in schema.get("required", ()) else ""
        is_ = _words(part.get("description") or resolved(part).get("description", ""))
        yield f"<tr><td><code>{escape(field)}</code>{needed}</td><td>{_kind(document, part)}</td>"
        yield f"<td>{is_}</td></tr>"
    yield "</table>"


def _kind(document: dict[str, Any], part: Schema) -> str:
    """Say in HTML what a schema accepts."""
    name = reference(part)
    if name is not None:
        return _link(name)
    if "x-allowed" in part:
        return escape(part["x-allowed"])
    if "enum" in part:
        return ", ".join(f"<code>{escape(str(value))}</code>" for value in part["enum"])
    kinds = part.get("type", "any")
    words = " or ".join(kinds) if isinstance(kinds, list) else kinds
    if "items" in part:
        words = f"list of {_kind(document, part['items'])}"
    elif isinstance(part.get("additionalProperties"), dict):
        words = f"object of {_kind(document, part['additionalProperties'])}"
    limits = [said.format(part[keyword]) for keyword, said in _LIMITS.items() if keyword in part]
    return ", ".join([words, *(escape(limit) for limit in limits)])


_LIMITS = {
    "format": "format {}",
    "minimum": "from {}",
    "exclusiveMinimum": "above {}",
    "maximum": "up to {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} elements",
    "maxItems": "at most {} elements",
    "minProperties": "at least {} elements",
    "pattern": "matching {}",
}


def _examples(content: dict[str, Any]) -> Iterator[str]:
    for example in content.get("examples", {}).values():
        caption = _words(example.get("summary", ""))
        written = json.dumps(example["value"], indent=2, ensure_ascii=False)
        value = escape(_NUMBERS.sub(lambda found: " ".join(found[0].split()), written))
        yield f'<p class="quiet">{caption}</p><pre><code>{value}</code></pre>'


def _component(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter or a response, wherever it is written."""
    where = part.get("$ref")
    if where is None:
        return part
    found: Any = document
    for step in where.removeprefix("#/").split("/"):
        found = found[step]
    component: dict[str, Any] = found
    return component


def _link(name: str) -> str:
    return f'<a href="#{name}">{name}</a>'


def _text(text: str) -> str:
    paragraphs = [part for part in text.strip().split("\n\n") if part]
    return "".join(f"<p>{_words(part)}</p>" for part in paragraphs)


def _words(text: str) -> str:
    """Return a line of the document in HTML; what stands between backticks is code, as in Markdown."""
    return _CODE.sub(r"<code>\1</code>", escape(text))
