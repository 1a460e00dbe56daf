"""A region of shared memory that a client fills once and a server reads and writes.

The names and bodies are those of the system shared memory extension of the Open Inference Protocol.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bench import dialects
from bench.exchange import Address, Exchange, Floats
from bench.samples import Sample

FOLDER = Path("/dev/shm")
"""Where POSIX shared memory is found as files."""
PREFIX = "bench-"


def region_name(port: int) -> str:
    """Return the name of the region for the server on this port."""
    return f"{PREFIX}{port}"


def shared_memory_exchange(where: Address, path: str, sample: Sample) -> Exchange:
    """Make the region, and return a request that names it; the region is registered first."""
    name = region_name(where.port)
    file = FOLDER / name
    row, output_bytes = sample.row, sample.answer.nbytes
    file.write_bytes(row.tobytes() + bytes(output_bytes))

    def read_output(_headers: Mapping[str, str], _body: bytes) -> Floats:
        return np.frombuffer(file.read_bytes()[row.nbytes :], np.float32)

    registration = Exchange(
        "http1",
        where,
        f"/v2/systemsharedmemory/region/{name}/register",
        dialects.JSON_TYPE,
        json.dumps({"key": f"/{name}", "offset": 0, "byte_size": row.nbytes + output_bytes}).encode(),
        lambda _headers, _body: np.empty(0, np.float32),
    )
    message = dialects.v2_shared_memory(row, name, output_bytes, read_output)
    return Exchange("http1", where, path, *message, prepare=(registration,))


def remove_region(port: int) -> None:
    """Remove the region of the server on this port if there is one."""
    (FOLDER / region_name(port)).unlink(missing_ok=True)
