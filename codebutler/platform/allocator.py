"""The allocator: what is large goes back to the system when it is let go.

Left to itself glibc raises the size from which it does so to 32 MB with the first large file that passes through, and
from then on each thread that handles another one keeps its memory (mallopt(3), M_MMAP_THRESHOLD). Other C libraries
and other systems have neither the habit nor the setting.
"""

from __future__ import annotations

from contextlib import suppress

LARGE_BYTES = 2**18
VARIABLES = (("MALLOC_MMAP_THRESHOLD_", str(LARGE_BYTES)),)
"""For a process that is yet to start."""
_M_MMAP_THRESHOLD = -3


def give_back_what_is_large() -> None:
    """For the process that runs."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
