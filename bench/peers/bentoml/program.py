"""The service that `bentoml serve` loads."""

import bentoml
import numpy as np
import numpy.typing as npt

from bench.peers.session import open_session
from bench.peers.task import read_task

Floats = npt.NDArray[np.float32]

_TASK = read_task()
_LATENCY_OBJECTIVE_MS = 10_000
"""BentoML refuses requests that it expects to miss this; 5 ms, the delay of the others, refused most."""


@bentoml.service(
    workers=1, traffic={"timeout": 60, "max_concurrency": 512}, logging={"access": {"enabled": False}}
)
class Onnx:
    """One float32 input, one float32 output."""

    def __init__(self) -> None:
        self._session = open_session(_TASK)

    @bentoml.api(
        batchable=_TASK.batching,
        max_batch_size=_TASK.max_batch_size,
        max_latency_ms=_LATENCY_OBJECTIVE_MS,
    )
    def infer(self, input: Floats) -> Floats:  # noqa: A002  the name is the field of the body
        """Run the rows of one request, or of those that BentoML collected."""
        output: Floats = self._session.run(None, {"input": input.astype(np.float32)})[0]
        return output
