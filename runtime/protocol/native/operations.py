"""The operations of the contract, found by HTTP path and by gRPC method."""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple
from urllib.parse import unquote

from mcp2026.api.contract.documents import document, reference

_VERBS = ("get", "put", "post", "delete", "patch")


class Operation(NamedTuple):
    """One operation in both transports."""

    operation_id: str
    verb: str
    """Of HTTP, in capitals."""
    path: str
    """With names in braces."""
    service: str
    """Full name of the gRPC service."""
    method: str
    """Of that service."""
    request: str
    """Name of the schema, and of the message."""
    response: str
    status: int
    """Of HTTP, for success."""
    has_body: bool
    """The request is the body; otherwise it is made of what stands in the path."""

    @property
    def call(self) -> str:
        """The path of the gRPC call."""
        return f"/{self.service}/{self.method}"


@cache
def operations() -> tuple[Operation, ...]:
    """Return all operations, in the order of the contract."""
    return tuple(_read())


def _read() -> Iterator[Operation]:
    contract = document()
    for path, item in contract["paths"].items():
        for verb in _VERBS:
            if verb not in item:
                continue
            operation = item[verb]
            body = operation.get("requestBody")
            status = next(status for status in operation["responses"] if status.startswith("2"))
            yield Operation(
                operation["operationId"],
                verb.upper(),
                path,
                f"{contract['x-grpc-package']}.{operation['x-grpc-service']}",
                operation["x-grpc-method"],
                operation["x-grpc-request"] if body is None else _schema_of(body),
                _schema_of(operation["responses"][status]),
                int(status),
                body is not None,
            )


def _schema_of(content: dict[str, dict[str, dict[str, dict[str, str]]]]) -> str:
    name = reference(content["content"]["application/json"]["schema"])
    assert name is not None
    return name


class Route(NamedTuple):
    """What a path stands for."""

    by_verb: dict[str, Operation]
    names: dict[str, str]
    """What stands in the path, by the names in the contract."""


class Routes:
    """Finds operations by path."""

    def __init__(self, served: tuple[Operation, ...]) -> None:
        self._by_path: dict[tuple[str, ...], dict[str, Operation]] = {}
        for operation in served:
            steps = tuple(operation.path.strip("/").split("/"))
            self._by_path.setdefault(steps, {})[operation.verb] = operation

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths, with names in braces."""
        return tuple("/" + "/".join(steps) for steps in self._by_path)

    def find(self, path: str) -> Route | None:
        """Return what the `path` of a request stands for; names in it are percent-encoded."""
        asked = path[1:].split("/")
        for steps, by_verb in self._by_path.items():
            if len(steps) == len(asked) and all(
                _is_name(step) or step == one for step, one in zip(steps, asked, strict=True)
            ):
                names = {
                    step[1:-1]: unquote(one, "utf-8", "replace")
                    for step, one in zip(steps, asked, strict=True)
                    if _is_name(step)
                }
                return Route(by_verb, names)
        return None


def _is_name(step: str) -> bool:
    return step.startswith("{")
