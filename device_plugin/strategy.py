"""How is a container given its devices? (decision 0105)."""

from enum import StrEnum


class Strategy(StrEnum):
    """How a container is given its devices; several may be used at once."""

    ENVVAR = "envvar"
    """By NVIDIA_VISIBLE_DEVICES, which the NVIDIA container runtime reads."""
    CDI_CRI = "cdi-cri"
    """By CDI names, which any runtime with CDI resolves."""
    DEVICE_NODES = "device-nodes"
    """By the device nodes themselves."""
