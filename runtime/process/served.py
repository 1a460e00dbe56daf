"""What every worker serves, and what a worker that is still starting has missed of it."""

from mcp2026.api.serving import ServingConfig
from mcp2026.runtime.changes import RegisterRegion, UnloadModel, UnregisterRegion
from mcp2026.runtime.process.control import NoteRefusal, ServeModel, Step


class Missed:
    """What was changed since a worker was started, by name: it learns of it when it has loaded the rest."""

    def __init__(self) -> None:
        self.models: set[str] = set()
        self.regions: set[str] = set()


class Served:
    """What every worker serves, or is about to; a worker that starts is given it whole."""

    def __init__(self) -> None:
        self.models: dict[str, ServingConfig] = {}
        self.regions: dict[str, RegisterRegion] = {}
        self.refusals: dict[str, NoteRefusal] = {}
        """Models that cannot be served as the repository has them now."""
        self._unloaded: set[str] = set()
        """Models that were served once: a worker that is started later has to know of them, too."""
        self._starting: list[Missed] = []

    def watch(self) -> Missed:
        """Return what notes all changes from now on, for a worker that is given what is served now."""
        missed = Missed()
        missed.models |= self._unloaded
        self._starting.append(missed)
        return missed

    def forget(self, missed: Missed) -> None:
        """Note nothing more in `missed`: its worker has joined the others, or has ended."""
        if missed in self._starting:
            self._starting.remove(missed)

    def apply(self, step: Step) -> None:
        """Take in a change that is about to be committed."""
        models, regions = self._touched(step)
        for missed in self._starting:
            missed.models |= models
            missed.regions |= regions
        match step:
            case ServeModel(config):
                self.models[config.model] = config
                self.refusals.pop(config.model, None)
                self._unloaded.discard(config.model)
            case UnloadModel(model):
                self.models.pop(model, None)
                self.refusals.pop(model, None)
                self._unloaded.add(model)
            case NoteRefusal(model, _, ""):
                self.refusals.pop(model, None)
            case NoteRefusal(model):
                self.refusals[model] = step
            case RegisterRegion():
                self.regions[step.name] = step
            case UnregisterRegion(None):
                self.regions.clear()
            case UnregisterRegion(str(name)):
                self.regions.pop(name, None)

    def steps(self, missed: Missed) -> list[Step]:
        """Return what a worker has to do that has missed this: one step a model, however often it changed."""
        steps: list[Step] = []
        for name in sorted(missed.models):
            config = self.models.get(name)
            # Whether it may differ was decided when the others took it.
            steps.append(UnloadModel(name) if config is None else ServeModel(config, may_differ=True))
        for name in sorted(missed.regions):
            steps.append(UnregisterRegion(name))
            if name in self.regions:
                steps.append(self.regions[name])
        return [*steps, *self.refusals.values()]

    def _touched(self, step: Step) -> tuple[set[str], set[str]]:
        """Return the names of the models and the regions that `step` changes."""
        match step:
            case ServeModel(config):
                return {config.model}, set()
            case UnloadModel(model):
                return {model}, set()
            case UnregisterRegion(None):
                return set(), set(self.regions)
            case RegisterRegion(name) | UnregisterRegion(str(name)):
                return set(), {name}
            case NoteRefusal():
                return set(), set()  # every worker that joins is told all of them
        raise AssertionError(step)
