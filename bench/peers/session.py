"""ONNX Runtime set up in the same way in every server that lets us."""

from typing import Any

from bench.peers.task import Task


def open_session(task: Task) -> Any:
    """Return a session with the task's threads, which do not spin: MCP 2026 sets the same."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = task.threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(task.file, options, providers=["CPUExecutionProvider"])
