"""Errors of the topology package."""


class TopologyError(Exception):
    """Base of all errors raised in `mcp2026.topology`."""


class MachineFormatError(TopologyError):
    """A description of a machine cannot be read; `source` names it."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}")
        self.source = source
        self.problem = problem


class NoSuchSetError(TopologyError):
    """No set of the asked size exists among the available GPUs."""

    def __init__(self, size: int, available: int) -> None:
        super().__init__(f"{size} GPUs asked, {available} available")
        self.size = size
        self.available = available


class NoSuchPositionError(TopologyError):
    """What is known of GPUs, or a question, names positions that the machine has not."""

    def __init__(self, field: str, problem: str, gpus: int) -> None:
        super().__init__(f"{field}: {problem}; the machine has {gpus} GPUs")
        self.field = field
        self.problem = problem
        self.gpus = gpus


class DemandMixError(TopologyError):
    """A mix of later requests makes no sense."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"demand mix: {problem}")


class SnapshotFormatError(TopologyError):
    """A placement question that was written down cannot be read; `source` names it."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}")
        self.source = source
        self.problem = problem


class MigPlanError(TopologyError):
    """A layout of MIG instances cannot be had."""


class UnknownMigProfileError(MigPlanError):
    """The GPU has no such profile."""

    def __init__(self, profile: str, allowed: tuple[str, ...]) -> None:
        super().__init__(f"MIG profile {profile}: not one of this GPU; allowed: {', '.join(allowed)}")
        self.profile = profile
        self.allowed = allowed


class LayoutDoesNotFitError(MigPlanError):
    """The wanted instances do not fit on a GPU together, empty or not."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"MIG layout: {problem}")
        self.problem = problem


class InstancesInTheWayError(MigPlanError):
    """The wanted instances fit only after instances that are in use have ended; `instances` names these."""

    def __init__(self, instances: tuple[str, ...]) -> None:
        super().__init__(f"MIG layout: in use and in the way: {', '.join(instances)}")
        self.instances = instances


class NoSuchDevicesError(TopologyError):
    """The devices that are offered do not allow a choice."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"devices: {problem}")
        self.problem = problem
