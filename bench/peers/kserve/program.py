"""KServe's server of one model."""

import kserve
from kserve import InferOutput, InferRequest, InferResponse

from bench.peers.session import open_session
from bench.peers.task import Task, read_task


class OnnxModel(kserve.Model):
    """One float32 input, one float32 output."""

    def __init__(self, task: Task) -> None:
        super().__init__(task.model)
        self._session = open_session(task)
        self.ready = True

    def load(self) -> bool:
        """Say that the model is there; the constructor has loaded it."""
        return True

    async def predict(
        self,
        payload: InferRequest,
        headers: dict[str, str] | None = None,  # noqa: ARG002  KServe passes it so
        response_headers: dict[str, str] | None = None,  # noqa: ARG002
    ) -> InferResponse:
        """Run one request."""
        output = self._session.run(None, {"input": payload.inputs[0].as_numpy()})[0]
        tensor = InferOutput("output", list(output.shape), "FP32")
        binary = payload.use_binary_outputs or payload.from_grpc
        tensor.set_data_from_numpy(output, binary_data=binary)
        return InferResponse(
            payload.id or "", self.name, [tensor], from_grpc=payload.from_grpc, use_binary_outputs=binary
        )


def main(task: Task) -> None:
    """Serve until the process is ended."""
    server = kserve.ModelServer(
        http_port=task.port, grpc_port=task.grpc_port, workers=1, enable_latency_logging=False
    )
    server.start([OnnxModel(task)])


if __name__ == "__main__":
    main(read_task())
