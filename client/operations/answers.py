"""What all answers have in common: the outcome, and JSON."""

from typing import Any, TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message

from mcp2026.client.errors import ErrorBody, ProtocolError, error_of_http
from mcp2026.client.exchange import HttpResponse

_Message = TypeVar("_Message", bound=Message)

_ALLOWED = " (allowed: "
"""With it our server says in one sentence what `/v1` says in fields: `field: problem (allowed: …)`."""


def succeeded(response: HttpResponse) -> HttpResponse:
    """Return `response` if it has status 200 or another of 2xx.

    Raises:
        ClientError: it has another, and its body says why.

    """
    if 200 <= response.status < 300:
        return response
    body = error_body(response.body)
    if body is None:
        text = bytes(response.body[:200]).decode(errors="replace")
        if response.status == 404:
            raise ProtocolError(f"the server does not know the path: {text!r}", status=404)
        body = ErrorBody(
            f"HTTP status {response.status}: {text}" if text else f"HTTP status {response.status}"
        )
    raise error_of_http(response.status, body, retry_after(response.headers.get("retry-after")))


def error_body(content: bytes | bytearray) -> ErrorBody | None:
    """Return what an error body says, of `/v1` or of `/v2`; None if it is none."""
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    error = document.get("error") if isinstance(document, dict) else None
    if isinstance(error, str):
        return error_of_text(error)
    if not isinstance(error, dict):
        return None
    said = {name: value for name, value in error.items() if isinstance(value, str)}
    return ErrorBody(
        said.get("message", ""),
        said.get("code", ""),
        said.get("field"),
        said.get("rule"),
        said.get("allowed"),
    )


def error_of_text(text: str) -> ErrorBody:
    """Return what one sentence says."""
    field, colon, rest = text.partition(": ")
    _problem, mark, allowed = rest.rpartition(_ALLOWED)
    if not (colon and mark and allowed.endswith(")") and field.split() == [field] and ":" not in field):
        return ErrorBody(text)
    return ErrorBody(text, field=field, allowed=allowed[:-1])


def retry_after(value: str | None) -> float | None:
    """Return the seconds of a `Retry-After`; None for a date, since clocks differ, and for anything else."""
    return (
        float(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 7 else None
    )


def json_object(content: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Return the JSON object in `content`.

    Raises:
        ProtocolError: it is none.

    """
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"the answer is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ProtocolError("the answer is no JSON object")
    return document


def parsed(message: _Message, content: bytes) -> _Message:
    """Return `message` filled from `content`.

    Raises:
        ProtocolError: that is no such message.

    """
    try:
        message.ParseFromString(content)
    except DecodeError as error:
        raise ProtocolError(f"the answer is no {type(message).__name__}: {error}") from error
    return message
