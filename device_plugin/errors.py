"""Errors of the device plugin. Each says what was wrong and what to do."""

from collections.abc import Sequence
from pathlib import Path


class DevicePluginError(Exception):
    """Base of all errors raised in `mcp2026.device_plugin`."""


class ProbePortError(DevicePluginError):
    """The port for probes and metrics cannot be had."""

    def __init__(self, port: int, reason: str) -> None:
        super().__init__(f"--metrics-port {port} cannot be listened on ({reason}): choose a free one")
        self.port = port


class PublicationError(DevicePluginError):
    """The API server did not take the topology; `str()` says why and what to do."""


class NvmlError(DevicePluginError):
    """The GPUs of this node cannot be read."""


class NoDriverLibraryError(NvmlError):
    """There is no libnvidia-ml.so.1."""

    def __init__(self) -> None:
        super().__init__(
            "no NVIDIA driver library (libnvidia-ml.so.1) found on this node: install the driver, or run the "
            "plugin with the NVIDIA container runtime"
        )


class DriverNotRunningError(NvmlError):
    """The library is there and refuses to start."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the NVIDIA driver library is here, but does not start ({reason}): load the kernel module, "
            "check that `nvidia-smi` works on this node and that library and module are of one version"
        )
        self.reason = reason


class DriverTooOldError(NvmlError):
    """The library lacks a function without which the GPUs cannot be described."""

    def __init__(self, function: str, driver: str) -> None:
        super().__init__(
            f"the NVIDIA driver {driver or '(unknown version)'} has no {function}: update the driver "
            "(CUDA 12.4 needs 550 or later)"
        )
        self.function = function


class GpuCallError(NvmlError):
    """A call about one GPU failed: `call` names it, `reason` is the driver's, or that it took too long."""

    def __init__(self, gpu: str, call: str, reason: str) -> None:
        super().__init__(f"{gpu}: {call}: {reason}")
        self.gpu = gpu
        self.call = call
        self.reason = reason


class NoGpusError(NvmlError):
    """The driver runs and shows no GPU that can be read."""

    def __init__(self, unreadable: str = "") -> None:
        seen = f"no GPU that can be read ({unreadable})" if unreadable else "no GPU"
        super().__init__(
            f"the NVIDIA driver shows {seen} on this node: check `nvidia-smi -L`, or keep the plugin off "
            "this node by a node selector"
        )


class KubeletError(DevicePluginError):
    """The kubelet cannot be reached or refuses."""


class NoKubeletSocketError(KubeletError):
    """The kubelet's registration socket does not exist."""

    def __init__(self, socket: Path, waited_s: float) -> None:
        super().__init__(
            f"no kubelet socket at {socket} after {waited_s:g} s: mount the host's {socket.parent} into the "
            "pod (hostPath), and check that the kubelet runs and that --kubelet-directory names its root"
        )
        self.socket = socket


class RegistrationRefusedError(KubeletError):
    """The kubelet's answer to Register is an error that a retry does not mend."""

    def __init__(self, resource: str, reason: str) -> None:
        super().__init__(f"the kubelet refused to register {resource}: {reason}")
        self.resource = resource


class SocketInUseError(KubeletError):
    """Something else is at the path of the plugin's own socket; `served`: by another process."""

    def __init__(self, socket: Path, holder: str, served: bool = False) -> None:
        advice = (
            "stop the other device plugin on this node, or give this one another --resource-prefix and "
            "--socket-prefix"
            if served
            else "remove it, and see that the folder can be written"
        )
        super().__init__(f"{socket} is {holder}: {advice}")
        self.socket = socket


class ApiServerError(DevicePluginError):
    """The API server refused (`status` is HTTP's) or cannot be reached (`status` is 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}" if status else message)
        self.status = status
        self.message = message


class NoCredentialsError(DevicePluginError):
    """Nothing says where the API server is, or how to speak to it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"neither a service account of a pod nor a usable kubeconfig file is there ({path}: {reason}): "
            "run in a pod with a service account, or with --no-publish-topology"
        )
        self.path = path


class AnotherPluginError(KubeletError):
    """Another plugin of ours serves this node."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            f"another MCP 2026 device plugin holds {directory}: one node has one, whatever its resources are "
            "called, or GPUs would be given away twice; stop the other one"
        )
        self.directory = directory


class UnsharableSetError(DevicePluginError):
    """The kubelet allocates parts of several GPUs to one container, where that would over-commit them."""

    def __init__(self, resource: str, gpus: Sequence[str]) -> None:
        super().__init__(
            f"{resource}: the devices are of {len(gpus)} GPUs ({', '.join(gpus)}), but a container can use "
            "the memory of one: request at most what one GPU has free"
        )
        self.gpus = tuple(gpus)


class CdiDirectoryError(DevicePluginError):
    """The folder of the CDI specifications cannot be written."""

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(
            f"--cdi-directory {directory} cannot be written ({reason}): mount the host's folder into the pod "
            "(hostPath), or leave cdi-cri out of --device-list-strategy"
        )
        self.directory = directory


class SharesOfOneGpuError(DevicePluginError):
    """A container would get several shares of one GPU, and the configuration wants distinct ones."""

    def __init__(self, resource: str, gpu: str, count: int) -> None:
        super().__init__(
            f"{resource}: {count} of the shares are of {gpu}, and the configuration has shares.distinctOnly: "
            "request at most as many shares as GPUs have one free"
        )
        self.gpu = gpu
