"""`python -m bench COMMAND`: comparisons of servers, and what MCP 2026 is held to by itself."""

import argparse
import signal
import sys
from collections.abc import Sequence

from bench.commands import binds, comparing, own_server, peers, placement, plugin_footprint, simulate
from bench.errors import BenchError
from tools.cluster.errors import ClusterError


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    root = argparse.ArgumentParser(
        prog="python -m bench",
        description="Compare inference servers: same model, cores and client, in one run.",
    )
    commands = root.add_subparsers(metavar="COMMAND", required=True)
    comparing.add_commands(commands)
    own_server.add_commands(commands)
    peers.add_commands(commands)
    placement.add_commands(commands)
    plugin_footprint.add_commands(commands)
    simulate.add_commands(commands)
    binds.add_commands(commands)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, 1 if it failed or a bar was missed, 2 for a wrong command line."""
    parsed = parser().parse_args(arguments)
    # So that a run that is told to end takes its server with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return int(parsed.run(parsed))
    except (BenchError, ClusterError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted; the same command goes on where it ended", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
