"""All servers by name, and whether one can run here."""

from pathlib import Path

from bench.errors import BenchError
from bench.installation import is_installed
from bench.peers.bare.peer import BARE
from bench.peers.bentoml.peer import BENTOML
from bench.peers.kserve.peer import KSERVE
from bench.peers.litserve.peer import LITSERVE
from bench.peers.mcp2026.peer import mcp2026
from bench.peers.mlserver.peer import MLSERVER
from bench.peers.peer import Peer
from bench.peers.pytriton.peer import PYTRITON
from bench.peers.ray.peer import RAY
from bench.peers.triton.peer import TRITON

OURS = "mcp2026"
CEILING = "bare"
RAW = "raw"
RAW_BATCHED = "raw-batched"
"""ONNX Runtime without a server: one row a call, and as many rows a call as there are concurrent requests."""
NO_SERVER = (RAW, RAW_BATCHED)

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (mcp2026(), BARE, *TRITON, *PYTRITON, *MLSERVER, KSERVE, *LITSERVE, *BENTOML, *RAY)
}
"""MCP 2026, the ceiling, and the servers it is compared with."""


def find_peer(name: str) -> Peer:
    """Return the server of this name; `mcp2026@FOLDER` is MCP 2026 from another checkout.

    Raises:
        BenchError: there is none.

    """
    if name.startswith(f"{OURS}@"):
        folder = Path(name.partition("@")[2])
        if not (folder / "runtime" / "__main__.py").exists():
            raise BenchError(f"{name}: {folder} is no checkout of MCP 2026")
        return mcp2026(folder, name)
    if name not in PEERS:
        raise BenchError(f"no server {name!r}; known: {', '.join((*NO_SERVER, *PEERS))}")
    return PEERS[name]


def why_not_here(peer: Peer) -> str | None:
    """Return why this server cannot run on this machine, or None."""
    if peer.requirements and not is_installed(peer.requirements):
        return f"not installed, or in another version: python -m bench install {peer.requirements}"
    return None


def is_peer(name: str) -> bool:
    """Return whether this is another server: neither ours nor a ceiling."""
    return name.partition("@")[0] not in (OURS, CEILING, *NO_SERVER)
