"""The snippets of the guide run as they stand, but for the addresses."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.runtime.server_process import Server
from tools.models import generate

PAGE = (Path(__file__).parents[3] / "docs/clients.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Python\n")[2].partition("\n## ")[0]
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server("--model-path", str(generate("mlp", tmp_path)), "--threads", "1")
    yield one
    one.close()


def test_the_snippets_print_what_they_promise(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n".join(SNIPPETS)
    for written, real in (("localhost:8080", server.port), ("localhost:8081", server.grpc_port)):
        assert written in code
        code = code.replace(written, f"127.0.0.1:{real}")
    exec(compile(code, "docs/clients.md", "exec"), {"__name__": "guide"})
    printed = capsys.readouterr().out
    assert "True ModelMetadata(name='mlp'" in printed
    assert "(2, 10) 1\n" in printed
    assert "NegotiatedBatching(max_delay_ms=50, min_size=3) 8\n" in printed
    assert "inputs.input.datatype FP32\n" in printed
