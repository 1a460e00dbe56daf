"""`list`, `install`: which servers there are and how they get here."""

import argparse

from bench.commands.options import Commands
from bench.installation import install, installable
from bench.peers.catalogue import PEERS, why_not_here
from tools.cluster.progress import to_stderr

NOT_COMPARED = (
    (
        "triton with its ONNX Runtime backend",
        "in container images alone; no wheel holds libtriton_onnxruntime.so",
    ),
)
"""Servers that one would look for, and why they are not here."""


def add_commands(commands: Commands) -> None:
    """Add the commands."""
    listing = commands.add_parser("list", help="say which servers can be compared here, and why one cannot")
    listing.set_defaults(run=_list)
    installing = commands.add_parser(
        "install", help="install peers into environments of their own, outside the repository"
    )
    installing.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(installable())} (all)")
    installing.set_defaults(run=_install)


def _list(_parsed: argparse.Namespace) -> int:
    for peer in PEERS.values():
        print(f"{peer.name:20} {why_not_here(peer) or 'ready':70} {peer.summary}")
    for name, reason in NOT_COMPARED:
        print(f"{name}: {reason}")
    return 0


def _install(parsed: argparse.Namespace) -> int:
    for name in parsed.names or installable():
        install(name, to_stderr)
    return 0
