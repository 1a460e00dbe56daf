"""Whether this worker serves, and why not. Live is another question: a process that answers is live."""

from collections.abc import Callable
from enum import StrEnum


class Phase(StrEnum):
    """The life of a worker; only forward."""

    LOADING = "loading"
    """The model is being loaded here, or in another worker of the same server."""
    SERVING = "serving"
    LAME_DUCK = "lame duck"
    """Unready, so that load balancers turn away, but everything is still served."""
    DRAINING = "draining"
    """What was accepted is answered; nothing new is."""


class Health:
    """The present phase."""

    def __init__(self) -> None:
        self.phase = Phase.LOADING
        self.leaving = False
        """Connections should be closed when their answer is out."""
        self._watchers: list[Callable[[Phase], None]] = []

    def watch(self, changed: Callable[[Phase], None]) -> None:
        """Call `changed` with every phase that is entered from now on."""
        self._watchers.append(changed)

    def advance(self, phase: Phase) -> None:
        """Enter `phase`, unless the worker is already further on."""
        order = list(Phase)
        if order.index(phase) > order.index(self.phase):
            self.phase = phase
            self.leaving = phase in (Phase.LAME_DUCK, Phase.DRAINING)
            for changed in self._watchers:
                changed(phase)

    @property
    def ready(self) -> bool:
        """New traffic should come here."""
        return self.phase is Phase.SERVING
