"""Gives each run ports that no other run has, now or a moment later."""

import socket
from collections.abc import Callable, Container, Iterator

from tools.cluster.cache import held
from tools.cluster.errors import ClusterError
from tools.cluster.record import Record, records, state_folder

PORTS = range(20000, 30000)
"""Below the range from which Linux gives ports to outgoing connections (32768 and up), so that none of
those can take a port between the moment it is chosen and the moment a program listens on it."""


def is_free(port: int) -> bool:
    """Tell whether nothing listens on a port, on any address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def choose(count: int, taken: Container[int], free: Callable[[int], bool] = is_free) -> list[int]:
    """Return the first ports of the range that no run has and nothing listens on."""
    found: list[int] = []
    candidates: Iterator[int] = iter(PORTS)
    while len(found) < count:
        port = next(candidates, None)
        if port is None:
            raise ClusterError(f"no free port is left from {PORTS.start} to {PORTS.stop - 1}")
        if port not in taken and free(port):
            found.append(port)
    return found


def claim(record: Record, count: int) -> list[int]:
    """Give the run ports of its own and record them; runs that claim at the same time wait in line."""
    with held(state_folder() / "ports.lock"):
        taken = {port for other in records() for port in other.ports}
        chosen = choose(count, taken)
        record.ports += chosen
        record.save()
    return chosen
