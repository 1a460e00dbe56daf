"""Writes the proto, its Python module, and the document that servers show. Needs grpcio-tools."""

import json
import shutil
import tempfile
from pathlib import Path

from tools.contract.field_numbers import check_numbers, numbers_in
from tools.contract.proto import proto_of
from tools.contract.source import ROOT, Source, read_source

FOLDER = ROOT / "api" / "contract"
PACKAGE = Path("mcp2026/api/contract")
PROTO = "native.proto"
DOCUMENT = "openapi.json"
MADE = (PROTO, "native_pb2.py", "native_pb2.pyi", DOCUMENT)


def generate(folder: Path, source: Source | None = None) -> list[Path]:
    """Write all that follows from the contract into `folder` and return the files.

    Raises:
        SourceError: the contract breaks a rule, or a number means another field than in the present proto.

    """
    from grpc_tools import protoc  # type: ignore[import-untyped]  # the developer's, not the server's

    source = source or read_source()
    proto = proto_of(source)
    present = FOLDER / PROTO
    if present.exists():
        check_numbers(numbers_in(present.read_text(encoding="utf-8")), numbers_in(proto))
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        made = root / PACKAGE
        made.mkdir(parents=True)
        (made / PROTO).write_text(proto, encoding="utf-8")
        (made / DOCUMENT).write_text(
            json.dumps(source.document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        arguments = ["protoc", f"-I{root}", f"--python_out={root}", f"--pyi_out={root}"]
        code = protoc.main([*arguments, str(made / PROTO)])
        if code != 0:
            raise SystemExit(f"protoc ended with {code}")
        return [Path(shutil.copy(made / name, folder / name)) for name in MADE]


def drift() -> list[str]:
    """Return the names of the generated files that are not what the contract gives.

    Raises:
        SourceError: the contract breaks a rule.

    """
    with tempfile.TemporaryDirectory() as temporary:
        return [
            path.name
            for path in generate(Path(temporary))
            if not (FOLDER / path.name).exists() or (FOLDER / path.name).read_bytes() != path.read_bytes()
        ]
