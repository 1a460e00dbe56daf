"""The model that Triton's Python backend loads. It joins the requests of a batch."""

from typing import Any

import numpy as np
import triton_python_backend_utils as backend

from bench.peers.session import open_session
from bench.peers.task import read_task


class TritonPythonModel:
    """One float32 input, one float32 output."""

    def initialize(self, arguments: dict[str, str]) -> None:  # noqa: ARG002  Triton calls it so
        """Open the session."""
        self._session = open_session(read_task())

    def execute(self, requests: list[Any]) -> list[Any]:
        """Run all requests in one execution."""
        rows = [backend.get_input_tensor_by_name(request, "input").as_numpy() for request in requests]
        output = self._session.run(None, {"input": np.concatenate(rows) if len(rows) > 1 else rows[0]})[0]
        responses, first = [], 0
        for request_rows in rows:
            last = first + len(request_rows)
            tensor = backend.Tensor("output", output[first:last])
            responses.append(backend.InferenceResponse([tensor]))
            first = last
        return responses
