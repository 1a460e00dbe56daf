"""What negotiated batching costs and brings: the same requests with and without an offer, in turn."""

import dataclasses
from dataclasses import dataclass
from statistics import median

from bench.client import workload
from bench.own_server import Setting
from bench.peers.mcp2026.peer import mcp2026
from bench.serving import running

OFFER_HEADER = "x-mcp-batch-capable"


@dataclass(frozen=True)
class Negotiated:
    """Medians over the rounds: answers/s, and p50 in ms."""

    plain_rate: float
    negotiated_rate: float
    plain_p50_ms: float
    negotiated_p50_ms: float
    ratio: float
    """Of rates in the same round, negotiated to plain."""
    errors: int


def negotiation(setting: Setting, offer: str, seconds: float, rounds: int, connections: int) -> Negotiated:
    """Load one server in a closed loop over HTTP/1.1, without and with `offer` in each request."""
    cores = setting.conditions.client_cores
    with running(mcp2026(), setting.sample, setting.conditions, setting.logs) as server:
        plain = setting.exchange(server)
        offered = dataclasses.replace(plain, headers=(*plain.headers, (OFFER_HEADER, offer)))
        results = []
        for _ in range(rounds):
            pair = [
                workload.run([workload.Stream("all", exchange, connections)], seconds, cores)["all"]
                for exchange in (plain, offered)
            ]
            results.append([one.as_load_result(seconds) for one in pair])
    return Negotiated(
        plain_rate=median(plain.rate for plain, _ in results),
        negotiated_rate=median(other.rate for _, other in results),
        plain_p50_ms=median(plain.p50_ms for plain, _ in results),
        negotiated_p50_ms=median(other.p50_ms for _, other in results),
        ratio=median(other.rate / plain.rate for plain, other in results),
        errors=sum(one.errors for pair in results for one in pair),
    )
