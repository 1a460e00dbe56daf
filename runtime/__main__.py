"""Start-up of `mcp2026-server`: settings in, exit status out.

Ends with 0 after a drain, with 2 on a wrong setting, with 1 when it cannot start or a worker has to be
killed, with 128 + n when a second signal n cuts the drain short.
"""

import asyncio
import os
import sys

from mcp2026.api.errors import SettingsError
from mcp2026.api.structured_log import configure_logging
from mcp2026.runtime.errors import StartupError
from mcp2026.runtime.process.supervisor import Supervisor
from mcp2026.runtime.settings import Settings
from mcp2026.runtime.settings_reading import read_settings


def main() -> None:
    """Run the server until it is told to stop."""
    try:
        settings = read_settings(sys.argv[1:], os.environ)
    except SettingsError as error:
        print(f"mcp2026-server: {error}", file=sys.stderr)
        sys.exit(2)
    configure_logging(settings.log_format, settings.log_level)
    try:
        sys.exit(asyncio.run(_serve(settings)))
    except StartupError as error:
        print(f"mcp2026-server: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:  # no descriptors, no memory
        print(f"mcp2026-server: cannot start: {error.strerror}. Raise the limit (ulimit -a)", file=sys.stderr)
        sys.exit(1)


async def _serve(settings: Settings) -> int:
    return await Supervisor(settings).run()


if __name__ == "__main__":
    main()
