"""Generate the code of the kubelet's contracts: `python -m mcp2026.device_plugin.kubelet.generate [folder]`.

Needs grpcio-tools. Without a folder, the files beside this one are replaced.
"""

import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = Path("mcp2026/device_plugin/kubelet")
PROTOS = ("deviceplugin.proto", "podresources.proto")


def generate(directory: Path) -> list[Path]:
    """Write the generated modules into `directory` and return them."""
    from grpc_tools import protoc  # type: ignore[import-untyped]  # the developer's, not the plugin's

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / PACKAGE).mkdir(parents=True)
        for proto in PROTOS:
            shutil.copy(HERE / proto, root / PACKAGE / proto)
        code = protoc.main(
            [
                "protoc",
                f"-I{root}",
                f"--python_out={root}",
                f"--pyi_out={root}",
                f"--grpc_python_out={root}",
                *(str(root / PACKAGE / proto) for proto in PROTOS),
            ]
        )
        if code != 0:
            raise SystemExit(f"protoc ended with {code}")
        made = [path for path in sorted((root / PACKAGE).iterdir()) if path.suffix != ".proto"]
        return [Path(shutil.copy(path, directory / path.name)) for path in made]


if __name__ == "__main__":
    for written in generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE):
        print(written)
