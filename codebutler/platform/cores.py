"""What a process leaves on disk when it crashes: nothing. Its memory holds tokens and what people wrote."""

from __future__ import annotations

import contextlib
import resource


def leave_no_core() -> None:
    """For this process and all that it starts: no core dump, whatever the session's limits are (core(5))."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
