"""Generate the message classes of the runtime: `python -m tools.protobuf`.

Needs grpcio-tools. They stand beside the `.proto` files that they are made from.
"""

import shutil
import tempfile
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped]  # it comes without types

ROOT = Path(__file__).parents[1]
FOLDERS = ("runtime/model/triton", "runtime/protocol/grpc/reflection", "runtime/protocol/open_inference")
"""Where there are `.proto` files, below the repository."""


def generate(folder: str, directory: Path) -> list[Path]:
    """Write the modules of all `.proto` files of `folder` into `directory` and return them."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        package = root / "mcp2026" / folder  # the path to a file is a part of what is generated
        package.mkdir(parents=True)
        protos = [shutil.copy(path, package) for path in sorted((ROOT / folder).glob("*.proto"))]
        code = protoc.main(
            ["protoc", f"-I{root}", f"--python_out={root}", f"--pyi_out={root}", *map(str, protos)]
        )
        if code != 0:
            raise SystemExit(f"protoc ended with {code}")
        made = [path for path in sorted(package.iterdir()) if path.suffix != ".proto"]
        return [Path(shutil.copy(path, directory)) for path in made]


if __name__ == "__main__":
    for each in FOLDERS:
        for written in generate(each, ROOT / each):
            print(written.relative_to(ROOT))
