"""A Ray Serve deployment of one model: JSON or raw bytes in, the same out."""

import signal
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from bench.peers.session import open_session
from bench.peers.task import Task, read_task

Floats = npt.NDArray[np.float32]


def deployment(task: Task) -> Any:
    """Return the deployment with batching on or off."""

    @serve.deployment(num_replicas=1, max_ongoing_requests=256, ray_actor_options={"num_cpus": 1})
    class Onnx:
        """One row a request."""

        def __init__(self) -> None:
            self._session = open_session(task)

        @serve.batch(max_batch_size=task.max_batch_size, batch_wait_timeout_s=task.delay_ms / 1000)
        async def _batched(self, rows: list[Floats]) -> list[Floats]:
            output = self._session.run(None, {"input": np.concatenate(rows)})[0]
            return [output[index : index + 1] for index in range(len(rows))]

        async def __call__(self, request: Request) -> Response:
            """Answer one request."""
            body = await request.body()
            octets = request.headers.get("content-type") == "application/octet-stream"
            if octets:
                rows = np.frombuffer(body, np.float32).reshape(1, *task.input_shape)
            else:
                rows = np.array(orjson.loads(body)["input"], np.float32)
            output = (
                await self._batched(rows) if task.batching else self._session.run(None, {"input": rows})[0]
            )
            if octets:
                return Response(output.tobytes(), media_type="application/octet-stream")
            document = orjson.dumps({"output": output}, option=orjson.OPT_SERIALIZE_NUMPY)
            return Response(document, media_type="application/json")

    decorated: Any = Onnx
    return decorated.bind()


def main(task: Task) -> None:
    """Serve until the process is ended."""
    ray.init(num_cpus=2, include_dashboard=False, _temp_dir=task.folder, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": task.port})
    serve.run(deployment(task), logging_config={"enable_access_log": False})
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    ray.shutdown()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    main(read_task())
