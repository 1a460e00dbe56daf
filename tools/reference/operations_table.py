"""The table of operations in `docs/api.md`, from the contract."""

from typing import Any

from tools.contract.source import read_source
from tools.reference.resource_page import DOCS

PAGE = DOCS / "api.md"
_BEGIN = "<!-- Made from api/openapi.yaml by make generate. -->\n"
_END = "<!-- end -->"


def with_table(text: str) -> str:
    """Return the text of the page with the table that the contract gives."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{_table()}\n{_END}{after}"


def _table() -> str:
    source = read_source()
    calls = {one.operation_id: one for one in source.operations}
    described = [
        (f"{verb.upper()} {path}", operation, calls[operation["operationId"]])
        for path, item in source.document["paths"].items()
        for verb, operation in item.items()
    ]
    always = set.intersection(*(set(_errors(operation)) for _, operation, _ in described))
    rows = ["| HTTP | gRPC, in `mcp2026.v1` | takes | answers | and |", "|---|---|---|---|---|"]
    for asked, operation, call in described:
        good = next(status for status in operation["responses"] if status.startswith("2"))
        errors = ", ".join(status for status in _errors(operation) if status not in always)
        rows.append(
            f"| `{asked}` | `{call.service}/{call.method}` | `{call.request}` "
            f"| {good} `{call.response}` | {errors} |"
        )
    return "\n".join([*rows, "", f"Each may also answer {', '.join(sorted(always))}.", ""])


def _errors(operation: dict[str, Any]) -> list[str]:
    return [status for status in operation["responses"] if status[0] in "45"]
