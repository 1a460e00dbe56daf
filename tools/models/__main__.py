"""`python -m tools.models resnet50 mlp --output ./models` makes sample models."""

import argparse
import time
from pathlib import Path

from tools.models.catalogue import MODELS, generate


def main() -> None:
    """Make the models named on the command line; one that is there already is left alone."""
    parser = argparse.ArgumentParser(prog="python -m tools.models", description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(MODELS), metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--output", type=Path, default=Path("models"), help="folder (default: ./models)")
    arguments = parser.parse_args()
    for name in arguments.names:
        target = arguments.output / f"{name}.onnx"
        if target.exists():
            print(f"{target}: already there", flush=True)
            continue
        print(f"{target}: generating ...", end="", flush=True)
        started = time.monotonic()
        size = generate(name, arguments.output).stat().st_size
        print(f" {size:,} bytes in {time.monotonic() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
