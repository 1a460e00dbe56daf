"""What the check of the contract costs: of an inference, beside all else that the server does for it."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec

from bench.client import workload
from bench.client.workload import Stream
from bench.own_server import Setting
from bench.peers.catalogue import find_peer
from bench.serving import running
from mcp2026.api.contract.validation import check
from mcp2026.runtime.protocol.json_form import DECODERS

_CALLS = 2_000
"""In a row, of one kind; short enough that both kinds see the same machine."""


class _Unchecked(msgspec.Struct, gc=False):
    """The same body, read with no look at types, ranges or names."""

    input: list[Any]
    shape: tuple[Any, ...]
    outputs: Any = None
    model: Any = None
    version_id: Any = None
    timeout_ms: Any = None
    id: Any = None


@dataclass(frozen=True)
class Cost:
    """Processor time in µs.

    Of reading one body with the check and without, of the general validator on it, and of the server for one
    request.
    """

    checked_us: float
    unchecked_us: float
    general_us: float
    request_us: float

    @property
    def share(self) -> float:
        """What the check takes, as a part of a request."""
        return (self.checked_us - self.unchecked_us) / self.request_us


def validation(setting: Setting, seconds: float, rounds: int) -> Cost:
    """Measure reading alone in this process, in turns, and a request on a server under load."""
    body = json.dumps(
        {"input": setting.sample.row.ravel().tolist(), "shape": list(setting.sample.row.shape)}
    ).encode()
    document = json.loads(body)
    checked, unchecked = DECODERS["f"], msgspec.json.Decoder(_Unchecked).decode
    with_check, without, general = [], [], []
    for _ in range(rounds):
        with_check.append(_us(lambda: checked(body)))
        without.append(_us(lambda: unchecked(body)))
        general.append(_us(lambda: check("InferRequest", document)))
    return Cost(median(with_check), median(without), median(general), _request_us(setting, seconds))


def _us(call: Callable[[], object]) -> float:
    begin = time.process_time_ns()
    for _ in range(_CALLS):
        call()
    return (time.process_time_ns() - begin) / _CALLS / 1000


def _request_us(setting: Setting, seconds: float) -> float:
    with running(find_peer("mcp2026"), setting.sample, setting.conditions, setting.logs) as server:
        stream = Stream("requests", setting.exchange(server), 64)
        workload.run([stream], 1, setting.conditions.client_cores)
        before = server.cpu_seconds()
        answers = workload.run([stream], seconds, setting.conditions.client_cores)["requests"].answers
        return (server.cpu_seconds() - before) / answers * 1e6
