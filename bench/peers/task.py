"""What a server is asked to serve, in the environment of its process.

The programs of the peers read it in their own virtual environments, so only the standard library is used.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

VARIABLE = "BENCH_TASK"


@dataclass(frozen=True)
class Task:
    """One model, served at its best within these bounds.

    `input_shape` and `output_shape` are without the batch dimension. `delay_ms` is how long a batching
    server may wait for a batch to fill. `folder` is the server's own, empty when it starts.
    """

    model: str
    file: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    threads: int
    batching: bool
    max_batch_size: int
    delay_ms: int
    port: int
    grpc_port: int
    spare_port: int
    unix: str
    grpc_unix: str
    folder: str

    def to_environment(self) -> dict[str, str]:
        """Return the environment variable that carries the task."""
        return {VARIABLE: json.dumps(dataclasses.asdict(self))}


def read_task(environment: Mapping[str, str] = os.environ) -> Task:
    """Return the task that this process was started for."""
    fields = json.loads(environment[VARIABLE])
    for name in ("input_shape", "output_shape"):
        fields[name] = tuple(fields[name])
    return Task(**fields)
