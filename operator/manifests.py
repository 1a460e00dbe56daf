"""Manifests as plain dicts: their digest, and whether the cluster still holds what was applied.

The API server adds defaults and other writers add fields, so an observed object never equals the manifest
that it was made from. `covers` asks the question that matters: is every field that we set still as we set it?
A field that we no longer set is found by the digest instead, which each child carries as an annotation.
"""

import hashlib
import json
from decimal import Decimal
from typing import Any

from mcp2026.api.names import MANIFEST_DIGEST_ANNOTATION
from mcp2026.api.quantities import parse_quantity

Manifest = dict[str, Any]
"""A Kubernetes object in its JSON shape."""

_LIST_KEYS = ("mountPath", "name", "containerPort", "port", "uid")
"""What tells the entries of a list apart, in the order in which it is looked for."""


def digest(value: Any) -> str:
    """Return 16 hex digits that stand for `value`, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def with_digest(manifest: Manifest) -> Manifest:
    """Return `manifest` with its own digest as an annotation."""
    metadata = manifest["metadata"]
    annotations = {**metadata.get("annotations", {}), MANIFEST_DIGEST_ANNOTATION: digest(manifest)}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def covers(desired: Any, observed: Any, *, quantities: bool = False) -> bool:
    """Say whether `observed` has every field of `desired`, with its value.

    `quantities`: strings are Kubernetes quantities, so that ``1000m`` equals ``1``.
    """
    if isinstance(desired, dict):
        return isinstance(observed, dict) and all(
            key in observed
            and covers(value, observed[key], quantities=key in ("requests", "limits") or quantities)
            for key, value in desired.items()
        )
    if isinstance(desired, list):
        return isinstance(observed, list) and _covers_list(desired, observed)
    if quantities and observed is not None:
        return _amount(desired) == _amount(observed)
    return bool(desired == observed)


def _covers_list(desired: list[Any], observed: list[Any]) -> bool:
    key = next(
        (name for name in _LIST_KEYS if all(isinstance(entry, dict) and name in entry for entry in desired)),
        None,
    )
    if key is None:
        return desired == observed
    found = {entry.get(key): entry for entry in observed if isinstance(entry, dict)}
    return all(covers(entry, found.get(entry[key])) for entry in desired)


def _amount(value: Any) -> Decimal | str:
    """Return a quantity as a number; a text that is none stays itself."""
    text = str(value)
    amount = parse_quantity(text)
    return text if amount is None else amount
