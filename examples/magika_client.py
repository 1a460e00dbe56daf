"""Ask a served Magika model what some files are, and check that it is right.

`python examples/magika_client.py --serve` starts the server on this machine, asks, checks and stops it.
Without `--serve` it asks the server at `--url`. The package `magika` turns bytes into features and scores
into labels; the model itself runs in the server alone. Exit code 0: every answer is right.
"""

import argparse
import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import magika

EXAMPLES = Path(__file__).parent
MODEL = Path(magika.__file__).parent / "models" / "standard_v3_3" / "model.onnx"

SAMPLES: dict[str, bytes] = {
    "python": Path(__file__).read_bytes(),
    "yaml": (EXAMPLES / "resnet50.yaml").read_bytes(),
    "json": json.dumps(
        {"name": "mcp2026", "ports": [8080, 8081], "nested": {"a": None, "b": [True, 1.5]}}, indent=2
    ).encode(),
    "html": b"<!DOCTYPE html>\n<html lang='en'>\n<head><title>A page</title></head>\n"
    b"<body><h1>Heading</h1><p>Some <em>text</em>.</p></body>\n</html>\n",
    "shell": b'#!/bin/sh\nset -eu\nfor file in *.log; do\n  gzip -9 "$file" && echo "packed $file"\ndone\n',
    "c": b"#include <stdio.h>\n#include <stdlib.h>\n\nint main(int argc, char **argv) {\n"
    b'    for (int i = 0; i < argc; i++) {\n        printf("%d: %s\\n", i, argv[i]);\n    }\n'
    b"    return EXIT_SUCCESS;\n}\n",
    "go": b'package main\n\nimport (\n\t"fmt"\n\t"os"\n)\n\nfunc main() {\n\tfor i, a := range os.Args {\n'
    b'\t\tfmt.Printf("%d: %s\\n", i, a)\n\t}\n}\n',
}
"""What each text is. The label is Magika's name of the content type."""


class ServedMagika(magika.Magika):
    """Magika with its model in a server: the package has no public seam, so two methods are replaced."""

    def __init__(self, url: str) -> None:
        self._url = urllib.parse.urlsplit(url)
        self.requests = 0
        super().__init__(model_dir=MODEL.parent)

    def _init_onnx_session(self) -> Any:
        return None  # no model in this process

    def _get_raw_predictions(self, features: list[tuple[Path, Any]]) -> list[list[float]]:
        size = self._model_config.beg_size + self._model_config.end_size
        rows = [[*entry.beg, *entry.end] for _, entry in features]
        body = {"input": [value for row in rows for value in row], "shape": [len(rows), size]}
        answer = post(self._url, "/v1/infer", body)
        self.requests += 1
        labels = answer["shape"][1]
        return [answer["output"][start : start + labels] for start in range(0, len(answer["output"]), labels)]


def post(url: urllib.parse.SplitResult, path: str, body: dict[str, Any]) -> Any:
    """Return what the server answers to a JSON body."""
    connection = http.client.HTTPConnection(url.hostname or "localhost", url.port or 80, timeout=30)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise SystemExit(f"POST {path}: {response.status} {text.decode(errors='replace')}")
        return json.loads(text)
    except OSError as error:
        raise SystemExit(f"no server at {url.geturl()}: {error}; start one with --serve") from error
    finally:
        connection.close()


@contextlib.contextmanager
def served() -> Iterator[str]:
    """Serve examples/magika.yaml on this machine while the block runs, and give its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="magika-models-") as folder:
        shutil.copy(MODEL, Path(folder) / "magika.onnx")
        command = [
            "local",
            "-f",
            str(EXAMPLES / "magika.yaml"),
            "--volume",
            f"models={folder}",
            "--port",
            str(port),
        ]
        server = subprocess.Popen(
            [sys.executable, "-u", "-m", "mcp2026.cli", *command], stdout=subprocess.PIPE, text=True
        )
        try:
            print_until_ready(server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            print(server.communicate(timeout=30)[0], end="")


def print_until_ready(server: subprocess.Popen[str]) -> None:
    """Print what the server says until it says how to reach it."""
    assert server.stdout is not None
    for line in server.stdout:
        print(line, end="", flush=True)
        if line.startswith("==> try:"):
            return
    raise SystemExit(f"the server ended with exit code {server.wait()}")


def ask(url: str) -> bool:
    """Print what the server takes each sample for, and return whether all answers are right."""
    identify = ServedMagika(url)
    right = 0
    print(f"{'IS':<8} {'ANSWER':<8} {'SCORE':>6}")
    for label, content in SAMPLES.items():
        result = identify.identify_bytes(content)
        correct = result.output.label == label
        right += correct
        print(
            f"{label:<8} {result.output.label:<8} {result.score:6.3f} {'' if correct else '  WRONG'}".rstrip()
        )
    print(f"{right} of {len(SAMPLES)} right, {identify.requests} inferences at {url}/v1/infer")
    return right == len(SAMPLES) == identify.requests


def main() -> None:
    """Ask, print, and exit 0 if all answers are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--serve", action="store_true", help="start a server on this machine for the time of the check"
    )
    parser.add_argument("--url", default="http://localhost:8080", help="server to ask; default: %(default)s")
    parser.add_argument(
        "--print-model-path", action="store_true", help="print where the ONNX file lies, and end"
    )
    arguments = parser.parse_args()
    if arguments.print_model_path:
        print(MODEL)
        return
    with served() if arguments.serve else contextlib.nullcontext(arguments.url) as url:
        right = ask(url)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
