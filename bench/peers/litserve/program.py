"""LitServe's API of one model; `input` is nested lists, or base64 with a `shape`."""

import base64
from typing import Any

import litserve
import numpy as np
import numpy.typing as npt

from bench.peers.session import open_session
from bench.peers.task import Task, read_task

Floats = npt.NDArray[np.float32]


class OnnxApi(litserve.LitAPI):
    """One row a request."""

    def setup(self, device: str) -> None:  # noqa: ARG002  LitServe calls it so
        """Open the session."""
        self._session = open_session(read_task())

    def decode_request(self, request: dict[str, Any]) -> tuple[Floats, bool]:
        """Return the row, and whether it came as base64."""
        if isinstance(request["input"], str):
            data = base64.b64decode(request["input"])
            return np.frombuffer(data, np.float32).reshape(request["shape"])[0], True
        return np.array(request["input"][0], np.float32), False

    def predict(self, inputs: Any) -> Any:
        """Run one row, or with batching the list of rows that LitServe collected."""
        if isinstance(inputs, tuple):
            row, encoded = inputs
            return self._session.run(None, {"input": row[None]})[0][0], encoded
        rows = np.stack([row for row, _ in inputs])
        output = self._session.run(None, {"input": rows})[0]
        return [(row, encoded) for row, (_, encoded) in zip(output, inputs, strict=True)]

    def batch(self, inputs: list[Any]) -> list[Any]:
        """Leave the rows as they are: `predict` stacks them."""
        return inputs

    def unbatch(self, output: list[Any]) -> list[Any]:
        """Leave the rows as they are."""
        return output

    def encode_response(self, output: tuple[Floats, bool]) -> dict[str, Any]:
        """Answer in the form of the request."""
        row, encoded = output
        return {"output": base64.b64encode(row.tobytes()).decode() if encoded else row.tolist()}


def main(task: Task) -> None:
    """Serve until the process is ended."""
    batching = (
        {"max_batch_size": task.max_batch_size, "batch_timeout": task.delay_ms / 1000}
        if task.batching
        else {}
    )
    server = litserve.LitServer(OnnxApi(**batching), accelerator="cpu", workers_per_device=1, timeout=60)
    server.run(
        host="127.0.0.1",
        port=task.port,
        num_api_servers=1,
        log_level="warning",
        access_log=False,
        generate_client_file=False,
    )


if __name__ == "__main__":
    main(read_task())
