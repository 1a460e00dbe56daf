"""Reads and writes Leases of `coordination.k8s.io/v1`."""

from http import HTTPStatus
from typing import Any

import msgspec
from kubernetes.aio import client

from mcp2026.scheduler_extender.adapters.api_requests import NoAnswerError, ask, message_of
from mcp2026.scheduler_extender.election import LeaseRecord
from mcp2026.scheduler_extender.errors import LeaseChangedError, LeaseUnknownError


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()


class Leases:
    """The Leases of a cluster, through `api`; one is named as `namespace/name`."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api

    async def read(self, lease: str, seconds: float) -> LeaseRecord | None:
        """Return the Lease; None: there is none.

        Raises:
            LeaseUnknownError: the API server does not tell.

        """
        collection, name = _address(lease)
        status, body = await self._ask("GET", f"{collection}/{name}", None, seconds)
        if status == HTTPStatus.NOT_FOUND:
            return None
        return _record(status, body)

    async def write(self, lease: str, record: LeaseRecord, seconds: float) -> LeaseRecord:
        """Store `record` over the version that it names, or anew if it names none; return it as stored.

        Raises:
            LeaseChangedError: the stored one has another version by now.
            LeaseUnknownError: the API server does not tell.

        """
        collection, name = _address(lease)
        namespace = lease.partition("/")[0]
        metadata = {"namespace": namespace, "name": name}
        if record.version:
            metadata["resourceVersion"] = record.version
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": record.holder,
                "leaseDurationSeconds": record.lease_s,
                "leaseTransitions": record.transitions,
                "acquireTime": record.acquired,
                "renewTime": record.renewed,
            },
        }
        if record.version:
            status, answer = await self._ask("PUT", f"{collection}/{name}", body, seconds)
            gone = status == HTTPStatus.NOT_FOUND
        else:
            status, answer = await self._ask("POST", collection, body, seconds)
            gone = False  # 404 is then the namespace's
        if status == HTTPStatus.CONFLICT or gone:
            raise LeaseChangedError(message_of(answer))
        return _record(status, answer)

    async def _ask(
        self, verb: str, path: str, body: dict[str, Any] | None, seconds: float
    ) -> tuple[int, bytes]:
        try:
            return await ask(self._api, verb, path, body, seconds)
        except NoAnswerError as error:
            raise LeaseUnknownError(str(error)) from error


def _address(lease: str) -> tuple[str, str]:
    namespace, _, name = lease.partition("/")
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", name


def _record(status: int, body: bytes) -> LeaseRecord:
    if status >= HTTPStatus.BAD_REQUEST:
        raise LeaseUnknownError(f"{status}: {message_of(body)}")
    try:
        lease = msgspec.json.decode(body, type=_Lease)
    except msgspec.DecodeError as error:
        raise LeaseUnknownError(f"an answer that is no Lease: {error}") from error
    spec = lease.spec
    return LeaseRecord(
        spec.holder_identity or "",
        spec.lease_duration_seconds or 0,
        spec.lease_transitions or 0,
        spec.acquire_time or "",
        spec.renew_time or "",
        lease.metadata.resource_version,
    )
