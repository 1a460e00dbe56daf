"""Generate the message classes: `python -m mcp2026.client.open_inference.generate [folder]`.

Needs grpcio-tools, and the repository: the source is the server's own .proto. The messages get a package name
of the client, since the pool of a process takes each name once, and a process may have client and server.
Without a folder, the files beside this one are replaced.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "runtime/protocol/open_inference/open_inference.proto"
PACKAGE = Path("mcp2026/client/open_inference")
_THEIR_NAME = "package mcp2026.open_inference;"
_OUR_NAME = "package mcp2026.client.open_inference;"
_SERVICE = re.compile(r"\nservice \w+ \{\n.*?\n\}\n", re.DOTALL)
"""For the server's reflection alone."""


def generate(directory: Path) -> list[Path]:
    """Write the generated modules into `directory` and return them."""
    from grpc_tools import protoc  # type: ignore[import-untyped]  # the developer's, not the user's

    text = SOURCE.read_text()
    if text.count(_THEIR_NAME) != 1:
        raise SystemExit(f"{SOURCE} does not say {_THEIR_NAME!r} once")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / PACKAGE).mkdir(parents=True)
        proto = root / PACKAGE / SOURCE.name
        proto.write_text(_SERVICE.sub("\n", text.replace(_THEIR_NAME, _OUR_NAME)))
        code = protoc.main(["protoc", f"-I{root}", f"--python_out={root}", f"--pyi_out={root}", str(proto)])
        if code != 0:
            raise SystemExit(f"protoc ended with {code}")
        made = [path for path in sorted((root / PACKAGE).iterdir()) if path.suffix != ".proto"]
        return [Path(shutil.copy(path, directory / path.name)) for path in made]


if __name__ == "__main__":
    for written in generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE):
        print(written)
