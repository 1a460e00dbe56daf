"""Errors of sharing. Each says what was wrong and what to do."""

from mcp2026.device_plugin.errors import DevicePluginError


class MpsError(DevicePluginError):
    """The MPS daemon of a GPU could not be started, asked or stopped; `str()` says why."""
