"""How far the newest serving revision has come, from what the pods report on their Leases.

A pod's report is the Lease of its name (docs/decisions/0090). The admission policy of the chart sees to it
that only the pod itself can have written it; that it speaks of this pod, and not of an earlier one of the
same name, its holder says.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcp2026.api.names import (
    FAILED_REVISION_ANNOTATION,
    LIVE_REVISION_ANNOTATION,
    REVISION_PROBLEM_ANNOTATION,
)
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import at, is_ready

PODS_NAMED = 3
"""So many pods a message names; of the rest it gives the number."""
LARGEST_REPORTED = 2**53
"""A report of more cannot come from counting, and would use up the numbers that there are."""


@dataclass(frozen=True, slots=True)
class PodReport:
    """What one pod says of itself."""

    live: int
    """The revision that every worker in it serves; 0: it has not said so yet."""
    failed: int | None = None
    """A newer one that could not be served; None with a problem: a document without readable revision."""
    problem: str = ""

    def refuses(self, revision: int) -> bool:
        """Say whether the pod could not serve `revision`."""
        return bool(self.problem) and self.live < revision and self.failed in (None, revision)


def pod_report(pod: Manifest, lease: Manifest | None) -> PodReport:
    """Return what `pod` reports on its Lease."""
    if lease is None or at(lease, "spec", "holderIdentity") != at(pod, "metadata", "uid"):
        return PodReport(0)
    annotations = at(lease, "metadata", "annotations")
    return PodReport(
        _number(at(annotations, LIVE_REVISION_ANNOTATION)) or 0,
        _number(at(annotations, FAILED_REVISION_ANNOTATION)),
        str(at(annotations, REVISION_PROBLEM_ANNOTATION) or ""),
    )


def largest_reported(leases: Iterable[Manifest]) -> int:
    """Return the largest revision that any pod was ever given, as far as Leases tell; 0 if they do not."""
    numbers = [
        _number(at(lease, "metadata", "annotations", annotation)) or 0
        for lease in leases
        for annotation in (LIVE_REVISION_ANNOTATION, FAILED_REVISION_ANNOTATION)
    ]
    return max((number for number in numbers if number <= LARGEST_REPORTED), default=0)


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else None


@dataclass(frozen=True, slots=True)
class Spread:
    """Where `revision` is live. All pods are named in order."""

    revision: int
    wanted: int
    """Pods on which it should be live."""
    live: tuple[str, ...]
    """Pods that serve it."""
    lagging: tuple[str, ...]
    """Of each pod that serves another revision, or is expected to serve soon: its name and how far it is."""
    refused: tuple[str, ...]
    """Of each pod that could not serve it: its name and the problem."""

    @property
    def settled(self) -> bool:
        """Whether no request can meet another revision."""
        return len(self.live) >= self.wanted and not self.lagging and not self.refused

    @property
    def text(self) -> str:
        """How far it is, in one line."""
        live = f"revision {self.revision} is live on {min(len(self.live), self.wanted)} of {self.wanted} pods"
        return "; ".join((live, *_some(self.lagging)))

    @property
    def refusal(self) -> str:
        """Why it is not served, in one line."""
        return "; ".join((f"revision {self.revision} is not served everywhere", *_some(self.refused)))


def spread(
    revision: int,
    wanted: int,
    newest: tuple[Manifest, ...],
    older: tuple[Manifest, ...],
    leases: Mapping[str, Manifest],
) -> Spread:
    """Return how far `revision` has come.

    Args:
        revision: the newest one.
        wanted: how many pods should serve it.
        newest: pods of the newest template.
        older: pods of older templates. As long as they serve they count like the others; what they cannot
            serve does not matter, since they are being replaced.
        leases: by pod name.

    """
    live, lagging, refused = [], [], []
    for pod in sorted((*newest, *older), key=_name):
        report = pod_report(pod, leases.get(_name(pod)))
        if pod in newest and report.refuses(revision):
            refused.append(f"pod {_name(pod)} serves revision {report.live}: {report.problem}")
        elif is_ready(pod):
            if report.live >= revision:
                live.append(_name(pod))
            else:
                lagging.append(f"pod {_name(pod)} {_standing(report)}")
        elif pod in newest:
            lagging.append(f"pod {_name(pod)} is not ready")
    return Spread(revision, wanted, tuple(live), tuple(lagging), tuple(refused))


def _standing(report: PodReport) -> str:
    return f"serves revision {report.live}" if report.live else "has not reported yet"


def _name(pod: Manifest) -> str:
    return str(pod["metadata"]["name"])


def _some(texts: tuple[str, ...]) -> list[str]:
    left_out = len(texts) - PODS_NAMED
    return [*texts[:PODS_NAMED], *([f"{left_out} more"] if left_out > 0 else [])]
