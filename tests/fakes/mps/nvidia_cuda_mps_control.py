"""A program that behaves as NVIDIA's `nvidia-cuda-mps-control`, without a GPU.

`-f` serves in the foreground, `-d` in the background; without either it passes lines from stdin to the daemon
of CUDA_MPS_PIPE_DIRECTORY. The file named by FAKE_MPS says how it misbehaves: lines out of `refuse <text>`,
`silent`, `crash`, `ignore-quit` and `server <pid>`. It is installed under NVIDIA's name by `FakeMps`.
"""

import os
import signal
import socket
import sys
from pathlib import Path

PIPE = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
LOG = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))


def behaviour() -> list[str]:
    path = os.environ.get("FAKE_MPS")
    return Path(path).read_text().splitlines() if path and Path(path).exists() else []


class Daemon:
    """Holds what is set, and answers one line at a time."""

    def __init__(self) -> None:
        self.percentage = 100.0
        self.limits: dict[str, str] = {}
        self.ended = False

    def answer(self, line: str) -> str:
        match line.split():
            case ["get_default_active_thread_percentage"]:
                return f"{self.percentage:.1f}"
            case ["set_default_active_thread_percentage", value]:
                self.percentage = float(value)
                return f"{self.percentage:.1f}"
            case ["set_default_device_pinned_mem_limit", device, value]:
                self.limits[device] = value
                return ""
            case ["get_default_device_pinned_mem_limit", device]:
                return self.limits.get(device, "")
            case ["get_server_list"]:
                return "\n".join(line.split()[1] for line in behaviour() if line.startswith("server "))
            case ["quit", *_]:
                self.ended = "ignore-quit" not in behaviour()
                return ""
            case _:
                return f"Unknown command: {line}"


def serve() -> int:
    for line in behaviour():
        if line.startswith("refuse"):
            print(line.removeprefix("refuse "), file=sys.stderr)
            return 1
    LOG.mkdir(parents=True, exist_ok=True)
    (LOG / "control.log").write_text("Start\n")
    (LOG / "environment").write_text("\n".join(f"{name}={value}" for name, value in os.environ.items()))
    daemon = Daemon()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(PIPE / "control"))
        listener.listen()
        (PIPE / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
        while not daemon.ended:
            connection, _ = listener.accept()
            with connection:
                line = connection.recv(4096).decode().strip()
                if "crash" in behaviour():
                    print("MPS: out of luck", file=sys.stderr)
                    return 3
                if "silent" in behaviour():
                    signal.pause()
                connection.sendall(daemon.answer(line).encode())
    return 0


def pass_on() -> int:
    for line in sys.stdin:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(PIPE / "control"))
            except OSError:
                print("Cannot find MPS control daemon process")
                return 1
            connection.sendall(line.encode())
            if answer := connection.recv(4096).decode():
                print(answer)
    return 0


def main() -> int:
    match sys.argv[1:]:
        case ["-f"]:
            return serve()
        case ["-d"]:
            return 0 if os.fork() else serve()
        case []:
            return pass_on()
        case _:
            print("usage: nvidia-cuda-mps-control [-d | -f]", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
