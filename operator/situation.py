"""Where one reconcile starts from: the model, what it should become, and what keeps it from becoming that."""

from dataclasses import dataclass

from mcp2026.api.conditions import Reason
from mcp2026.api.inference_model import InferenceModel
from mcp2026.api.lifecycle import Phase
from mcp2026.operator.dependencies import is_met
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import Observed, belongs_to


@dataclass(frozen=True, slots=True)
class Blocked:
    """What keeps something that was asked for from coming to be."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Situation:
    """What is the same for all modes. `wanted` are the children in the order of their creation."""

    model: InferenceModel
    observed: Observed
    wanted: tuple[Manifest, ...]

    @property
    def workload(self) -> Manifest:
        """The child that makes pods: the last one, since pods must find the others."""
        return self.wanted[-1]

    @property
    def started(self) -> bool:
        """Whether there is a workload, or was: a dependency that fails later takes nothing away."""
        was = self.model.status.phase is not Phase.PENDING
        return was or self.observed.child(self.workload["kind"]) is not None

    @property
    def taken(self) -> tuple[Manifest, ...]:
        """The wanted children whose names somebody else's objects bear."""
        return tuple(child for child in self.wanted if self._is_taken(child["kind"]))

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Dependencies that are not met."""
        known = self.observed.dependencies
        return tuple(name for name in self.model.spec.depends_on if not is_met(known.get(name)))

    @property
    def may_apply(self) -> bool:
        """Whether the children may be made, or kept as they should be."""
        free_to_start = not self.waiting_for and not self.observed.cycle and not self.model.spec.stopped
        return (free_to_start or self.started) and not self.taken

    def ours(self, kind: str) -> Manifest | None:
        """Return the child of `kind` if it is there and the model's own."""
        return None if self._is_taken(kind) else self.observed.child(kind)

    def not_started_because(self) -> Blocked | None:
        """Return what has to happen before a model that has not started may."""
        if self.started:
            return None
        if self.observed.cycle:
            return self._in_a_cycle()
        if self.waiting_for:
            names = ", ".join(self.waiting_for)
            return Blocked(Reason.WAITING_FOR_DEPENDENCIES, f"waiting for {names}")
        return None

    def refused(self) -> Blocked | None:
        """Return what is wrong with the model itself, whatever its pods do."""
        if self.taken:
            names = ", ".join(f"{child['kind']} {child['metadata']['name']}" for child in self.taken)
            return Blocked(
                Reason.NAME_TAKEN, f"{names} exists and is not this model's; delete it or rename the model"
            )
        return self._in_a_cycle() if self.observed.cycle else None

    def _in_a_cycle(self) -> Blocked:
        way = " → ".join(self.observed.cycle)
        outlook = (
            "what runs serves on, but would not start again" if self.started else "none of them can start"
        )
        return Blocked(
            Reason.DEPENDENCY_CYCLE,
            f"dependsOn leads back here: {way}; {outlook}: take one of these steps out",
        )

    def _is_taken(self, kind: str) -> bool:
        child = self.observed.child(kind)
        return child is not None and not belongs_to(child, self.model.uid)
