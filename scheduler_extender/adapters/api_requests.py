"""One request to the API server and its answer, through the client that has its address and credentials."""

from typing import Any

import aiohttp
import msgspec
from kubernetes.aio import client

from mcp2026.scheduler_extender.errors import ExtenderError


class NoAnswerError(ExtenderError):
    """No answer came, or not in time: whether the request took effect is not known."""


async def ask(
    api: client.ApiClient, verb: str, path: str, body: dict[str, Any] | None, seconds: float
) -> tuple[int, bytes]:
    """Return the status and the body of the answer to a request in JSON.

    Raises:
        NoAnswerError: there is none within `seconds`.

    """
    method, url, headers, content, _ = await api.param_serialize(
        verb,
        path,
        header_params={"Accept": "application/json", "Content-Type": "application/json"},
        body=body,
        auth_settings=["BearerToken"],
    )
    try:
        answer = await api.call_api(
            method, url, headers, content, _request_timeout=aiohttp.ClientTimeout(total=seconds)
        )
        response: aiohttp.ClientResponse = answer.response
        async with response:
            return response.status, await response.read()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise NoAnswerError(f"the API server does not answer: {error or type(error).__name__}") from error


def message_of(body: bytes) -> str:
    """Return the message of a Kubernetes Status, or how `body` begins if it is none."""
    try:
        return str(msgspec.json.decode(body, type=dict[str, object]).get("message", ""))
    except msgspec.DecodeError:
        return body[:200].decode(errors="replace")
