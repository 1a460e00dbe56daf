"""What is made from the table of the life cycle: the rules of the CRD, and a page with its diagram."""

import json
import re

from mcp2026.api.lifecycle import TABLE, Step
from mcp2026.api.lifecycle_rules import RECORD_MESSAGE, diagram, phase_message, phase_rule, record_rule
from tools.reference.resource_page import DOCS, ROOT

CRD = ROOT / "crds" / "inferencemodels.yaml"
PAGE = DOCS / "life-cycle.md"

_RULES = {"phase": (phase_rule, phase_message), "record": (record_rule, lambda: RECORD_MESSAGE)}
_MARKED = re.compile(
    r"^(?P<mark>(?P<indent> *)# Made from api/lifecycle\.py by make generate: (?P<name>\w+)\.)\n"
    r" *- rule: .*\n"
    r" *message: .*\n",
    re.MULTILINE,
)


def with_rules(crd: str) -> str:
    """Return the text of the CRD with the rules that the table gives."""

    def written(match: re.Match[str]) -> str:
        rule, message = _RULES[match["name"]]
        indent = match["indent"]
        return (
            f"{match['mark']}\n"
            f"{indent}- rule: {json.dumps(rule())}\n"
            f"{indent}  message: {json.dumps(message())}\n"
        )

    return _MARKED.sub(written, crd)


def life_cycle_page() -> str:
    """Return the page of the docs."""
    return _PAGE.format(diagram=diagram().rstrip(), rows="\n".join(map(_row, TABLE)))


def _row(step: Step) -> str:
    evidence = "; ".join(guard.text for guard in step.guards)
    return f"| {step.start} | {step.event.__name__} | {evidence} | {step.end} |"


_PAGE = """\
# Life cycle of an InferenceModel

Made from `api/lifecycle.py` by `make generate`. The same table is the operator's state machine and the rules\
 by which the API server refuses a jump.

```mermaid
{diagram}
```

| From | Event | Evidence | To |
|---|---|---|---|
{rows}

Anything else is refused with its reason, by the operator as by the API server.\
 `kubectl get inferencemodel NAME -o jsonpath='{{.status.transitions}}'` lists the steps that happened.
"""
