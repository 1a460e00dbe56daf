"""`python -m tools.contract generate|check`: write what follows from the contract, or say what drifted."""

import argparse
import sys

from tools.contract.generate import FOLDER, drift, generate
from tools.contract.source import ROOT, SourceError


def main() -> int:
    """Return the exit status: 1 if the contract breaks a rule, or what is generated is not up to date."""
    parser = argparse.ArgumentParser(prog="python -m tools.contract", description=__doc__)
    parser.add_argument("command", choices=["generate", "check"])
    command = parser.parse_args().command
    try:
        if command == "generate":
            for path in generate(FOLDER):
                print(path.relative_to(ROOT))
            return 0
        stale = drift()
    except SourceError as error:
        print(f"api/openapi.yaml: {error}", file=sys.stderr)
        return 1
    for name in stale:
        print(f"api/contract/{name} is not what api/openapi.yaml gives: run `make generate`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
