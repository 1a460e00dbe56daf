"""On what a comparison was made: figures mean nothing without it."""

import importlib.metadata
import os
import platform
import re
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from bench.peers.peer import Peer, interpreter


class Machine(msgspec.Struct, frozen=True):
    """Processor, usable cores, memory in GiB, system, load average when the run began, and when (UTC)."""

    processor: str
    cores: int
    memory_gib: float
    kernel: str
    load: float
    date: str


def this_machine() -> Machine:
    """Return what this machine is."""
    information = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", information, re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(
        processor=model[1] if model else platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(memory / 2**30, 1),
        kernel=platform.release(),
        load=round(os.getloadavg()[0], 2),
        date=time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    )


def versions(peers: Iterable[Peer]) -> dict[str, str]:
    """Return the versions of what is compared, of ONNX Runtime, of Python and of the client."""
    found = {
        "python": platform.python_version(),
        "onnxruntime": importlib.metadata.version("onnxruntime"),
        "h2load": _first_line(["h2load", "--version"]).rpartition("/")[2],
    }
    for peer in peers:
        # The program asks its own environment; ours is this checkout, whose version says little.
        if peer.requirements is not None:
            code = f"import importlib.metadata as m; print(m.version({peer.distribution!r}))"
            found[peer.distribution] = _first_line([interpreter(peer.requirements), "-c", code])
    return found


def _first_line(command: list[str]) -> str:
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "missing"
    return run.stdout.strip().partition("\n")[0]
