"""PyTriton: Triton's front ends and scheduler, which hand batches to a function in a Python process.

It restricts the registration of shared memory to itself.
"""

import sys
from pathlib import Path

from bench.peers.peer import Launch, Peer, program
from bench.peers.task import Task
from bench.peers.v2 import ask_v2_without_shared_memory


def interpreter_library() -> dict[str, str]:
    """Return what makes Triton's Python stub load this interpreter's library.

    Else it takes the system's, and the standard library of one patch release with the core of another
    fails: `RLock` has no `_recursion_count`.
    """
    return {"LD_LIBRARY_PATH": str(Path(sys.base_prefix, "lib"))}


def _launch(task: Task) -> Launch:
    launch = program("pytriton", "pytriton")
    home = {"PYTRITON_HOME": task.folder}
    return Launch(launch.command, {**launch.environment, **interpreter_library(), **home})


PYTRITON = (
    Peer(
        "pytriton",
        "PyTriton, dynamic batching on",
        "nvidia-pytriton",
        _launch,
        ask_v2_without_shared_memory,
        "pytriton",
        ready_path="/v2/models/{model}/ready",
    ),
    Peer(
        "pytriton-unbatched",
        "PyTriton, dynamic batching off",
        "nvidia-pytriton",
        _launch,
        ask_v2_without_shared_memory,
        "pytriton",
        batching=False,
        ready_path="/v2/models/{model}/ready",
    ),
)
