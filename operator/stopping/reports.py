"""How the servers ended: what each container's last end says, kept in the status as it comes."""

import hashlib
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from mcp2026.api.conditions import Reason
from mcp2026.api.lifecycle import ExitCodeReported
from mcp2026.api.stopping import ENDED_SERVERS_KEPT, LONGEST_PROBLEM, EndedServer
from mcp2026.operator.manifests import Manifest
from mcp2026.operator.observed import at, has_run, is_scheduled, staying
from mcp2026.operator.rollout import pod_blocked

CONTAINER = "runtime"
NAMED = 3
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LARGEST = 2**53
_REASONS = (Reason.STOPPED, Reason.DRAIN_INCOMPLETE, Reason.ARCHIVE_FAILED)


class _LastWord(msgspec.Struct, frozen=True):
    """The line of JSON that `mcp2026-server` leaves, as far as it matters here."""

    exit_code: int
    reason: str
    served: bool
    drained: int = 0
    archive_sha256: str | None = None
    archive_error: str | None = None
    message: str = ""

    @property
    def problem(self) -> str:
        """Why it did not end well, in one line; empty if it did."""
        told = self.archive_error or (self.message if self.exit_code else "")
        return " ".join(told.split())[:LONGEST_PROBLEM]


def gathered(known: tuple[EndedServer, ...], pods: tuple[Manifest, ...]) -> tuple[EndedServer, ...]:
    """Return `known` and the servers that have ended since. What was reported of a pod stays."""
    names = {server.pod for server in known}
    ended = (_ended(pod) for pod in sorted(pods, key=_name) if _name(pod) not in names)
    return (*known, *(server for server in ended if server is not None))[:ENDED_SERVERS_KEPT]


def awaited(known: tuple[EndedServer, ...], pods: tuple[Manifest, ...]) -> tuple[str, ...]:
    """Return the names of the pods that have still to report.

    Those without a node, and those whose container cannot be started, have served nothing and never will.
    What is on its way out is replaced by its ReplicaSet, if it is missed.
    """
    names = {server.pod for server in known}
    present = (pod for pod in staying(pods) if at(pod, "status", "phase") not in ("Failed", "Succeeded"))
    return tuple(sorted(_name(pod) for pod in present if _name(pod) not in names and _may_report(pod)))


def missing(known: tuple[EndedServer, ...], pods: tuple[Manifest, ...], replicas: int) -> int:
    """Return how many pods have gone without a report, and have not been replaced yet."""
    present = {
        _name(pod) for pod in staying(pods) if at(pod, "status", "phase") not in ("Failed", "Succeeded")
    }
    return max(replicas - len(present | {server.pod for server in known}), 0)


@dataclass(frozen=True, slots=True)
class Ending:
    """How all servers ended together."""

    servers: tuple[EndedServer, ...]

    @property
    def worst(self) -> EndedServer | None:
        """The server with the worst exit code; None if no server ran."""
        return max(self.servers, key=lambda server: (server.exit_code != 0, server.exit_code), default=None)

    @property
    def event(self) -> ExitCodeReported:
        """The evidence for the life cycle: the worst code, valid if each server says so itself."""
        worst = self.worst
        good = all(server.reason == Reason.STOPPED for server in self.servers)
        return ExitCodeReported(worst.exit_code if worst else 0, validated=good)

    @property
    def reason(self) -> Reason:
        """As what a condition tells it."""
        worst = self.worst
        if worst is None or worst.exit_code == 0:
            return Reason.SERVERS_ENDED
        return (
            Reason(worst.reason)
            if worst.reason in (Reason.DRAIN_INCOMPLETE, Reason.ARCHIVE_FAILED)
            else Reason.POD_FAILED
        )

    @property
    def message(self) -> str:
        """What came of them, in one line."""
        if not self.servers:
            return "no server ran when the model was stopped"
        drained = sum(server.drained for server in self.servers)
        good = sum(server.exit_code == 0 for server in self.servers)
        text = (
            f"{good} of {len(self.servers)} servers ended with exit code 0, {drained} requests were drained"
        )
        bad = [_told(one) for one in self.servers if one.exit_code]
        idle = [server.pod for server in self.servers if not server.served]
        if idle:  # they came up too late, or in place of one that was lost before it reported
            text += f"; {len(idle)} of them had served nothing: {named(idle)}"
        return "; ".join((text, *bad[:NAMED]))

    @property
    def unarchived(self) -> tuple[str, ...]:
        """Pods without an archived log."""
        return tuple(server.pod for server in self.servers if not server.archive_sha256)

    @property
    def digest(self) -> str | None:
        """The digest of the only archive; of several that of their list, as `sha256sum` writes it.

        None if a log is not archived, or no server ran.
        """
        if not self.servers or self.unarchived:
            return None
        if len(self.servers) == 1:
            return self.servers[0].archive_sha256
        lines = sorted(f"{server.archive_sha256}  {server.pod}.log.gz\n" for server in self.servers)
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def named(pods: list[str] | tuple[str, ...]) -> str:
    """Return the first names, and how many more there are."""
    more = len(pods) - NAMED
    text = ", ".join(pods[:NAMED])
    return f"{text} and {more} more" if more > 0 else text


def _ended(pod: Manifest) -> EndedServer | None:
    """Return how the server of `pod` ended, if its last end is that of a server that was stopped."""
    container = _container(pod)
    for ended in (at(container, "state", "terminated"), at(container, "lastState", "terminated")):
        message, code = at(ended, "message"), at(ended, "exitCode")
        if not isinstance(message, str) or not isinstance(code, int):
            continue
        try:
            said = msgspec.json.decode(message, type=_LastWord)
        except msgspec.DecodeError:
            continue
        if said.reason not in _REASONS:
            continue
        digest = said.archive_sha256 or ""
        return EndedServer(
            _name(pod),
            code,  # the kubelet's: what a message says counts for nothing if it differs
            said.reason if said.exit_code == code else Reason.POD_FAILED,
            said.served,
            min(max(said.drained, 0), _LARGEST),
            digest if _SHA256.fullmatch(digest) else "",
            said.problem if said.exit_code == code else "",
        )
    return None


def _told(server: EndedServer) -> str:
    why = f": {server.problem}" if server.problem else ""
    return f"pod {server.pod}: exit code {server.exit_code} ({server.reason}){why}"


def _may_report(pod: Manifest) -> bool:
    return is_scheduled(pod) and (has_run(pod) or pod_blocked(pod) is None)


def _container(pod: Manifest) -> dict[str, Any]:
    statuses = at(pod, "status", "containerStatuses") or []
    return next((one for one in statuses if one.get("name") == CONTAINER), {})


def _name(pod: Manifest) -> str:
    return str(pod["metadata"]["name"])
