"""Errors of the operator, and nothing about how they are shown."""


class OperatorError(Exception):
    """Base of all errors raised in `mcp2026.operator`."""


class ApiServerUnreachableError(OperatorError):
    """The API server does not answer at all."""


class MissingResourceKindError(OperatorError):
    """The cluster does not know one of our kinds: its CustomResourceDefinition is not installed."""

    def __init__(self, definition: str) -> None:
        super().__init__(
            f"CustomResourceDefinition {definition} is not installed; "
            "install it: kubectl apply --server-side -f crds/"
        )
        self.definition = definition


class ApiRequestError(OperatorError):
    """The API server refused a request. `status` is the HTTP status."""

    def __init__(self, method: str, path: str, status: int, message: str) -> None:
        super().__init__(f"{method} {path}: {status} {message}")
        self.status = status
        self.message = message
