"""Which GPUs the local servers may use, and what to tell a user who asked for some."""

from collections.abc import Mapping

import onnxruntime
import pynvml


def gpu_environment(asked: int) -> tuple[Mapping[str, str], str]:
    """Return the environment that gives each server `asked` GPUs, and a line that says where it serves."""
    if asked == 0:
        return {"CUDA_VISIBLE_DEVICES": ""}, "serving on the CPU, as the model asks"
    there = _gpu_count()
    if there == 0:
        return {}, f"the model asks for {asked} GPUs; no NVIDIA GPU is usable here, so it serves on the CPU"
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return (
            {},
            f"{there} GPUs are here, but onnxruntime has no CUDA (see onnxruntime-gpu): serving on the CPU",
        )
    used = ",".join(str(index) for index in range(min(asked, there)))
    return {
        "CUDA_VISIBLE_DEVICES": used
    }, f"serving on GPU {used} of this machine's {there}; asked for: {asked}"


def _gpu_count() -> int:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        return int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()
