"""Errors of the scheduler extender."""

from collections.abc import Mapping


class ExtenderError(Exception):
    """Base of all errors raised in `mcp2026.scheduler_extender`."""


class MalformedRequestError(ExtenderError):
    """The body of a verb is not what the extender protocol sends; the message says what is wrong."""


class InvalidQuantityError(ExtenderError):
    """An amount of a resource is not a whole, non-negative Kubernetes quantity."""

    def __init__(self, resource: str, quantity: object) -> None:
        super().__init__(
            f"{resource}: {quantity!r} is no amount of devices; allowed: a whole number from 0, such as 2"
        )
        self.resource = resource
        self.quantity = quantity


class NotSyncedError(ExtenderError):
    """The extender has not yet read the cluster; `waiting_for` names the kinds that it still lacks.

    `problems` gives for each of these kinds what the API server answered last, where it did.
    """

    def __init__(self, waiting_for: tuple[str, ...], problems: Mapping[str, str]) -> None:
        told = [f"{kind} ({problems[kind]})" if kind in problems else kind for kind in waiting_for]
        super().__init__(f"the scheduler extender has not yet read {', '.join(told)} from the API server")
        self.waiting_for = waiting_for
        self.problems = problems


class WatchExpiredError(ExtenderError):
    """The API server no longer has the history from our resourceVersion on: list again."""


class WatchRefusedError(ExtenderError):
    """The API server answered a list or watch with an error; `status` is the HTTP or Status code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class BindingRefusedError(ExtenderError):
    """The API server did not bind the pod, and said so: its devices are free again."""


class BindingUncertainError(ExtenderError):
    """It is not known whether the pod was bound: its devices stay reserved until the watch tells."""


class NotLeadingError(ExtenderError):
    """This process does not answer; the message says who it is, and who leads instead."""


class LeaseChangedError(ExtenderError):
    """A Lease was not written, for it is another by now than the one that was read."""


class LeaseUnknownError(ExtenderError):
    """The API server does not say what a Lease is, or whether it was written."""


class NoRoomError(ExtenderError):
    """The node no longer has what the pod asks for."""


class AddressInUseError(ExtenderError):
    """Another process listens where we should."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(
            f"cannot listen on {host}:{port}: {reason}; "
            "end the process that holds the port or choose another one with --port or --metrics-port"
        )


class CertificateError(ExtenderError):
    """A certificate, key or CA cannot be used."""

    def __init__(self, files: object, problem: str) -> None:
        super().__init__(f"{files}: {problem}; give PEM files of a certificate, its own key, and a CA")


class NoClusterError(ExtenderError):
    """No configuration was found that leads to an API server."""
