"""What a pod's annotations ask of its place: a latency that was promised, and company. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mcp2026.api.names import GANG_ANNOTATION, GANG_SIZE_ANNOTATION, SLO_LATENCY_ANNOTATION

LARGEST_GANG = 1024
LONGEST_LATENCY_MS = 600_000

_MILLISECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?", re.ASCII)
_SIZE = re.compile(r"[1-9][0-9]{0,3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Gang:
    """The gang that a pod belongs to. `problem` says what is wrong with how the pod names it, if so."""

    name: str
    size: int = 0
    problem: str = ""


def promised_latency_us(annotations: Mapping[str, str]) -> int | None:
    """Return the p95 that was promised, in µs; None if there is none, or what is there is no latency."""
    value = annotations.get(SLO_LATENCY_ANNOTATION, "").strip()
    if not _MILLISECONDS.fullmatch(value) or not 0 < float(value) <= LONGEST_LATENCY_MS:
        return None
    return max(1, round(float(value) * 1000))


def gang_of(annotations: Mapping[str, str]) -> Gang | None:
    """Return the gang that the annotations name; None if they name none."""
    name, size = annotations.get(GANG_ANNOTATION, ""), annotations.get(GANG_SIZE_ANNOTATION, "")
    if not name and not size:
        return None
    if not name:
        return Gang("", problem=f"{GANG_SIZE_ANNOTATION} without {GANG_ANNOTATION}; give both, or none")
    if _SIZE.fullmatch(size) and int(size) <= LARGEST_GANG:
        return Gang(name, int(size))
    allowed = f"a whole number from 1 to {LARGEST_GANG}"
    return Gang(name, problem=f"{GANG_SIZE_ANNOTATION}: {size!r} is no size of a gang; allowed: {allowed}")
