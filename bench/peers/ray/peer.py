"""Ray Serve with one replica and one proxy."""

from bench import dialects
from bench.exchange import Exchange
from bench.peers.peer import Launch, Peer, address, program
from bench.peers.task import Task
from bench.protocols import Protocol
from bench.samples import Sample


def _launch(task: Task) -> Launch:
    launch = program("ray", "ray")
    environment = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": task.folder}
    return Launch(launch.command, {**launch.environment, **environment})


def _ask(task: Task, sample: Sample, protocol: Protocol) -> Exchange | None:
    makers = {"json": dialects.nested, "binary": dialects.octets}
    if (make := makers.get(protocol.name)) is None:
        return None
    return Exchange("http1", address(task, protocol), "/", *make(sample.row))


RAY = (
    Peer("ray", "Ray Serve, batching on", "ray", _launch, _ask, "ray", ready_path="/-/healthz"),
    Peer(
        "ray-unbatched",
        "Ray Serve, batching off",
        "ray",
        _launch,
        _ask,
        "ray",
        batching=False,
        ready_path="/-/healthz",
    ),
)
