"""Manifests as plain dicts: their digest, and whether the cluster still holds what was applied.

The API server adds defaults and other writers add fields, so an observed object never equals the manifest
that it was made from. `covers` asks the question that matters: is every field that we set still as we set it?
A field that we no longer set is found by the digest instead, which each child carries as an annotation.
"""

import hashlib
import json
import re
from decimal import Decimal
from typing import Any

from mcp2026.api.names import MANIFEST_DIGEST_ANNOTATION

Manifest = dict[str, Any]
"""A Kubernetes object in its JSON shape."""

_LIST_KEYS = ("mountPath", "name", "containerPort", "port", "uid")
"""What tells the entries of a list apart, in the order in which it is looked for."""

_QUANTITY = re.compile(r"^(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<suffix>[a-zA-Z]*)$")
_SUFFIXES = {"": Decimal(1), "m": Decimal(1) / 1000} | {
    suffix: Decimal(base) ** power
    for base, suffixes in (
        (1000, ("k", "M", "G", "T", "P", "E")),
        (1024, ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")),
    )
    for power, suffix in enumerate(suffixes, start=1)
}


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
        return quantity(desired) == quantity(observed)
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


def quantity(value: str | int) -> Decimal | str:
    """Return a Kubernetes quantity as a number; a text that is none stays itself."""
    match = _QUANTITY.match(str(value))
    if match is None or match["suffix"] not in _SUFFIXES:
        return str(value)
    return Decimal(match["number"]) * _SUFFIXES[match["suffix"]]
