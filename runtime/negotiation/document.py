"""The document of `GET /v1/batching`: what is offered, what was negotiated, and why batches left.

Contract: the schema Batching in api/openapi.yaml.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from mcp2026.api.batching_negotiation import BatchingOffer
from mcp2026.runtime.batching.causes import Cause
from mcp2026.runtime.negotiation.sessions import CarrierTotals, Session, Sessions
from mcp2026.runtime.negotiation.terms import Carrier

MOST_SESSIONS = 100
"""Sessions that are listed, those that began last."""


def batching_document(
    offer: BatchingOffer | None,
    carriers: Mapping[Carrier, CarrierTotals],
    batches: Mapping[Cause, int],
    worker: int,
    sessions: Sessions | None,
) -> dict[str, Any]:
    """Return the document.

    `carriers` and `batches` are counts of all workers since the start of the server; `sessions` are those of
    the worker with the number `worker`, which answers.
    """
    listed = [] if sessions is None else [_session(one) for one in sessions.latest(MOST_SESSIONS)]
    document: dict[str, Any] = {} if offer is None else {"offer": _offer(offer)}
    return document | {
        "carriers": [{"carrier": carrier.value} | carriers[carrier]._asdict() for carrier in Carrier],
        "batches": {cause.value: batches[cause] for cause in Cause},
        "worker": worker,
        "worker_sessions": 0 if sessions is None else len(sessions),
        "sessions": listed,
    }


def _session(session: Session) -> dict[str, Any]:
    since = datetime.fromtimestamp(session.since, UTC)
    return {
        "connection": session.id,
        "carrier": session.carrier.value,
        "offer": _values(session.offer.max_delay_ms, session.offer.min_size),
        "negotiated": _values(session.negotiated.max_delay_ms, session.negotiated.min_size),
        "requests": session.requests,
        "since": since.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }


def _offer(offer: BatchingOffer) -> dict[str, Any]:
    return _values(offer.max_delay_ms, offer.min_size) | {"min_size_limit": offer.min_size_limit}


def _values(max_delay_ms: int, min_size: int) -> dict[str, Any]:
    return {"max_delay_ms": max_delay_ms, "min_size": min_size}
