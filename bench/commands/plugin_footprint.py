"""`plugin-footprint`: the memory and processor time of an idle device plugin."""

import argparse

from bench.commands.options import Commands, positive
from bench.plugin_footprint import MEMORY_BAR_MIB, PROCESSOR_BAR_PERCENT, measure_footprint


def add_commands(commands: Commands) -> None:
    """Add the command."""
    footprint = commands.add_parser(
        "plugin-footprint",
        help="the memory and processor time of an idle device plugin",
        description=f"Watch an idle device plugin that offers 400 shares. Ends with 1 above "
        f"{MEMORY_BAR_MIB:g} MiB or {PROCESSOR_BAR_PERCENT:g} % of a processor.",
    )
    footprint.add_argument("--seconds", type=positive, default=40, help="to watch (%(default)s)")
    footprint.set_defaults(run=_footprint)


def _footprint(parsed: argparse.Namespace) -> int:
    found = measure_footprint(parsed.seconds)
    plugin, beside = found.plugin, found.bystander
    print(
        f"{found.devices} devices: {found.resident_mib:.1f} MiB resident, "
        f"{plugin.processor_percent:.2f} % of a processor; {plugin.wakes:.1f} wakes/s "
        f"({plugin.main_wakes:.1f} of the main thread), {plugin.wake_us:.0f} us each; "
        f"{found.driver_calls:.0f} driver calls/s"
    )
    print(
        f"an event loop that does nothing, beside it: {beside.processor_percent:.2f} % of a processor; "
        f"{beside.wakes:.1f} wakes/s, {beside.wake_us:.0f} us each"
    )
    return 0 if found.within_bars else 1
