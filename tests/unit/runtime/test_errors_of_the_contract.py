"""The runtime and the contract have the same errors."""

import json
import subprocess
import sys

from mcp2026.api.contract.documents import schema
from mcp2026.api.contract.validation import check
from mcp2026.runtime.errors import ErrorCode, RequestError, invalid
from mcp2026.runtime.protocol.observability import error_response


def test_the_codes_are_those_of_the_contract() -> None:
    assert sorted(schema("Error")["properties"]["code"]["enum"]) == sorted(ErrorCode)


def test_every_error_body_keeps_the_contract() -> None:
    for code in ErrorCode:
        check("ErrorResponse", json.loads(error_response(RequestError(code, "words")).body))
    body = json.loads(error_response(invalid("weight", "101 is out of range", "0 to 100", "maximum")).body)
    check("ErrorResponse", body)
    assert body["error"] == {
        "code": "invalid_argument",
        "message": "weight: 101 is out of range",
        "field": "weight",
        "rule": "maximum",
        "allowed": "0 to 100",
    }


def test_a_server_starts_and_infers_without_the_general_validator() -> None:
    code = (
        "import sys, mcp2026.runtime.process.worker\n"
        "from mcp2026.runtime.model.store import ModelStore\n"
        "from mcp2026.runtime.protocol.json_codec import JsonCodec\n"
        "try:\n"
        "    JsonCodec(ModelStore(), 10**9).decode(b'{}')\n"
        "except Exception as error:\n"
        "    assert error.rule == 'required'\n"
        "print('jsonschema_rs' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "False"
