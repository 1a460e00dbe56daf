"""Memory of a model or of bodies that are gone, given back to the system.

glibc keeps freed blocks of up to 32 MiB for itself once it has seen one of their size: 120 loads of a model
of 30 MiB left between one and three copies of it behind, which changed from load to load. Bodies come in many
smaller blocks, and any that is still used above them keeps them all.
"""

import ctypes
import logging
import time

log = logging.getLogger(__name__)


def give_back_freed_memory() -> None:
    """Return what no object uses any more to the system; does nothing where the C library cannot.

    Call it after the last reference is gone, and not on the event loop: it walks the heap, but
    lets other Python threads run meanwhile.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:  # musl gives memory back by itself
        return
    started = time.monotonic()
    trim(0)
    log.debug("freed memory was given back in %.1f ms", (time.monotonic() - started) * 1_000)
