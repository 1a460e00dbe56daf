"""Start-up and end of `mcp2026-server`: settings in, exit status out.

Ends with 0 after a drain, with 2 on a wrong setting, with 1 when it cannot start or a worker has to be
killed, with 128 + n when a second signal n cuts the drain short. A server whose model is stopped has the exit
status of its report (`ending/report.py`); one that is started again after it waits to be removed.
"""

import asyncio
import os
import sys

from mcp2026.api.errors import SettingsError
from mcp2026.api.structured_log import configure_logging
from mcp2026.runtime.ending.parking import park
from mcp2026.runtime.ending.record import Todo
from mcp2026.runtime.ending.server_end import ServerEnd
from mcp2026.runtime.errors import StartupError
from mcp2026.runtime.process.supervisor import Supervisor
from mcp2026.runtime.settings import Settings
from mcp2026.runtime.settings_reading import read_settings


def main() -> None:
    """Run the server until it is told to stop."""
    end = None
    try:
        settings = read_settings(sys.argv[1:], os.environ)
        end = ServerEnd(settings)
        configure_logging(settings.log_format, settings.log_level)
        status = _run(settings, end)
    except SettingsError as error:
        print(f"mcp2026-server: {error}", file=sys.stderr)
        status = 2
    except StartupError as error:
        print(f"mcp2026-server: {error}", file=sys.stderr)
        status = 1
    except OSError as error:  # no descriptors, no memory
        print(f"mcp2026-server: cannot start: {error.strerror}. Raise the limit (ulimit -a)", file=sys.stderr)
        status = 1
    finally:
        if end is not None:
            end.close()
    sys.exit(status)


def _run(settings: Settings, end: ServerEnd) -> int:
    todo, told = end.first_step()
    match todo:
        case Todo.SERVE:
            return _serve(settings, end)
        case Todo.PARK:
            asyncio.run(park(settings))
            return 0
        case Todo.ARCHIVE:
            assert told is not None
            return end.finish(told)
        case Todo.REPORT:
            assert told is not None
            return end.tell(told)


def _serve(settings: Settings, end: ServerEnd) -> int:
    async def serve() -> tuple[int, Supervisor]:
        supervisor = Supervisor(settings, end.begun)
        return await supervisor.run(), supervisor

    status, supervisor = asyncio.run(serve())
    if supervisor.stopped_by is None:
        return status
    return end.drained(supervisor.stopped_by, supervisor.drained, status)


if __name__ == "__main__":
    main()
