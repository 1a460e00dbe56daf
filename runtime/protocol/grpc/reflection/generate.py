"""Generate the message classes: `python -m mcp2026.runtime.protocol.grpc.reflection.generate [folder]`.

Needs grpcio-tools. Without a folder, the files beside this one are replaced.
"""

import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = Path("mcp2026/runtime/protocol/grpc/reflection")


def generate(directory: Path) -> list[Path]:
    """Write the generated modules into `directory` and return them."""
    from grpc_tools import protoc  # type: ignore[import-untyped]  # the developer's, not the server's

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / PACKAGE).mkdir(parents=True)
        protos = [shutil.copy(path, root / PACKAGE / path.name) for path in sorted(HERE.glob("*.proto"))]
        arguments = ["protoc", f"-I{root}", f"--python_out={root}", f"--pyi_out={root}"]
        code = protoc.main([*arguments, *map(str, protos)])
        if code != 0:
            raise SystemExit(f"protoc ended with {code}")
        made = [path for path in sorted((root / PACKAGE).iterdir()) if path.suffix != ".proto"]
        return [Path(shutil.copy(path, directory / path.name)) for path in made]


if __name__ == "__main__":
    for written in generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE):
        print(written)
