"""Errors of the shared vocabulary."""


class ApiError(Exception):
    """Base of all errors raised in `mcp2026.api`."""


class SettingsError(ApiError):
    """A flag, an environment variable or a field of a settings file has a value that is not allowed.

    `setting` names it as the user wrote it, `allowed` says what would have been accepted.
    """

    def __init__(self, setting: str, problem: str, allowed: str) -> None:
        super().__init__(f"{setting}: {problem}; allowed: {allowed}")
        self.setting = setting


class ConfigurationError(ApiError):
    """A configuration file cannot be used; `str()` names file, field, problem and what is allowed."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}")
        self.source = source
        self.problem = problem


class InvalidResourceError(ApiError):
    """A resource does not have the shape that its schema asks for.

    `field` is the path of the offending field (``spec.batching.maxBatchSize``), `allowed` says what
    would have been accepted.
    """

    def __init__(self, field: str, problem: str, allowed: str) -> None:
        super().__init__(f"{field}: {problem}; allowed: {allowed}")
        self.field = field
        self.problem = problem
        self.allowed = allowed


class TransitionRefusedError(ApiError):
    """The life cycle allows no such step from this phase, or its guard does not hold."""

    def __init__(self, phase: str, event: str, reason: str, problem: str) -> None:
        super().__init__(f"{event} refused in phase {phase}: {problem}")
        self.phase = phase
        self.event = event
        self.reason = reason
        """A `RefusalReason`."""
