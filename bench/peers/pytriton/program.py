"""PyTriton's server of one model."""

import signal

import numpy as np
import numpy.typing as npt
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

from bench.peers.session import open_session
from bench.peers.task import Task, read_task

Floats = npt.NDArray[np.float32]


def main(task: Task) -> None:
    """Serve until the process is ended."""
    session = open_session(task)

    @batch
    def infer(input: Floats) -> dict[str, Floats]:  # noqa: A002  the name is that of the input
        return {"output": session.run(None, {"input": input})[0]}

    config = TritonConfig(
        http_address="127.0.0.1",
        http_port=task.port,
        grpc_address="127.0.0.1",
        grpc_port=task.grpc_port,
        metrics_port=task.spare_port,
    )
    batcher = DynamicBatcher(max_queue_delay_microseconds=task.delay_ms * 1000)
    model = (
        ModelConfig(max_batch_size=task.max_batch_size, batcher=batcher)
        if task.batching
        else ModelConfig(max_batch_size=1, batcher=DynamicBatcher(max_queue_delay_microseconds=0))
    )
    with Triton(config=config) as triton:
        triton.bind(
            model_name=task.model,
            infer_func=infer,
            inputs=[Tensor(name="input", dtype=np.float32, shape=task.input_shape)],
            outputs=[Tensor(name="output", dtype=np.float32, shape=task.output_shape)],
            config=model,
            strict=False,
        )
        triton.serve()


if __name__ == "__main__":
    # PyTriton removes its shared memory only if it leaves by an exception.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main(read_task())
