"""KServe's Python server with one worker. Its batcher is a separate process in the cluster, so not here."""

from bench.peers.peer import Launch, Peer, program
from bench.peers.task import Task
from bench.peers.v2 import ask_v2_without_shared_memory


def _launch(_task: Task) -> Launch:
    return program("kserve", "kserve")


KSERVE = Peer(
    "kserve",
    "KServe's Python server, without its batcher",
    "kserve",
    _launch,
    ask_v2_without_shared_memory,
    "kserve",
    batching=False,
    ready_path="/v2/health/ready",
)
